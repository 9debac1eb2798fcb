/* Sixteen float lanes and the functions of one variable, for whichever instruction set the including file chose.
 *
 * Owns: the type st_v16 and its arithmetic. A file sets ST_PART_LANES to 16 (AVX-512), 8 (AVX2) or 4 (any machine;
 * NEON on arm64) and its target pragma, then includes this once. Lane i and the order of every sum are the same for
 * each width; only whether a multiplication and an addition round once (fma) or twice differs.
 * Exactness: no function here depends on alignment, and none looks at a neighbouring lane but the horizontal ones.
 */
#ifndef ST_VEC_MATH_H
#define ST_VEC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define ST_INLINE static inline __attribute__((always_inline, unused))
#define ST_PARTS (16 / ST_PART_LANES)

typedef float st_part __attribute__((vector_size(4 * ST_PART_LANES)));
typedef int32_t st_part_bits __attribute__((vector_size(4 * ST_PART_LANES)));
typedef float st_part_anywhere __attribute__((vector_size(4 * ST_PART_LANES), aligned(4), may_alias));
typedef struct {
    st_part p[ST_PARTS];
} st_v16;

/* {{ expression in i for each part }} */
#if ST_PARTS == 1
#define ST_EACH_PART(expression) ((st_v16){{expression(0)}})
#elif ST_PARTS == 2
#define ST_EACH_PART(expression) ((st_v16){{expression(0), expression(1)}})
#else
#define ST_EACH_PART(expression) ((st_v16){{expression(0), expression(1), expression(2), expression(3)}})
#endif

ST_INLINE st_part part_of(float x)
{
    return x - (st_part){0}; /* x + 0 would lose the sign of -0 */
}

