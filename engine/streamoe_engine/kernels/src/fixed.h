/* Inputs in fixed point: how codes are multiplied by integers and lose nothing that float32 keeps.
 *
 * A group of inputs has one unit u, a power of two, chosen by the largest of them: every input is q * u with
 * |q| < 127.5 * 2^16, rounded once, by 2^-23 of the largest at most: float32 itself rounds every product and sum by up
 * to 2^-24 of it. q = 2^16 a + 2^8 b + c, bytes of -128 to 127. For a group of codes
 *     A = sum of code * (2^8 a + b)    C = sum of code * c      (integers, exact in 32 bits)
 *     y = y + (scale * u) * fma(A, 2^8, C)                       (each of both lines one fma)
 *     y = y + bias * (u * sum of q)
 * group after group. Integers are the same in any order: threads, rows and tiles of matrix units change no bit.
 * A group that holds NaN or infinity has u = NaN.
 *
 * A row: three planes of bytes (a, b, c), each padded with zeros to ST_PAD inputs, then u and u * sum(q) of each group.
 * Within a plane, every 32 inputs of a matrix of nibbles are its 16 even and then its 16 odd ones: as codes of 4 bits
 * come apart. Others are in their order. */
#ifndef STREAMOE_FIXED_H
#define STREAMOE_FIXED_H

#include <stdint.h>

enum { ST_PAD = 128 };

static inline int64_t st_fixed_pad(int64_t cols) { return (cols + ST_PAD - 1) / ST_PAD * ST_PAD; }

static inline int64_t st_fixed_stride(int64_t cols, int group) {
    return (3 * st_fixed_pad(cols) + cols / group * 2 * (int64_t)sizeof(float) + 63) / 64 * 64;
}

typedef struct {
    const int8_t *a, *b, *c;
    const float *unit, *sum; /* of each group */
} st_fixed;

static inline st_fixed st_fixed_at(const uint8_t *row, int64_t cols, int group) {
    const int64_t pad = st_fixed_pad(cols);
    const float *numbers = (const float *)(const void *)(row + 3 * pad);
    const int8_t *planes = (const int8_t *)row;
    return (st_fixed){planes, planes + pad, planes + 2 * pad, numbers, numbers + cols / group};
}

#endif
