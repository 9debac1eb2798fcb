/* Sixteen lanes of AVX-512 (F, BW, VL, DQ, VBMI, VNNI). What each vec_*.h owns: the vector type, its arithmetic, its
 * fixed sum, and how stored numbers become weights; codes of a few bits are multiplied in fixed point (fixed.h). */
#ifndef STREAMOE_VEC_H
#define STREAMOE_VEC_H

#include <immintrin.h>

#include "numbers.h"

#ifndef ST_ALSO
#define ST_ALSO
#endif
#define ST_TARGET __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni" ST_ALSO)))
#define ST_FN static inline __attribute__((always_inline)) ST_TARGET

/* Outputs and rows of one tile of accumulators. */
enum { LANES = 16, TILE_N = 8, TILE_M = 3 };

/* Rows that `direct` takes at once, and up to how many it is faster than unpacking first (measured). */
#define ST_DIRECT_M 4
#define ST_DIRECT_MOST 8

typedef __m512 vf;

ST_FN vf v_zero(void) { return _mm512_setzero_ps(); }
ST_FN vf v_all(float a) { return _mm512_set1_ps(a); }
ST_FN vf v_load(const float *p) { return _mm512_loadu_ps(p); }
ST_FN void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
/* The same value, in a register: else the compiler reads it from memory once for each use. */
ST_FN vf v_keep(vf a) {
    __asm__("" : "+v"(a));
    return a;
}
ST_FN vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
ST_FN vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
ST_FN vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
ST_FN vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
ST_FN vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
ST_FN vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
ST_FN vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

/* 2^n for t = n + 1.5 * 2^23 */
ST_FN vf v_pow2(vf t) {
    __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
}

/* The sum of the lanes, always as a tree of halves: l with l + 8, then 4, 2, 1. */
ST_FN float v_sum(vf a) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

ST_FN __m256 v_halves(vf a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }

/* Lanes 0-3 of the result are a's l with l + 4, lanes 4-7 b's. */
ST_FN __m256 v_quarters(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

ST_FN __m256 v_eighths(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}

/* out[i] = v_sum(a[i * stride]) for TILE_N vectors: the same tree, eight at once. */
ST_FN void v_sums(float *out, const vf *a, int stride) {
    __m256 even = v_eighths(v_quarters(v_halves(a[0]), v_halves(a[4 * stride])),
                            v_quarters(v_halves(a[1 * stride]), v_halves(a[5 * stride])));
    __m256 odd = v_eighths(v_quarters(v_halves(a[2 * stride]), v_halves(a[6 * stride])),
                           v_quarters(v_halves(a[3 * stride]), v_halves(a[7 * stride])));
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_shuffle_ps(even, odd, 0x88), _mm256_shuffle_ps(even, odd, 0xdd)));
}

#define ST_HAS_FIXED 1

/* Groups belong to codes. */
typedef struct {
    char none;
} vgroup;

ST_FN vgroup v_group(int bits, const float *scale, const float *bias) {
    (void)bits, (void)scale, (void)bias;
    return (vgroup){0};
}

/* The sixteen weights from index k of a row of stored numbers. */
ST_FN vf v_weights(int bits, int type, vgroup group, const uint8_t *row, uint64_t k) {
    (void)group;
    if (bits == 32) return _mm512_loadu_ps((const void *)(row + 4 * k));
    const __m256i halves = _mm256_loadu_si256((const void *)(row + 2 * k));
    if (type == ST_F16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

#endif