ST_INLINE st_part part_fma(st_part a, st_part b, st_part c)
{
#if ST_PART_LANES == 16
    return (st_part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif ST_PART_LANES == 8
    return (st_part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (st_part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

ST_INLINE st_part part_select(st_part_bits mask, st_part yes, st_part no)
{
    return (st_part)(((st_part_bits)yes & mask) | ((st_part_bits)no & ~mask));
}

ST_INLINE st_v16 v16_load(const float *x)
{
#define ST_PART(i) *(const st_part_anywhere *)(x + ST_PART_LANES * (i))
    return ST_EACH_PART(ST_PART);
#undef ST_PART
}

ST_INLINE void v16_store(float *x, st_v16 a)
{
    for (int i = 0; i < ST_PARTS; i++)
        *(st_part_anywhere *)(x + ST_PART_LANES * i) = a.p[i];
}

/* The first count < 16 floats at x; the other lanes are zero. */
ST_INLINE st_v16 v16_load_some(const float *x, int64_t count)
{
    float padded[16] = {0};
    memcpy(padded, x, (size_t)count * sizeof(float));
    return v16_load(padded);
}

ST_INLINE void v16_store_some(float *x, st_v16 a, int64_t count)
{
    float padded[16];
    v16_store(padded, a);
    memcpy(x, padded, (size_t)count * sizeof(float));
}

ST_INLINE st_v16 v16_of(float x)
{
#define ST_PART(i) part_of(x)
    return ST_EACH_PART(ST_PART);
#undef ST_PART
}

#define ST_BINARY(name, expression)                 \
    ST_INLINE st_v16 name(st_v16 a, st_v16 b)       \
    {                                               \
        return ST_EACH_PART(expression);            \
    }
#define ST_ADD(i) a.p[i] + b.p[i]
#define ST_SUB(i) a.p[i] - b.p[i]
#define ST_MUL(i) a.p[i] * b.p[i]
#define ST_DIV(i) a.p[i] / b.p[i]
#define ST_MAX(i) part_select(a.p[i] > b.p[i], a.p[i], b.p[i])
#define ST_MIN(i) part_select(a.p[i] < b.p[i], a.p[i], b.p[i])
ST_BINARY(v16_add, ST_ADD)
ST_BINARY(v16_sub, ST_SUB)
ST_BINARY(v16_mul, ST_MUL)
ST_BINARY(v16_div, ST_DIV)
/* Of a pair with a NaN, b: a constant in a's place lets a NaN of b through. */
ST_BINARY(v16_max, ST_MAX)
ST_BINARY(v16_min, ST_MIN)

/* a * b + c, rounded once where the machine can. */
ST_INLINE st_v16 v16_fma(st_v16 a, st_v16 b, st_v16 c)
{
#define ST_PART(i) part_fma(a.p[i], b.p[i], c.p[i])
    return ST_EACH_PART(ST_PART);
#undef ST_PART
}

/* e^x to 1.2e-7 relative; 0 below -87.3 (where float would be denormal), 2.3e38 above 88.37; NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2, then Taylor to r^7: the next term is below 6e-9. */
ST_INLINE st_part part_exp(st_part x)
{
    const float highest = 88.376f, lowest = -87.3f, rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to integers */
    st_part top = part_of(highest);
    st_part clamped = part_select(top < x, top, x);
    st_part shifted = part_fma(clamped, part_of(1.44269504f), part_of(rounder));
    st_part n = shifted - rounder;
    st_part r = part_fma(n, part_of(-0.693359375f), clamped); /* ln 2 in two parts, the first exact in 9 bits */
    r = part_fma(n, part_of(2.12194440e-4f), r);
    st_part sum = part_fma(r, part_of(1.0f / 5040), part_of(1.0f / 720));
    sum = part_fma(sum, r, part_of(1.0f / 120));
    sum = part_fma(sum, r, part_of(1.0f / 24));
    sum = part_fma(sum, r, part_of(1.0f / 6));
    sum = part_fma(sum, r, part_of(0.5f));
    sum = part_fma(sum, r, part_of(1.0f));
    sum = part_fma(sum, r, part_of(1.0f));
    st_part_bits exponent = ((st_part_bits)shifted + 127) << 23; /* the rounder's own bits leave on the left */
    return part_select(x < lowest, part_of(0.0f), sum * (st_part)exponent);
}

ST_INLINE st_v16 v16_exp(st_v16 x)
{
#define ST_PART(i) part_exp(x.p[i])
    return ST_EACH_PART(ST_PART);
#undef ST_PART
}

ST_INLINE float one_exp(float x)
{
    return v16_exp(v16_of(x)).p[0][0];
}

/* 1 / (1 + e^-x) */
ST_INLINE st_v16 v16_sigmoid(st_v16 x)
{
#define ST_PART(i) 1.0f / (1.0f + part_exp(-x.p[i]))
    return ST_EACH_PART(ST_PART);
#undef ST_PART
}

ST_INLINE st_v16 v16_silu(st_v16 x)
{
    return v16_mul(x, v16_sigmoid(x));
}

/* The largest lane. */
ST_INLINE float v16_largest(st_v16 a)
{
    float lanes[16], largest;
    v16_store(lanes, a);
    largest = lanes[0];
    for (int i = 1; i < 16; i++)
        largest = largest > lanes[i] ? largest : lanes[i];
    return largest;
}

/* Lane i + lane i + 8, then + 4, + 2, + 1. */
ST_INLINE float v16_sum(st_v16 a)
{
    float lanes[16];
    v16_store(lanes, a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

#if defined(__x86_64__)
/* Within 128 bits: (0 + 2) + (1 + 3) of a, b, c, d, in this order. */
#define ST_SUM_QUADS(name, vector, low, high, low_pair, high_pair, cast, cast_back, add)                              \
    ST_INLINE vector name(vector a, vector b, vector c, vector d)                                                      \
    {                                                                                                                  \
        vector ab = add(low(a, b), high(a, b)), cd = add(low(c, d), high(c, d));                                       \
        return add(cast_back(low_pair(cast(ab), cast(cd))), cast_back(high_pair(cast(ab), cast(cd))));                 \
    }
#if ST_PART_LANES == 16
ST_SUM_QUADS(sum_quads, __m512, _mm512_unpacklo_ps, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpackhi_pd,
             _mm512_castps_pd, _mm512_castpd_ps, _mm512_add_ps)
#elif ST_PART_LANES == 8
ST_SUM_QUADS(sum_quads, __m256, _mm256_unpacklo_ps, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpackhi_pd,
             _mm256_castps_pd, _mm256_castpd_ps, _mm256_add_ps)
#else
ST_SUM_QUADS(sum_quads, __m128, _mm_unpacklo_ps, _mm_unpackhi_ps, _mm_unpacklo_pd, _mm_unpackhi_pd, _mm_castps_pd,
             _mm_castpd_ps, _mm_add_ps)
#endif
#endif

/* The sums of four vectors' lanes, each in the same order, to sums[0..3]. */
ST_INLINE void v16_sum4(st_v16 a, st_v16 b, st_v16 c, st_v16 d, float *sums)
{
#if ST_PARTS == 1
#define ST_FOLD(x) x.p[0]
#elif ST_PARTS == 2
#define ST_FOLD(x) (x.p[0] + x.p[1])
#else
#define ST_FOLD(x) ((x.p[0] + x.p[2]) + (x.p[1] + x.p[3]))
#endif
#if defined(__x86_64__) && ST_PART_LANES == 16
    __m512 quads = sum_quads((__m512)ST_FOLD(a), (__m512)ST_FOLD(b), (__m512)ST_FOLD(c), (__m512)ST_FOLD(d));
    __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
#elif defined(__x86_64__) && ST_PART_LANES == 8
    __m256 halves = sum_quads((__m256)ST_FOLD(a), (__m256)ST_FOLD(b), (__m256)ST_FOLD(c), (__m256)ST_FOLD(d));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
#elif defined(__x86_64__)
    _mm_storeu_ps(sums, sum_quads((__m128)ST_FOLD(a), (__m128)ST_FOLD(b), (__m128)ST_FOLD(c), (__m128)ST_FOLD(d)));
#elif defined(__aarch64__)
    float32x4_t ab = vpaddq_f32((float32x4_t)ST_FOLD(a), (float32x4_t)ST_FOLD(b));
    float32x4_t cd = vpaddq_f32((float32x4_t)ST_FOLD(c), (float32x4_t)ST_FOLD(d));
    vst1q_f32(sums, vpaddq_f32(ab, cd));
#else
    const st_v16 all[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        sums[i] = v16_sum(all[i]);
#endif
#undef ST_FOLD
}

#endif
