/* Norms, gates, rotations and number formats of single rows, over the vectors of a vec_*.h. */
#ifndef STREAMOE_NORM_BODY_H
#define STREAMOE_NORM_BODY_H

#include <math.h>

#include "mix.h"
#include "vec_math.h"

/* Four accumulators take vectors in turn; they are added crosswise, then their lanes. */
ST_FN float sum_of_squares(const float *x, int64_t count) {
    vf sums[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        for (int j = 0; j < 4; j++) {
            vf v = v_load(x + i + j * LANES);
            sums[j] = v_fma(v, v, sums[j]);
        }
    }
    for (; i < count; i += LANES) {
        vf v = v_load(x + i);
        sums[0] = v_fma(v, v, sums[0]);
    }
    return v_sum(v_add(v_add(sums[0], sums[2]), v_add(sums[1], sums[3])));
}

static ST_TARGET void rms_norm(const float *x, const float *weight, float eps, float factor, int64_t count,
                               float *out) {
    const vf inverse = v_all(factor / sqrtf(sum_of_squares(x, count) / (float)count + eps));
    for (int64_t i = 0; i < count; i += LANES) {
        vf normed = v_mul(v_load(x + i), inverse);
        v_store(out + i, weight != NULL ? v_mul(normed, v_load(weight + i)) : normed);
    }
}

static ST_TARGET void silu_mul_rows(const float *gate, const float *x, int64_t count, float *out) {
    for (int64_t i = 0; i < count; i += LANES) v_store(out + i, v_mul(v_silu(v_load(gate + i)), v_load(x + i)));
}

static ST_TARGET void sigmoid_mul(const float *gate, int64_t count, float *x) {
    for (int64_t i = 0; i < count; i += LANES) v_store(x + i, v_mul(v_load(x + i), v_sigmoid(v_load(gate + i))));
}

static ST_TARGET void add(const float *a, int64_t count, float *x) {
    for (int64_t i = 0; i < count; i += LANES) v_store(x + i, v_add(v_load(x + i), v_load(a + i)));
}

static ST_TARGET void scale(float factor, int64_t count, float *x) {
    const vf factors = v_all(factor);
    for (int64_t i = 0; i < count; i += LANES) v_store(x + i, v_mul(v_load(x + i), factors));
}

static ST_TARGET void combine(const float *rows, const float *weights, int64_t num_rows, int64_t count,
                              const float *last, float *x) {
    for (int64_t i = 0; i < count; i += LANES) {
        vf sum = v_mul(v_load(rows + i), v_all(weights[0]));
        for (int64_t row = 1; row < num_rows; row++) {
            sum = v_add(sum, v_mul(v_load(rows + row * count + i), v_all(weights[row])));
        }
        if (last != NULL) sum = v_add(sum, v_load(last + i));
        v_store(x + i, v_add(v_load(x + i), sum));
    }
}

/* half may be any number: one multiplication and one sum an element, nothing is added up. */
static ST_TARGET void rotate(const float *table, int64_t half, float *x) {
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * table[i] - b * table[half + i];
        x[i + half] = a * table[half + i] + b * table[i];
    }
}

/* ---- Sixteen-bit numbers, rounded to nearest even ---- */

ST_INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ST_INLINE uint16_t to_bf16(float x) {
    const uint32_t bits = bits_of(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

ST_INLINE uint16_t to_f16(float x) {
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    if (size < 0x38800000) { /* subnormal: adding 0.5 rounds to multiples of 2^-24 and leaves them in the low bits */
        return (uint16_t)(sign | (bits_of(st_from_bits(size) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

static ST_TARGET void store(const float *x, int64_t count, int type, void *row) {
    uint16_t *halves = row;
    if (type == ST_F32) memcpy(row, x, (size_t)count * sizeof *x);
    for (int64_t i = 0; i < count && type == ST_BF16; i++) halves[i] = to_bf16(x[i]);
    for (int64_t i = 0; i < count && type == ST_F16; i++) halves[i] = to_f16(x[i]);
}

#endif
