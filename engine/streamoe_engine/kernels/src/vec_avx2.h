/* Eight lanes of AVX2 with FMA. */
#ifndef STREAMOE_VEC_H
#define STREAMOE_VEC_H

#include <immintrin.h>

#include "numbers.h"

#define ST_TARGET __attribute__((target("avx2,fma")))
#define ST_FN static inline __attribute__((always_inline)) ST_TARGET

enum { LANES = 8, TILE_N = 4, TILE_M = 3 };

#define ST_DIRECT_M 2
#define ST_DIRECT_MOST 2

typedef __m256 vf;

ST_FN vf v_zero(void) { return _mm256_setzero_ps(); }
ST_FN vf v_all(float a) { return _mm256_set1_ps(a); }
ST_FN vf v_load(const float *p) { return _mm256_loadu_ps(p); }
ST_FN void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
ST_FN vf v_keep(vf a) {
    __asm__("" : "+x"(a));
    return a;
}
ST_FN vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
ST_FN vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
ST_FN vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
ST_FN vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
ST_FN vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
ST_FN vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
ST_FN vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

ST_FN vf v_pow2(vf t) {
    __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
}

/* Lane l with l + 4, then 2, 1. */
ST_FN float v_sum(vf a) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

ST_FN __m128 v_halves(vf a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }

ST_FN __m128 v_quarters(__m128 a, __m128 b) {
    return _mm_add_ps(_mm_shuffle_ps(a, b, 0x44), _mm_shuffle_ps(a, b, 0xee));
}

/* out[i] = v_sum(a[i * stride]) for TILE_N vectors: the same tree, four at once. */
ST_FN void v_sums(float *out, const vf *a, int stride) {
    __m128 even = v_quarters(v_halves(a[0]), v_halves(a[stride]));
    __m128 odd = v_quarters(v_halves(a[2 * stride]), v_halves(a[3 * stride]));
    _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(even, odd, 0x88), _mm_shuffle_ps(even, odd, 0xdd)));
}

typedef struct {
    vf scale, bias;
} vgroup;

ST_FN vgroup v_group(int bits, const float *scale, const float *bias) {
    (void)bits;
    return (vgroup){v_all(*scale), v_all(*bias)};
}

/* The eight codes from index k (a multiple of 8) of a row: `bits` bytes. */
ST_FN __m256i v_codes(int bits, const uint8_t *row, uint64_t k) {
    const uint8_t *from = row + k / 8 * (uint64_t)bits;
    if (bits == 8) return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from));
    uint64_t codes = st_bytes(from, bits);
    __m256i low = _mm256_set1_epi32((int)codes), mask = _mm256_set1_epi32((1 << bits) - 1), at;
    if (bits <= 4) { /* all eight in 32 bits */
        at = _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 4 * bits, 5 * bits, 6 * bits, 7 * bits);
    } else { /* four in each half */
        low = _mm256_inserti128_si256(low, _mm_set1_epi32((int)(codes >> 4 * bits)), 1);
        at = _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 0, bits, 2 * bits, 3 * bits);
    }
    return _mm256_and_si256(_mm256_srlv_epi32(low, at), mask);
}

/* The eight weights from index k of a row; for 16 and 32 bits, of stored numbers. */
ST_FN vf v_weights(int bits, int type, vgroup group, const uint8_t *row, uint64_t k) {
    if (bits == 32) return _mm256_loadu_ps((const void *)(row + 4 * k));
    if (bits == 16 && type == ST_F16) {
        float wide[LANES];
        st_widen(wide, row, ST_F16, k, LANES);
        return v_load(wide);
    }
    if (bits == 16) {
        __m128i halves = _mm_loadu_si128((const void *)(row + 2 * k));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
    return v_fma(_mm256_cvtepi32_ps(v_codes(bits, row, k)), group.scale, group.bias);
}

#endif
