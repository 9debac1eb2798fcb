/* One row in fixed point times sixteen outputs, codes read once. A part of fixed_body.h. */

/* 64 (of nibbles, 128) inputs of the three planes, as the codes of a block come: of nibbles the evens of its 32s first
 * and their odds second. */
typedef struct {
    __m512i a[2], b[2], c[2];
} block_inputs;

ST_FN void plane_inputs(int bits, const int8_t *plane, __m512i *to) {
    to[0] = _mm512_loadu_si512(plane);
    if (bits != 4) return;
    const __m512i second = _mm512_loadu_si512(plane + 64);
    to[1] = _mm512_shuffle_i64x2(to[0], second, 0xdd);
    to[0] = _mm512_shuffle_i64x2(to[0], second, 0x88);
}

/* A block's codes of one output times the inputs. most: inputs that are there, a whole block or fewer. */
ST_FN void block_products(int bits, const uint8_t *codes, int most, const block_inputs *x, __m512i *upper,
                          __m512i *lower) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i first, second = zero;
    if (bits == 4) {
        const __m512i packed =
            most == 128 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - most / 2), codes);
        first = low_nibbles(packed), second = high_nibbles(packed);
    } else {
        first = codes_in_order(bits, codes, most);
    }
    __m512i top = _mm512_dpbusd_epi32(zero, first, x->a[0]);
    *lower = _mm512_dpbusd_epi32(zero, first, x->c[0]);
    if (bits == 4) {
        top = _mm512_dpbusd_epi32(top, second, x->a[1]);
        *lower = _mm512_dpbusd_epi32(*lower, second, x->c[1]);
    }
    *upper = _mm512_dpbusd_epi32(_mm512_slli_epi32(top, 8), first, x->b[0]);
    if (bits == 4) *upper = _mm512_dpbusd_epi32(*upper, second, x->b[1]);
}

typedef struct {
    __m512i upper[HELD_GROUPS], lower[HELD_GROUPS];
} held_sums;

/* The sums of quarters of some blocks, of four times four outputs. */
typedef struct {
    __m512i upper[HELD_BLOCKS][4], lower[HELD_BLOCKS][4];
} held_quarters;

ST_FN void four_products(int bits, const uint8_t *const *codes, int64_t at, int most, const block_inputs *x, int q,
                         __m512i (*upper_quarters)[4], __m512i (*lower_quarters)[4]) {
    __m512i upper[4], lower[4];
    for (int i = 0; i < 4; i++) block_products(bits, codes[i] + at, most, x, &upper[i], &lower[i]);
    (*upper_quarters)[q] = quarter_sums(upper), (*lower_quarters)[q] = quarter_sums(lower);
}

/* Four outputs' codes, walked from one end to the other. They lie one after another, and what is fetched is one stream:
 * the next tile's codes, `ahead` of this one's, into the second level. Fetching less far, or into the first, leaves a
 * third of the memory's speed unused. */
ST_FN void four_outputs(int bits, const uint8_t *const *codes, int64_t from, int64_t inputs, int64_t ahead,
                        const block_inputs *x, int q, held_quarters *to) {
    const int block = bits == 4 ? 128 : 64, line = block * bits / 8;
    const uint8_t *fetch = codes[0] + 4 * from + ahead;
    int64_t b = 0;
    for (; b < inputs / block; b++) {
        for (int i = 0; i < 4; i++, fetch += line) __builtin_prefetch(fetch, 0, 2);
        four_products(bits, codes, from + b * line, block, &x[b], q, &to->upper[b], &to->lower[b]);
    }
    const int left = (int)(inputs - b * block);
    if (left > 0) four_products(bits, codes, from + b * line, left, &x[b], q, &to->upper[b], &to->lower[b]);
}

