/* Many rows in fixed point times sixteen outputs, through panels of turned codes. A part of fixed_body.h.
 *
 * A panel: UNIT inputs (a group's, where it has fewer) of sixteen outputs, as vectors of four inputs of each output. */

typedef struct {
    _Alignas(64) __m512i fours[UNIT / 4];
} panel;

/* `count` codes (32 or 64) from `from` as bytes, in the order of the planes. */
ST_FN __m512i codes_of_unit(int bits, const uint8_t *from, int count) {
    if (bits != 4) return codes_in_order(bits, from, count);
    const __m256i packed = _mm256_maskz_loadu_epi8(~(__mmask32)0 >> (32 - count / 2), from);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i even = _mm256_and_si256(packed, nibble);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble);
    return _mm512_shuffle_i64x2(_mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1),
                                _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1), 0xd8);
}

ST_FN void make_panel(int bits, const st_matrix *w, int64_t n, int64_t outs, int64_t k, int count, panel *to) {
    const int64_t row_bytes = w->cols * bits / 8;
    for (int i = 0; i < OUTPUTS; i++) {
        const uint8_t *from = row_of(bits, w, n + (i < outs ? i : 0)) + k * bits / 8;
        __builtin_prefetch(from + OUTPUTS * row_bytes, 0, 2);
        to->fours[i] = codes_of_unit(bits, from, count);
    }
    turn(to->fours);
}

/* Rows that pass panels: `rows` of them from `row`; a vector of sums each. */
typedef struct {
    const uint8_t *row;
    int64_t stride, pad, rows, groups;
    int group;
    vf *sums;
} passing;

/* Groups [first, first + count) of sixteen outputs, turned. */
typedef struct {
    panel panels[HELD_PANELS];
    held_numbers numbers;
    int64_t first, count;
} held_panels;

/* `total` and row j's share of a held group, whose integer sums are known. */
ST_FN vf add_to_row(const passing *p, const held_panels *held, int64_t j, int64_t g, __m512i a, __m512i b, __m512i c,
                    vf total) {
    const float *unit = (const float *)(const void *)(p->row + j * p->stride + 3 * p->pad) + held->first + g;
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(a, 8), b);
    const vf scale = v_load(held->numbers.scales[g]), bias = v_load(held->numbers.biases[g]);
    return add_group(total, upper, c, scale, bias, *unit, unit[p->groups]);
}

#ifdef ST_HAS_TILES
#include "fixed_tiles.h"
#else
ST_FN void begin_passes(const passing *p) { (void)p; }
ST_FN void end_passes(void) {}

ST_FN __m512i four_inputs(const int8_t *plane) {
    int32_t four;
    memcpy(&four, plane, sizeof four);
    return _mm512_set1_epi32(four);
}

/* `count` rows from j past a held group. */
ST_FN void pass_rows(const passing *p, const held_panels *held, int count, int64_t j, int64_t g) {
    __m512i a[PASS_ROWS], b[PASS_ROWS], c[PASS_ROWS];
    for (int r = 0; r < count; r++) a[r] = b[r] = c[r] = _mm512_setzero_si512();
    const int8_t *plane = (const int8_t *)p->row + j * p->stride + (held->first + g) * p->group;
    const panel *panels = held->panels + (p->group > UNIT ? 2 * g : g);
    for (int k = 0; k < p->group; k += 4, plane += 4) {
        const __m512i codes = panels[k / UNIT].fours[k % UNIT / 4];
        for (int r = 0; r < count; r++) {
            const int8_t *own = plane + r * p->stride;
            a[r] = _mm512_dpbusd_epi32(a[r], codes, four_inputs(own));
            b[r] = _mm512_dpbusd_epi32(b[r], codes, four_inputs(own + p->pad));
            c[r] = _mm512_dpbusd_epi32(c[r], codes, four_inputs(own + 2 * p->pad));
        }
    }
    for (int r = 0; r < count; r++) p->sums[j + r] = add_to_row(p, held, j + r, g, a[r], b[r], c[r], p->sums[j + r]);
}

ST_FN void pass_panels(const passing *p, const held_panels *held) {
    int64_t j = 0;
    for (; j + PASS_ROWS <= p->rows; j += PASS_ROWS) {
        for (int64_t g = 0; g < held->count; g++) pass_rows(p, held, PASS_ROWS, j, g);
    }
    for (; j < p->rows; j++) {
        for (int64_t g = 0; g < held->count; g++) pass_rows(p, held, 1, j, g);
    }
}
#endif

/* Turns the groups from held->first, as many as are held at once. */
ST_FN void hold_panels(int bits, const st_matrix *w, int64_t n, int64_t outs, held_panels *held) {
    const int64_t groups = w->cols / w->group, left = groups - held->first;
    const int two = w->group > UNIT, unit = w->group < UNIT ? w->group : UNIT;
    const int64_t most = two ? HELD_PANELS / 2 : HELD_PANELS;
    held->count = left < most ? left : most;
    hold_numbers(w, n, outs, held->first, held->count, &held->numbers);
    for (int64_t i = 0; i < (two ? 2 * held->count : held->count); i++) {
        make_panel(bits, w, n, outs, held->first * w->group + i * unit, unit, &held->panels[i]);
    }
}

/* `outs` outputs from n, at most sixteen, for rows [first, first + m), at most BLOCK_ROWS. */
ST_FN void panels_fixed(int bits, const st_matrix *w, int64_t n, int64_t outs, const st_rows *rows, int64_t first,
                        int64_t m, float *y, int64_t y_stride) {
    vf sums[BLOCK_ROWS];
    held_panels held;
    held.first = 0;
    const passing p = {.row = rows->fixed + first * rows->fixed_stride,
                       .stride = rows->fixed_stride,
                       .pad = st_fixed_pad(w->cols),
                       .rows = m,
                       .groups = w->cols / w->group,
                       .group = w->group,
                       .sums = sums};
    for (int64_t j = 0; j < m; j++) sums[j] = v_zero();
    begin_passes(&p);
    for (; held.first < p.groups; held.first += held.count) {
        hold_panels(bits, w, n, outs, &held);
        pass_panels(&p, &held);
    }
    end_passes();
    for (int64_t j = 0; j < m; j++) put(w, n, outs, sums[j], y + j * y_stride);
}

#define ST_PANELS(bits)                                                                                            \
    static ST_TARGET __attribute__((noinline)) void panels_fixed_##bits(                                           \
        const st_matrix *w, int64_t n, int64_t outs, const st_rows *rows, int64_t first, int64_t m, float *y,      \
        int64_t y_stride) {                                                                                        \
        panels_fixed(bits, w, n, outs, rows, first, m, y, y_stride);                                               \
    }
ST_PANELS(2)
ST_PANELS(3)
ST_PANELS(4)
ST_PANELS(5)
ST_PANELS(6)
ST_PANELS(8)
#undef ST_PANELS

typedef void (*panels_function)(const st_matrix *, int64_t n, int64_t outs, const st_rows *, int64_t first, int64_t m,
                                float *y, int64_t y_stride);
static const panels_function panels_of[] = {
    [2] = panels_fixed_2, [3] = panels_fixed_3, [4] = panels_fixed_4,
    [5] = panels_fixed_5, [6] = panels_fixed_6, [8] = panels_fixed_8,
};
