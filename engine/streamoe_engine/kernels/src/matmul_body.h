/* Rows times a quantised matrix, over the vectors of a vec_*.h.
 *
 * Owns the order of sums: for one row and one output, lane l adds weight[k] * x[k] for k = l, l + LANES, ... in that
 * order into one accumulator, and v_sum adds the lanes. Both ways below keep it: `direct` unpacks codes in registers
 * for a few rows (decode); `unpacked` stores a panel of float32 weights that stays in the first-level cache while many
 * rows pass (prefill), and puts accumulators aside, unrounded, between panels.
 */
#include "isa.h"

enum {
    DIRECT_N = 4,       /* outputs that `direct` takes at once: enough chains of sums to hide their latency */
    SCALES = 128,       /* groups whose scales are widened at once */
    PANEL_K = 1024,     /* inputs of a panel: 32 KiB with 8 outputs, 16 with 4 */
    BLOCK_M = 24 * TILE_M, /* rows that pass one panel: with them, PANEL_K inputs stay in the second-level cache */
};

ST_FN const uint8_t *row_of(int bits, const st_matrix *w, int64_t n) {
    return (const uint8_t *)w->weight + n * (w->cols * bits / 8);
}

/* The scales and biases of `count` groups of output n from group `first`. */
ST_FN void widen_group(const st_matrix *w, int64_t n, int64_t first, int64_t count, float *scales, float *biases) {
    int64_t at = n * (w->cols / w->group) + first;
    st_widen(scales, w->scales, w->scale_type, at, count);
    st_widen(biases, w->biases, w->scale_type, at, count);
}

/* `outs` outputs from n for `rows` rows: both known when compiling. */
ST_FN void direct(int bits, int type, int outs, int rows, const st_matrix *w, int64_t n, const float *x,
                  int64_t x_stride, float *y, int64_t y_stride) {
    float scales[DIRECT_N][SCALES], biases[DIRECT_N][SCALES];
    const uint8_t *codes[DIRECT_N];
    vf sums[DIRECT_N][DIRECT_M];
    for (int i = 0; i < outs; i++) {
        codes[i] = row_of(bits, w, n + i);
        for (int j = 0; j < rows; j++) sums[i][j] = v_zero();
    }
    const int64_t groups = w->cols / w->group;
    for (int64_t first = 0; first < groups; first += SCALES) {
        const int64_t count = groups - first < SCALES ? groups - first : SCALES;
        for (int i = 0; i < outs && bits < 16; i++) widen_group(w, n + i, first, count, scales[i], biases[i]);
        for (int64_t g = 0; g < count; g++) {
            vgroup group[DIRECT_N] = {0};
            for (int i = 0; i < outs && bits < 16; i++) group[i] = v_group(bits, &scales[i][g], &biases[i][g]);
            const int64_t end = (first + g + 1) * w->group;
            for (int64_t k = end - w->group; k < end; k += LANES) {
                vf in[DIRECT_M];
                for (int j = 0; j < rows; j++) in[j] = v_load(x + j * x_stride + k);
                for (int i = 0; i < outs; i++) {
                    vf weights = v_weights(bits, type, group[i], codes[i], k);
                    for (int j = 0; j < rows; j++) sums[i][j] = v_fma(weights, in[j], sums[i][j]);
                }
            }
        }
    }
    for (int i = 0; i < outs; i++) {
        const float bias = w->bias != NULL ? w->bias[n + i] : 0.0f;
        for (int j = 0; j < rows; j++) {
            const float sum = v_sum(sums[i][j]);
            y[j * y_stride + i] = w->bias != NULL ? sum + bias : sum;
        }
    }
}

/* Weights of output n, inputs [k0, k0 + count), into column `i` of a panel of vectors [count / LANES][TILE_N]. */
ST_FN void unpack_row(int bits, int type, const st_matrix *w, int64_t n, int64_t k0, int64_t count, float *panel,
                      int i) {
    float scales[PANEL_K / 32], biases[PANEL_K / 32];
    const uint8_t *codes = row_of(bits, w, n);
    const int64_t group_size = w->group;
    if (bits < 16) widen_group(w, n, k0 / group_size, count / group_size, scales, biases);
    float *to = panel + (int64_t)i * LANES;
    for (int64_t g = 0; g < count / group_size; g++) {
        vgroup group = {0};
        if (bits < 16) group = v_group(bits, &scales[g], &biases[g]);
        const int64_t end = k0 + (g + 1) * group_size;
        for (int64_t k = end - group_size; k < end; k += LANES, to += TILE_N * LANES) {
            v_store(to, v_weights(bits, type, group, codes, k));
        }
    }
}

