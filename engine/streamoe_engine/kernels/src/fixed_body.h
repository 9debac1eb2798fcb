/* Rows in fixed point (fixed.h) times codes, over AVX-512. A part of matmul_body.h.
 *
 * Owns three ways with the same bits: `direct` reads codes once for one row, sixteen outputs at a time (decode);
 * a panel of codes turned so that a vector holds sixteen outputs is passed by many rows, by VNNI or by matrix tiles.
 */
#include "fixed.h"

enum {
    OUTPUTS = 16,        /* of a tile: a vector of sums */
    HELD_GROUPS = 32,    /* groups whose sums are held before they are scaled */
    HELD_BLOCKS = 8,     /* blocks of 64 bytes whose sums are held; even */
    UNIT = 64,           /* inputs of a panel */
    HELD_PANELS = 4,     /* panels made before rows pass them; even (measured) */
    PASS_ROWS = 4,       /* rows that pass a panel together */
    BLOCK_ROWS = 64,     /* rows whose sums are held while a tile's panels pass */
    FEW_ROWS = 3,        /* up to here `direct` is faster than turning codes (measured) */
};

/* Sixteen inputs of `q` as bytes of the three planes. */
ST_FN void split(__m512i q, int8_t *a, int8_t *b, int8_t *c) {
    _mm_storeu_si128((void *)c, _mm512_cvtepi32_epi8(q));
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x80)), 8);
    _mm_storeu_si128((void *)b, _mm512_cvtepi32_epi8(upper));
    const __m512i top = _mm512_srai_epi32(_mm512_add_epi32(upper, _mm512_set1_epi32(0x80)), 8);
    _mm_storeu_si128((void *)a, _mm512_cvtepi32_epi8(top));
}

/* The exponent, biased, of a group's largest magnitude, so that |q| stays below 127.49 * 2^16; 255 and more: NaN or
 * infinity is among them. */
ST_FN int32_t largest(const float *x, int group, int *is_finite) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int i = 0; i < group; i += LANES) {
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    }
    const int32_t bits = _mm512_reduce_max_epi32(most);
    *is_finite = bits < 0x7f800000;
    const int32_t exponent = (int32_t)(((uint32_t)bits + 0x10400) >> 23);
    return exponent > 27 ? exponent : 27;
}

static ST_TARGET void fix(const float *x, int64_t cols, int group, int is_nibbles, uint8_t *to) {
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    const int64_t pad = st_fixed_pad(cols), groups = cols / group;
    int8_t *a = (int8_t *)to, *b = a + pad, *c = b + pad;
    float *unit = (float *)(void *)(to + 3 * pad), *sum = unit + groups;
    for (int plane = 0; plane < 3; plane++) memset(a + plane * pad + cols, 0, (size_t)(pad - cols));
    for (int64_t g = 0; g < groups; g++) {
        int is_finite;
        const int32_t exponent = largest(x + g * group, group, &is_finite);
        const vf turn = v_all(st_from_bits((uint32_t)(276 - exponent) << 23));
        __m512i total = _mm512_setzero_si512();
        for (int64_t k = g * group; k < (g + 1) * group; k += 2 * LANES) {
            __m512i first = _mm512_cvtps_epi32(v_mul(v_load(x + k), turn));
            __m512i second = _mm512_cvtps_epi32(v_mul(v_load(x + k + LANES), turn));
            total = _mm512_add_epi32(total, _mm512_add_epi32(first, second));
            if (is_nibbles) {
                const __m512i even = _mm512_permutex2var_epi32(first, evens, second);
                second = _mm512_permutex2var_epi32(first, odds, second);
                first = even;
            }
            split(first, a + k, b + k, c + k);
            split(second, a + k + LANES, b + k + LANES, c + k + LANES);
        }
        unit[g] = is_finite ? st_from_bits((uint32_t)(exponent - 22) << 23) : st_from_bits(0x7fc00000);
        sum[g] = (float)_mm512_reduce_add_epi32(total) * unit[g];
    }
}

/* 64 codes of 2, 3, 5, 6 or 8 bits from `from`, in their order; nothing behind them is touched. `most`: inputs that
 * are there, 32 or 64. */
