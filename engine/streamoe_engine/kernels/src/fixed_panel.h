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

/* What passes a panel: `rows` rows from `row`, of inputs from k; sums[row]. */
typedef struct {
    const uint8_t *row;
    int64_t stride, pad, rows;
    vf *sums;
} passing;

/* A group's share for row j, its integer sums known. */
ST_FN void add_to_row(const passing *p, int64_t j, int64_t g, int64_t groups, __m512i a, __m512i b, __m512i c, vf scale,
                      vf bias) {
    const float *unit = (const float *)(const void *)(p->row + j * p->stride + 3 * p->pad);
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(a, 8), b);
    p->sums[j] = add_group(p->sums[j], upper, c, scale, bias, unit[g], unit[groups + g]);
}

#ifdef ST_HAS_TILES
#include "fixed_tiles.h"
#else
ST_FN __m512i four_inputs(const int8_t *plane) {
    int32_t four;
    memcpy(&four, plane, sizeof four);
    return _mm512_set1_epi32(four);
}

/* `count` rows from j past the panels of group g. */
ST_FN void pass_rows(const passing *p, int count, int64_t j, int64_t g, int64_t groups, const panel *panels, int group,
                     vf scale, vf bias) {
    __m512i a[PASS_ROWS], b[PASS_ROWS], c[PASS_ROWS];
    for (int r = 0; r < count; r++) a[r] = b[r] = c[r] = _mm512_setzero_si512();
    const int8_t *plane = (const int8_t *)p->row + j * p->stride + g * group;
    for (int k = 0; k < group; k += 4, plane += 4) {
        const __m512i codes = panels[k / UNIT].fours[k % UNIT / 4];
        for (int r = 0; r < count; r++) {
            const int8_t *own = plane + r * p->stride;
            a[r] = _mm512_dpbusd_epi32(a[r], codes, four_inputs(own));
            b[r] = _mm512_dpbusd_epi32(b[r], codes, four_inputs(own + p->pad));
            c[r] = _mm512_dpbusd_epi32(c[r], codes, four_inputs(own + 2 * p->pad));
        }
    }
    for (int r = 0; r < count; r++) add_to_row(p, j + r, g, groups, a[r], b[r], c[r], scale, bias);
}

ST_FN void begin_passes(const passing *p, int unit) { (void)p, (void)unit; }
ST_FN void end_passes(void) {}

ST_FN void pass_group(const passing *p, int64_t g, int64_t groups, const panel *panels, int group, vf scale, vf bias) {
    int64_t j = 0;
    for (; j + PASS_ROWS <= p->rows; j += PASS_ROWS) pass_rows(p, PASS_ROWS, j, g, groups, panels, group, scale, bias);
    for (; j < p->rows; j++) pass_rows(p, 1, j, g, groups, panels, group, scale, bias);
}
#endif

/* `outs` outputs from n, at most sixteen, for rows [first, first + m), at most BLOCK_ROWS. */
ST_FN void panels_fixed(int bits, const st_matrix *w, int64_t n, int64_t outs, const st_rows *rows, int64_t first,
                        int64_t m, float *y, int64_t y_stride) {
    const int64_t groups = w->cols / w->group;
    const int group = w->group, unit = group < UNIT ? group : UNIT;
    float scales[HELD_GROUPS][OUTPUTS], biases[HELD_GROUPS][OUTPUTS];
    vf sums[BLOCK_ROWS];
    panel panels[2];
    for (int64_t j = 0; j < m; j++) sums[j] = v_zero();
    const passing p = {rows->fixed + first * rows->fixed_stride, rows->fixed_stride, st_fixed_pad(w->cols), m, sums};
    begin_passes(&p, unit);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t held = g % HELD_GROUPS;
        if (held == 0) {
            const int64_t count = groups - g < HELD_GROUPS ? groups - g : HELD_GROUPS;
            columns(w, w->scales, n, outs, g, count, scales);
            columns(w, w->biases, n, outs, g, count, biases);
        }
        for (int k = 0; k < group; k += unit) {
            make_panel(bits, w, n, outs, g * group + k, unit, &panels[k / UNIT]);
        }
        pass_group(&p, g, groups, panels, group, v_load(scales[held]), v_load(biases[held]));
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