/* `rows` rows of x past `steps` vectors of a panel, onto the accumulators sums[TILE_N * TILE_M]. */
ST_FN void pass(int rows, const float *panel, int64_t steps, const float *x, int64_t x_stride, vf *sums) {
    vf held[TILE_N][TILE_M];
    for (int i = 0; i < TILE_N; i++) {
        for (int j = 0; j < rows; j++) held[i][j] = sums[i * TILE_M + j];
    }
    for (int64_t s = 0; s < steps; s++, panel += TILE_N * LANES) {
        vf in[TILE_M];
        for (int j = 0; j < rows; j++) in[j] = v_load(x + j * x_stride + s * LANES);
        for (int i = 0; i < TILE_N; i++) {
            vf weights = v_load(panel + i * LANES);
            for (int j = 0; j < rows; j++) held[i][j] = v_fma(weights, in[j], held[i][j]);
        }
    }
    for (int i = 0; i < TILE_N; i++) {
        for (int j = 0; j < rows; j++) sums[i * TILE_M + j] = held[i][j];
    }
}

static ST_TARGET void pass_1(const float *panel, int64_t steps, const float *x, int64_t x_stride, vf *sums) {
    pass(1, panel, steps, x, x_stride, sums);
}

static ST_TARGET void pass_2(const float *panel, int64_t steps, const float *x, int64_t x_stride, vf *sums) {
    pass(2, panel, steps, x, x_stride, sums);
}

static ST_TARGET void pass_all(const float *panel, int64_t steps, const float *x, int64_t x_stride, vf *sums) {
    pass(TILE_M, panel, steps, x, x_stride, sums);
}

/* Adds up the accumulators of `rows` rows and `outs` outputs into y. */
ST_FN void finish(const vf *sums, int64_t rows, int64_t outs, const float *bias, float *y, int64_t y_stride) {
    for (int64_t j = 0; j < rows; j++) {
        float out[TILE_N];
        v_sums(out, sums + j, TILE_M);
        for (int64_t i = 0; i < outs; i++) y[j * y_stride + i] = bias != NULL ? out[i] + bias[i] : out[i];
    }
}

/* One width of codes: what `tile` needs of it. */
typedef struct {
    void (*direct_few)(const st_matrix *, int64_t n, int64_t outs, const float *x, int64_t rows, int64_t x_stride,
                       float *y, int64_t y_stride);
    void (*unpack)(const st_matrix *, int64_t n, int64_t outs, int64_t k0, int64_t count, float *panel);
} st_width;

