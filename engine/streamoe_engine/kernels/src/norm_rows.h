/* Norms, gates, rotation and number formats of single rows, for the instruction set of the including file. */
#ifndef ST_NORM_ROWS_H
#define ST_NORM_ROWS_H

#include "mix_rows.h"
#include "vec_math.h"

/* out[i] = expression of the vectors at i, the last ones padded with zeros. */
#define ST_FOR_ROW(count, whole, rest)          \
    do {                                        \
        int64_t i = 0;                          \
        for (; i + 16 <= (count); i += 16) {    \
            whole;                              \
        }                                       \
        if (i < (count)) {                      \
            const int64_t left = (count) - i;   \
            rest;                               \
        }                                       \
    } while (0)

/* Sum of squares over four accumulators, 64 elements a round. */
ST_INLINE float sum_of_squares(const float *x, int64_t count)
{
    st_v16 sums[4] = {v16_of(0), v16_of(0), v16_of(0), v16_of(0)};
    int64_t i = 0;
    for (; i + 64 <= count; i += 64)
        for (int j = 0; j < 4; j++) {
            st_v16 v = v16_load(x + i + 16 * j);
            sums[j] = v16_fma(v, v, sums[j]);
        }
    for (; i < count; i += 16) {
        st_v16 v = count - i < 16 ? v16_load_some(x + i, count - i) : v16_load(x + i);
        sums[0] = v16_fma(v, v, sums[0]);
    }
    return v16_sum(v16_add(v16_add(sums[0], sums[2]), v16_add(sums[1], sums[3])));
}

static void rms_norm(const float *x, const float *weight, float eps, float factor, int64_t count, float *out)
{
    const st_v16 inverse = v16_of(factor / sqrtf(sum_of_squares(x, count) / (float)count + eps));
    if (!weight) {
        ST_FOR_ROW(count, v16_store(out + i, v16_mul(v16_load(x + i), inverse)),
                   v16_store_some(out + i, v16_mul(v16_load_some(x + i, left), inverse), left));
        return;
    }
    ST_FOR_ROW(count, v16_store(out + i, v16_mul(v16_mul(v16_load(x + i), inverse), v16_load(weight + i))),
               v16_store_some(out + i,
                              v16_mul(v16_mul(v16_load_some(x + i, left), inverse), v16_load_some(weight + i, left)),
                              left));
}

static void silu_mul(const float *gate, const float *x, int64_t count, float *out)
{
    ST_FOR_ROW(count, v16_store(out + i, v16_mul(v16_silu(v16_load(gate + i)), v16_load(x + i))),
               v16_store_some(out + i, v16_mul(v16_silu(v16_load_some(gate + i, left)), v16_load_some(x + i, left)),
                              left));
}

static void sigmoid(const float *x, int64_t count, float *out)
{
    ST_FOR_ROW(count, v16_store(out + i, v16_sigmoid(v16_load(x + i))),
               v16_store_some(out + i, v16_sigmoid(v16_load_some(x + i, left)), left));
}

static void sigmoid_mul(const float *gate, int64_t count, float *x)
{
    ST_FOR_ROW(count, v16_store(x + i, v16_mul(v16_load(x + i), v16_sigmoid(v16_load(gate + i)))),
               v16_store_some(x + i, v16_mul(v16_load_some(x + i, left), v16_sigmoid(v16_load_some(gate + i, left))),
                              left));
}

static void scale_row(float factor, int64_t count, float *x)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

static void add_rows(const float *a, const float *b, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

static void rotate(float *x, const float *table, int64_t half)
{
    const float *cosines = table, *sines = table + half;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = a * sines[i] + b * cosines[i];
    }
}

/* ---- bfloat16 and float16 rows, rounded to nearest even ---------------------------------------------------------- */

ST_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

ST_INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

ST_INLINE uint16_t bf16_of(float x)
{
    const uint32_t bits = bits_of(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

ST_INLINE uint16_t f16_of(float x)
{
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) { /* denormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits */
        return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
}

ST_INLINE float f32_of_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
    if (size >= 0x7c00)
        return float_of(sign | 0x7f800000 | (size & 0x3ff) << 13);
    if (size < 0x400) /* denormal: an integer times 2^-24 */
        return float_of(sign | bits_of((float)size * 0x1p-24f));
    return float_of(sign | ((size << 13) + 0x38000000));
}

static void store_kv(const float *x, int64_t count, int64_t kv_type, void *row)
{
    uint16_t *halves = row;
    if (kv_type == ST_KV_F32) {
        memcpy(row, x, (size_t)count * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        halves[i] = kv_type == ST_KV_BF16 ? bf16_of(x[i]) : f16_of(x[i]);
}

static void load_kv(const void *stored, int64_t count, int64_t kv_type, float *x)
{
    const uint16_t *halves = stored;
    if (kv_type == ST_KV_BF16) {
        for (int64_t i = 0; i < count; i++)
            x[i] = float_of((uint32_t)halves[i] << 16);
        return;
    }
    int64_t i = 0;
#if defined(__x86_64__) && ST_PART_LANES == 16
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(halves + i))));
#elif defined(__x86_64__) && ST_PART_LANES == 8
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(halves + i))));
#endif
    for (; i < count; i++)
        x[i] = f32_of_f16(halves[i]);
}

#endif