ST_FN __m512i codes_in_order(int bits, const uint8_t *from, int most) {
    const __mmask64 present = ~(__mmask64)0 >> (64 - most / 8 * bits);
    const __m512i packed = _mm512_maskz_loadu_epi8(present, from);
    if (bits == 8) return packed;
    /* Eight codes are `bits` bytes: each eighth of a vector is given its own, then its bits. */
    const __m512i at = _mm512_add_epi8(_mm512_set1_epi64(0x0706050403020100),
                                       _mm512_set_epi64(0x0101010101010101 * 7 * bits, 0x0101010101010101 * 6 * bits,
                                                        0x0101010101010101 * 5 * bits, 0x0101010101010101 * 4 * bits,
                                                        0x0101010101010101 * 3 * bits, 0x0101010101010101 * 2 * bits,
                                                        0x0101010101010101 * 1 * bits, 0));
    const __m512i shifts = _mm512_set1_epi64(0x0706050403020100 * bits);
    const __m512i spread = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(at, packed));
    return _mm512_and_si512(spread, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

ST_FN __m512i low_nibbles(__m512i packed) { return _mm512_and_si512(packed, _mm512_set1_epi8(15)); }
ST_FN __m512i high_nibbles(__m512i packed) { return low_nibbles(_mm512_srli_epi16(packed, 4)); }

/* In each quarter of the result: the sums of that quarter of v0, v1, v2, v3. */
ST_FN __m512i quarter_sums(const __m512i *v) {
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i second = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
}

/* Of sixteen outputs' quarters, four outputs to a vector: the sums over `wide` quarters (1, 2, 4) of all sixteen, one
 * vector for each group; 4 / wide of them. */
ST_FN void group_sums(const __m512i *u, int wide, __m512i *sums) {
    const __m512i even01 = _mm512_shuffle_i32x4(u[0], u[1], 0x88), odd01 = _mm512_shuffle_i32x4(u[0], u[1], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(u[2], u[3], 0x88), odd23 = _mm512_shuffle_i32x4(u[2], u[3], 0xdd);
    if (wide == 1) {
        sums[0] = _mm512_shuffle_i32x4(even01, even23, 0x88), sums[1] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
        sums[2] = _mm512_shuffle_i32x4(even01, even23, 0xdd), sums[3] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
        return;
    }
    const __m512i pair01 = _mm512_add_epi32(even01, odd01), pair23 = _mm512_add_epi32(even23, odd23);
    sums[0] = _mm512_shuffle_i32x4(pair01, pair23, 0x88), sums[1] = _mm512_shuffle_i32x4(pair01, pair23, 0xdd);
    if (wide == 4) sums[0] = _mm512_add_epi32(sums[0], sums[1]);
}

/* rows[i] = column i of sixteen rows of sixteen. */
ST_FN void turn(__m512i *rows) {
    __m512i t[16];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

/* `most` scales (or biases), at most sixteen, of type `type` from index `at`; the rest are zero. */
ST_FN __m512i sixteen(const void *from, int type, int64_t at, int64_t most) {
    const __mmask16 present = (__mmask16)(0xffff >> (most < 16 ? 16 - most : 0));
    if (type == ST_F32) return _mm512_maskz_loadu_epi32(present, (const float *)from + at);
    const __m256i halves = _mm256_maskz_loadu_epi16(present, (const uint16_t *)from + at);
    if (type == ST_F16) return _mm512_castps_si512(_mm512_cvtph_ps(halves));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

/* The scales and biases of some groups, each as [group][output]. */
typedef struct {
    float scales[HELD_GROUPS][OUTPUTS], biases[HELD_GROUPS][OUTPUTS];
} held_numbers;

/* Sixteen groups of `from`, `most` of them present, of `outs` outputs from n. */
ST_FN void turn_sixteen(const st_matrix *w, const void *from, int64_t n, int64_t outs, int64_t group, int64_t most,
                        __m512i *to) {
    const int64_t groups = w->cols / w->group;
    for (int64_t i = 0; i < 16; i++) {
        const int64_t at = (n + (i < outs ? i : 0)) * groups + group;
        __builtin_prefetch((const char *)from + (at + OUTPUTS * groups) * (w->scale_type == ST_F32 ? 4 : 2));
        to[i] = sixteen(from, w->scale_type, at, most);
    }
    turn(to);
}

/* The same of at most eight groups of scales, and behind them as many of biases: one turn for both. */
ST_FN void turn_eights(const st_matrix *w, int64_t n, int64_t outs, int64_t group, int64_t most, __m512i *to) {
    const int64_t groups = w->cols / w->group;
    for (int64_t i = 0; i < 16; i++) {
        const int64_t at = (n + (i < outs ? i : 0)) * groups + group, next = at + OUTPUTS * groups;
        __builtin_prefetch((const char *)w->scales + next * (w->scale_type == ST_F32 ? 4 : 2));
        __builtin_prefetch((const char *)w->biases + next * (w->scale_type == ST_F32 ? 4 : 2));
        const __m512i scales = sixteen(w->scales, w->scale_type, at, most);
        to[i] = _mm512_inserti64x4(scales, _mm512_castsi512_si256(sixteen(w->biases, w->scale_type, at, most)), 1);
    }
    turn(to);
}

/* Groups [first, first + count) of `outs` outputs from n. */
ST_FN void hold_numbers(const st_matrix *w, int64_t n, int64_t outs, int64_t first, int64_t count, held_numbers *to) {
    __m512i turned[16];
    int64_t g = 0;
    for (; count - g > 8; g += 16) {
        const int64_t most = count - g < 16 ? count - g : 16;
        turn_sixteen(w, w->scales, n, outs, first + g, most, turned);
        for (int64_t i = 0; i < most; i++) _mm512_storeu_si512(to->scales[g + i], turned[i]);
        turn_sixteen(w, w->biases, n, outs, first + g, most, turned);
        for (int64_t i = 0; i < most; i++) _mm512_storeu_si512(to->biases[g + i], turned[i]);
    }
    if (g >= count) return;
    turn_eights(w, n, outs, first + g, count - g, turned);
    for (int64_t i = 0; i < count - g; i++) {
        _mm512_storeu_si512(to->scales[g + i], turned[i]);
        _mm512_storeu_si512(to->biases[g + i], turned[8 + i]);
    }
}

/* sums + a group's share of sixteen outputs. */
ST_FN vf add_group(vf sums, __m512i upper, __m512i lower, vf scale, vf bias, float unit, float sum) {
    const vf product = v_fma(_mm512_cvtepi32_ps(upper), v_all(256.0f), _mm512_cvtepi32_ps(lower));
    sums = v_fma(v_mul(scale, v_all(unit)), product, sums);
    return v_fma(bias, v_all(sum), sums);
}

/* `outs` of sixteen sums into y, with their biases. */
ST_FN void put(const st_matrix *w, int64_t n, int64_t outs, vf sums, float *y) {
    const __mmask16 present = (__mmask16)(0xffff >> (16 - outs));
    if (w->bias != NULL) sums = v_add(sums, _mm512_maskz_loadu_ps(present, w->bias + n));
    _mm512_mask_storeu_ps(y, present, sums);
}

#include "fixed_direct.h"
#include "fixed_panel.h"

/* Outputs [n0, n1) of rows [first, first + m). */
static ST_TARGET void tile_fixed(const st_matrix *w, int64_t n0, int64_t n1, const st_rows *rows, int64_t first,
                                 int64_t m, float *y, int64_t y_stride) {
    for (int64_t n = n0; n < n1; n += OUTPUTS, y += OUTPUTS) {
        const int64_t outs = n1 - n < OUTPUTS ? n1 - n : OUTPUTS;
        if (m <= FEW_ROWS) {
            for (int64_t j = 0; j < m; j++) direct_of[w->bits](w, n, outs, rows, first + j, y + j * y_stride);
        } else {
            for (int64_t j = 0; j < m; j += BLOCK_ROWS) {
                const int64_t count = m - j < BLOCK_ROWS ? m - j : BLOCK_ROWS;
                panels_of[w->bits](w, n, outs, rows, first + j, count, y + j * y_stride, y_stride);
            }
        }
    }
}