/* The sums of groups [first, first + count) of sixteen outputs; `wide`: quarters of a block that a group has. */
ST_FN void held_groups(int bits, int wide, const st_matrix *w, const uint8_t *const *codes, const st_fixed *x,
                       int64_t first, int64_t count, held_sums *held) {
    const int64_t block = bits == 4 ? 128 : 64, begin = first * w->group, end = begin + count * w->group;
    const int in_block = wide < 4 ? 4 / wide : 1;
    const int64_t ahead = codes_ahead(bits, w, OUTPUTS);
    held_quarters quarters;
    int64_t at = 0;
    for (int64_t k = begin; k < end; k += HELD_BLOCKS * block) {
        const int64_t inputs = end - k < HELD_BLOCKS * block ? end - k : HELD_BLOCKS * block;
        const int64_t blocks = (inputs + block - 1) / block;
        block_inputs in[HELD_BLOCKS];
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t from = k + b * block;
            plane_inputs(bits, x->a + from, in[b].a), plane_inputs(bits, x->b + from, in[b].b);
            plane_inputs(bits, x->c + from, in[b].c);
        }
        for (int q = 0; q < 4; q++) {
            four_outputs(bits, codes + 4 * q, k * bits / 8, inputs, ahead, in, q, &quarters);
        }
        for (int64_t b = 0; b < blocks; b++) {
            __m512i upper[4], lower[4];
            group_sums(quarters.upper[b], wide < 4 ? wide : 4, upper);
            group_sums(quarters.lower[b], wide < 4 ? wide : 4, lower);
            if (wide == 8 && b % 2 == 1) { /* the second half of a group */
                held->upper[at - 1] = _mm512_add_epi32(held->upper[at - 1], upper[0]);
                held->lower[at - 1] = _mm512_add_epi32(held->lower[at - 1], lower[0]);
                continue;
            }
            for (int i = 0; i < in_block && at < count; i++, at++) {
                held->upper[at] = upper[i], held->lower[at] = lower[i];
            }
        }
    }
}

ST_FN void held_of_group(int bits, const st_matrix *w, const uint8_t *const *codes, const st_fixed *x, int64_t first,
                         int64_t count, held_sums *held) {
    const int quarter = bits == 4 ? 32 : 16;
    switch (w->group) {
        case 32: held_groups(bits, 32 / quarter, w, codes, x, first, count, held); break;
        case 64: held_groups(bits, 64 / quarter, w, codes, x, first, count, held); break;
        default: held_groups(bits, 128 / quarter, w, codes, x, first, count, held); break;
    }
}

/* `outs` outputs from n, at most sixteen, for row j. */
ST_FN void direct_fixed(int bits, const st_matrix *w, int64_t n, int64_t outs, const st_rows *rows, int64_t j,
                        float *y) {
    const st_fixed x = st_fixed_at(rows->fixed + j * rows->fixed_stride, w->cols, w->group);
    const int64_t groups = w->cols / w->group;
    const uint8_t *codes[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) codes[i] = row_of(bits, w, n + (i < outs ? i : 0));
    held_numbers numbers;
    held_sums held;
    vf sums = v_zero();
    for (int64_t first = 0; first < groups; first += HELD_GROUPS) {
        const int64_t count = groups - first < HELD_GROUPS ? groups - first : HELD_GROUPS;
        hold_numbers(w, n, outs, first, count, &numbers);
        held_of_group(bits, w, codes, &x, first, count, &held);
        for (int64_t g = 0; g < count; g++) {
            sums = add_group(sums, held.upper[g], held.lower[g], v_load(numbers.scales[g]),
                             v_load(numbers.biases[g]),
                             x.unit[first + g], x.sum[first + g]);
        }
    }
    put(w, n, outs, sums, y);
}

#define ST_DIRECT(bits)                                                                                          \
    static ST_TARGET __attribute__((noinline)) void direct_fixed_##bits(                                         \
        const st_matrix *w, int64_t n, int64_t outs, const st_rows *rows, int64_t j, float *y) {                 \
        direct_fixed(bits, w, n, outs, rows, j, y);                                                              \
    }
ST_DIRECT(2)
ST_DIRECT(3)
ST_DIRECT(4)
ST_DIRECT(5)
ST_DIRECT(6)
ST_DIRECT(8)
#undef ST_DIRECT

typedef void (*direct_function)(const st_matrix *, int64_t n, int64_t outs, const st_rows *, int64_t j, float *y);
static const direct_function direct_of[] = {
    [2] = direct_fixed_2, [3] = direct_fixed_3, [4] = direct_fixed_4,
    [5] = direct_fixed_5, [6] = direct_fixed_6, [8] = direct_fixed_8,
};