#define ST_WIDTH(name, bits, type)                                                                                   \
    static ST_TARGET __attribute__((noinline)) void direct_##name(const st_matrix *w, int64_t n, int64_t outs,        \
                                                                  const float *x, int64_t rows, int64_t x_stride,     \
                                                                  float *y, int64_t y_stride) {                       \
        for (; outs >= DIRECT_N; outs -= DIRECT_N, n += DIRECT_N, y += DIRECT_N) {                                    \
            switch (rows) {                                                                                           \
                case 1: direct(bits, type, DIRECT_N, 1, w, n, x, x_stride, y, y_stride); break;                       \
                case 2: direct(bits, type, DIRECT_N, 2, w, n, x, x_stride, y, y_stride); break;                       \
                case 3: direct(bits, type, DIRECT_N, 3 < DIRECT_M ? 3 : DIRECT_M, w, n, x, x_stride, y, y_stride);    \
                    break;                                                                                            \
                default: direct(bits, type, DIRECT_N, DIRECT_M, w, n, x, x_stride, y, y_stride); break;               \
            }                                                                                                         \
        }                                                                                                             \
        for (; outs > 0; outs--, n++, y++) {                                                                          \
            for (int64_t j = 0; j < rows; j++) {                                                                      \
                direct(bits, type, 1, 1, w, n, x + j * x_stride, x_stride, y + j * y_stride, y_stride);               \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static ST_TARGET __attribute__((noinline)) void unpack_##name(const st_matrix *w, int64_t n, int64_t outs,        \
                                                                  int64_t k0, int64_t count, float *panel) {          \
        for (int i = 0; i < outs; i++) unpack_row(bits, type, w, n + i, k0, count, panel, i);                         \
    }
ST_WIDTH(2, 2, 0)
ST_WIDTH(3, 3, 0)
ST_WIDTH(4, 4, 0)
ST_WIDTH(5, 5, 0)
ST_WIDTH(6, 6, 0)
ST_WIDTH(8, 8, 0)
ST_WIDTH(bf16, 16, ST_BF16)
ST_WIDTH(f16, 16, ST_F16)
ST_WIDTH(f32, 32, ST_F32)
#undef ST_WIDTH

static const st_width *width_of(const st_matrix *w) {
#define ST_WIDTH(name) {direct_##name, unpack_##name}
    static const st_width widths[] = {ST_WIDTH(2), ST_WIDTH(3), ST_WIDTH(4),    ST_WIDTH(5),  ST_WIDTH(6),
                                      ST_WIDTH(8), ST_WIDTH(f32), ST_WIDTH(bf16), ST_WIDTH(f16)};
#undef ST_WIDTH
    if (w->bits <= 6) return &widths[w->bits - 2];
    if (w->bits == 8) return &widths[5];
    return &widths[6 + (w->bits == 16 ? w->scale_type : 0)];
}

/* Outputs [n, n + outs), at most TILE_N, for at most BLOCK_M rows. */
ST_FN void unpacked(const st_width *width, const st_matrix *w, int64_t n, int64_t outs, const float *x, int64_t rows,
                    int64_t x_stride, float *y, int64_t y_stride) {
    _Alignas(64) float panel[PANEL_K * TILE_N];
    vf sums[BLOCK_M * TILE_N];
    for (int64_t i = 0; i < (rows + TILE_M - 1) / TILE_M * TILE_M * TILE_N; i++) sums[i] = v_zero();
    if (outs < TILE_N) memset(panel, 0, sizeof panel);
    for (int64_t k = 0; k < w->cols; k += PANEL_K) {
        const int64_t count = w->cols - k < PANEL_K ? w->cols - k : PANEL_K;
        width->unpack(w, n, outs, k, count, panel);
        for (int64_t j = 0; j < rows; j += TILE_M) {
            vf *own = sums + j * TILE_N;
            const float *in = x + j * x_stride + k;
            if (rows - j >= TILE_M) {
                pass_all(panel, count / LANES, in, x_stride, own);
            } else if (rows - j == 2) {
                pass_2(panel, count / LANES, in, x_stride, own);
            } else {
                pass_1(panel, count / LANES, in, x_stride, own);
            }
        }
    }
    for (int64_t j = 0; j < rows; j += TILE_M) {
        const int64_t some = rows - j < TILE_M ? rows - j : TILE_M;
        finish(sums + j * TILE_N, some, outs, w->bias != NULL ? w->bias + n : NULL, y + j * y_stride, y_stride);
    }
}

static ST_TARGET void tile(const st_matrix *w, int64_t n0, int64_t n1, const float *x, int64_t m, int64_t x_stride,
                           float *y, int64_t y_stride) {
    const st_width *width = width_of(w);
    if (m <= DIRECT_M) {
        width->direct_few(w, n0, n1 - n0, x, m, x_stride, y, y_stride);
        return;
    }
    for (int64_t j = 0; j < m; j += BLOCK_M) {
        const int64_t rows = m - j < BLOCK_M ? m - j : BLOCK_M;
        for (int64_t n = n0; n < n1; n += TILE_N) {
            unpacked(width, w, n, n1 - n < TILE_N ? n1 - n : TILE_N, x + j * x_stride, rows, x_stride,
                     y + j * y_stride + (n - n0), y_stride);
        }
    }
}
