/* Owns how stored numbers and packed codes become float32 and integers, for every instruction set. */
#ifndef STREAMOE_NUMBERS_H
#define STREAMOE_NUMBERS_H

#include <stdint.h>
#include <string.h>

#include "streamoe_kernels.h"

#define ST_INLINE static inline __attribute__((always_inline))

ST_INLINE float st_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ST_INLINE float st_from_bf16(uint16_t half) { return st_from_bits((uint32_t)half << 16); }

/* Exact, subnormals included: the exponent is moved by a multiplication. */
ST_INLINE float st_from_f16(uint16_t half) {
    float magnitude = st_from_bits((uint32_t)(half & 0x7fff) << 13) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    bits |= (uint32_t)(half & 0x8000) << 16;
    if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000; /* infinity and NaN */
    return st_from_bits(bits);
}

/* `count` numbers of an ST_F32, ST_BF16 or ST_F16 array from index `first`, as float32. */
ST_INLINE void st_widen(float *restrict to, const void *restrict from, int type, int64_t first, int64_t count) {
    if (type == ST_F32) {
        memcpy(to, (const float *)from + first, (size_t)count * sizeof *to);
        return;
    }
    const uint8_t *halves = (const uint8_t *)from + 2 * first;
    /* Two loops: of one for both types the compiler makes five times the instructions. */
    for (int64_t i = 0; type == ST_BF16 && i < count; i++) {
        uint16_t half;
        memcpy(&half, halves + 2 * i, sizeof half);
        to[i] = st_from_bf16(half);
    }
    for (int64_t i = 0; type != ST_BF16 && i < count; i++) {
        uint16_t half;
        memcpy(&half, halves + 2 * i, sizeof half);
        to[i] = st_from_f16(half);
    }
}

#define ST_PIECE(type, at) \
    do { \
        type piece; \
        memcpy(&piece, from + (at), sizeof piece); \
        value |= (uint64_t)piece << 8 * (at); \
    } while (0)

/* `bytes` (1 to 6 or 8, known when compiling) bytes as a little-endian number; nothing behind them is touched.
 * Put together from whole loads: copying an odd number of bytes through memory stalls, ten times slower. */
ST_INLINE uint64_t st_bytes(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    switch (bytes) {
        case 1: ST_PIECE(uint8_t, 0); break;
        case 2: ST_PIECE(uint16_t, 0); break;
        case 3: ST_PIECE(uint16_t, 0); ST_PIECE(uint8_t, 2); break;
        case 4: ST_PIECE(uint32_t, 0); break;
        case 5: ST_PIECE(uint32_t, 0); ST_PIECE(uint8_t, 4); break;
        case 6: ST_PIECE(uint32_t, 0); ST_PIECE(uint16_t, 4); break;
        default: ST_PIECE(uint64_t, 0); break;
    }
    return value;
}
#undef ST_PIECE

/* The four codes from index k (a multiple of 4) of a row, in the low 4 * bits bits; what is above is not theirs. */
ST_INLINE uint32_t st_four_codes(int bits, const uint8_t *row, uint64_t k) {
    if (bits % 2 == 0) return (uint32_t)st_bytes(row + k / 4 * (uint64_t)(bits / 2), bits / 2);
    return (uint32_t)(st_bytes(row + k / 8 * (uint64_t)bits, bits) >> (k / 4 % 2 * (uint64_t)(4 * bits)));
}

#endif
