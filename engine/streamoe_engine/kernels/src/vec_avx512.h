/* Sixteen lanes of AVX-512 (F, BW, VL, DQ, VBMI). What each vec_*.h owns: the vector type, its arithmetic, its fixed
 * sum, and how codes become weights. */
#ifndef STREAMOE_VEC_H
#define STREAMOE_VEC_H

#include <immintrin.h>

#include "numbers.h"

#define ST_TARGET __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")))
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

/* A group's way from codes to weights. Up to 4 bits: a table of all weights in `low`; 5 bits: in `low` and `high`;
 * wider: scale in `low` and bias in `high`. Both ways round scale * q + bias once. */
typedef struct {
    vf low, high;
} vgroup;

ST_FN vgroup v_group(int bits, const float *scale, const float *bias) {
    vgroup group = {v_all(*scale), v_all(*bias)};
    if (bits > 5) return group;
    __m512i q = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    vf tables_end = v_fma(_mm512_cvtepi32_ps(_mm512_add_epi32(q, _mm512_set1_epi32(16))), group.low, group.high);
    /* The look-up reads four bits: a narrower code repeats, so that its neighbour's bits do not matter. */
    if (bits < 4) q = _mm512_and_si512(q, _mm512_set1_epi32((1 << bits) - 1));
    group.low = v_fma(_mm512_cvtepi32_ps(q), group.low, group.high);
    group.high = tables_end;
    return group;
}

/* The sixteen codes from index k (a multiple of 16), one in each lane's low bits; what is above is not its. */
ST_FN __m512i v_codes(int bits, const uint8_t *row, uint64_t k) {
    const uint8_t *from = row + k / 8 * (uint64_t)bits;
    __m512i pairs;
    int step, wrap; /* bit at which pair l starts: step * l % wrap */
    if (bits == 2 || bits == 4) {
        pairs = _mm512_set1_epi64((int64_t)st_bytes(from, 2 * bits));
        step = 2 * bits, wrap = 64;
    } else { /* give each pair the two bytes it lies in */
#define ST_BYTES(l) ((int64_t)(2 * bits * (l) / 8) | (int64_t)(2 * bits * (l) / 8 + 1) << 8)
        const __m512i at = _mm512_set_epi64(ST_BYTES(7), ST_BYTES(6), ST_BYTES(5), ST_BYTES(4), ST_BYTES(3),
                                            ST_BYTES(2), ST_BYTES(1), ST_BYTES(0));
#undef ST_BYTES
        __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)((1 << 2 * bits) - 1), from);
        pairs = _mm512_permutexvar_epi8(at, _mm512_castsi128_si512(bytes));
        step = 2 * bits, wrap = 8;
    }
#define ST_SHIFT(l) ((int64_t)(step * (l) % wrap) | (int64_t)(step * (l) % wrap + bits) << 32)
    const __m512i shifts = _mm512_set_epi64(ST_SHIFT(7), ST_SHIFT(6), ST_SHIFT(5), ST_SHIFT(4), ST_SHIFT(3),
                                            ST_SHIFT(2), ST_SHIFT(1), ST_SHIFT(0));
#undef ST_SHIFT
    return _mm512_multishift_epi64_epi8(shifts, pairs);
}

/* The sixteen weights from index k of a row; for 16 and 32 bits, of stored numbers. */
ST_FN vf v_weights(int bits, int type, vgroup group, const uint8_t *row, uint64_t k) {
    if (bits == 32) return _mm512_loadu_ps((const void *)(row + 4 * k));
    if (bits == 16) {
        __m256i halves = _mm256_loadu_si256((const void *)(row + 2 * k));
        if (type == ST_F16) return _mm512_cvtph_ps(halves);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    if (bits == 8) {
        __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(row + k)));
        return v_fma(_mm512_cvtepi32_ps(q), group.low, group.high);
    }
    __m512i q = v_codes(bits, row, k);
    if (bits <= 4) return _mm512_permutexvar_ps(q, group.low);
    if (bits == 5) return _mm512_permutex2var_ps(group.low, q, group.high);
    q = _mm512_and_si512(q, _mm512_set1_epi32((1 << bits) - 1));
    return v_fma(_mm512_cvtepi32_ps(q), group.low, group.high);
}

/* A lone row of x, where unpacking costs more than multiplying. Codes of 4 bits come by a broadcast load and a shift,
 * which run on other ports of Intel's processors than the look-up does. Lane l then holds input 8 * (l % 2) + l / 2 of
 * its sixteen, so x is put in that order first, and a sum is put back before its lanes are added: every lane adds what
 * it always adds. */
#define ST_HAS_LONE 1

ST_FN vf v_lone_order(vf x) {
    return _mm512_permutexvar_ps(_mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0), x);
}

ST_FN vf v_lone_back(vf sums) {
    return _mm512_permutexvar_ps(_mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0), sums);
}

ST_FN vf v_lone_weights(vgroup group, const uint8_t *codes) {
    const __m512i shifts = _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
    const __m512i eight_bytes = _mm512_set1_epi64((int64_t)st_bytes(codes, 8));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(eight_bytes, shifts), group.low);
}

#endif
