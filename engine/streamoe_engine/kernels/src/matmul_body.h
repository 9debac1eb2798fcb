/* Rows times a quantised matrix, over the vectors of a vec_*.h.
 *
 * Owns the order of sums: for one row and one output, lane l adds weight[k] * x[k] for k = l, l + LANES, ... in that
 * order into one accumulator, and v_sum adds the lanes. Both ways below keep it: `direct` unpacks codes in registers
 * for a few rows (decode); `unpacked` stores a panel of float32 weights that stays in the first-level cache while many
 * rows pass (prefill), and puts accumulators aside, unrounded, between panels.
 */
#include "isa.h"

/* A thread's stack holds a panel and its accumulators: 70 KiB at most. */
enum {
    SCALES = 1024,         /* scales widened at once, of all outputs together */
    AHEAD_BYTES = 4096,    /* how far ahead codes are prefetched at least: 27 GB/s on one thread, and 8 without */
    AHEAD_SCALES = 512,
    STEP = 32,             /* inputs of a turn of the inner loops: divides every group */
    PANEL_K = 1024,        /* inputs of a panel: 32 KiB with 8 outputs, 16 with 4 */
    BLOCK_M = 24 * TILE_M, /* rows that pass one panel: with them, PANEL_K inputs stay in the second-level cache */
};

ST_FN const uint8_t *row_of(int bits, const st_matrix *w, int64_t n) {
    return (const uint8_t *)w->weight + n * (w->cols * bits / 8);
}

/* How far ahead a tile of `outs` outputs prefetches its codes: whole tiles, AHEAD_BYTES or more. */
ST_FN int64_t codes_ahead(int bits, const st_matrix *w, int64_t outs) {
    const int64_t tile_bytes = w->cols * bits / 8 * outs;
    return (AHEAD_BYTES + tile_bytes - 1) / tile_bytes * tile_bytes;
}

/* Groups [first, first + count) of `outs` outputs from n, as to[output][group]. */
ST_FN void widen_inline(const st_matrix *w, const void *from, int64_t n, int outs, int64_t first, int64_t count,
                        float *to) {
    const int64_t groups = w->cols / w->group;
    __builtin_prefetch((const char *)from + (n * groups + first) * (w->scale_type == ST_F32 ? 4 : 2) + AHEAD_SCALES);
    if (count == groups) {
        st_widen(to, from, w->scale_type, n * groups, outs * groups);
        return;
    }
    for (int i = 0; i < outs; i++) st_widen(to + i * count, from, w->scale_type, (n + i) * groups + first, count);
}

/* The same for those who call it seldom: smaller code. */
static ST_TARGET __attribute__((noinline)) void widen_groups(const st_matrix *w, const void *from, int64_t n, int outs,
                                                             int64_t first, int64_t count, float *to) {
    widen_inline(w, from, n, outs, first, count, to);
}

/* The accumulators sums[output * stride] of one row, added up into y. */
ST_FN void finish(const vf *sums, int stride, int outs, const float *bias, float *y) {
    float out[TILE_N];
    if (outs == TILE_N) {
        v_sums(out, sums, stride);
    } else {
        for (int i = 0; i < outs; i++) out[i] = v_sum(sums[i * stride]);
    }
    for (int i = 0; i < outs; i++) y[i] = bias != NULL ? out[i] + bias[i] : out[i];
}

/* `outs` outputs from n for `rows` rows: both known when compiling, at most TILE_N and ST_DIRECT_M. */
ST_FN void direct(int bits, int type, int outs, int rows, const st_matrix *w, int64_t n, const float *x,
                  int64_t x_stride, float *y, int64_t y_stride) {
    float scales[SCALES], biases[SCALES];
    const uint8_t *codes[TILE_N];
    vf sums[TILE_N * ST_DIRECT_M];
    for (int i = 0; i < outs; i++) {
        codes[i] = row_of(bits, w, n + i);
        for (int j = 0; j < rows; j++) sums[i * rows + j] = v_zero();
    }
    const int64_t group_size = w->group, groups = w->cols / group_size;
    const int64_t ahead = codes_ahead(bits, w, outs);
    for (int64_t first = 0; first < groups; first += SCALES / outs) {
        const int64_t count = groups - first < SCALES / outs ? groups - first : SCALES / outs;
        if (bits < 16) {
            widen_groups(w, w->scales, n, outs, first, count, scales);
            widen_groups(w, w->biases, n, outs, first, count, biases);
        }
        for (int64_t g = 0; g < count; g++) {
            vgroup group[TILE_N] = {0};
            const int64_t start = (first + g) * group_size;
            for (int i = 0; i < outs; i++) {
                __builtin_prefetch(codes[i] + start * bits / 8 + ahead);
                if (bits < 16) group[i] = v_group(bits, &scales[i * count + g], &biases[i * count + g]);
            }
            for (int64_t k = start; k < start + group_size; k += LANES) {
                vf in[ST_DIRECT_M];
                for (int j = 0; j < rows; j++) in[j] = v_load(x + j * x_stride + k);
                for (int i = 0; i < outs; i++) {
                    vf weights = v_weights(bits, type, group[i], codes[i], (uint64_t)k);
                    for (int j = 0; j < rows; j++) sums[i * rows + j] = v_fma(weights, in[j], sums[i * rows + j]);
                }
            }
        }
    }
    for (int j = 0; j < rows; j++) finish(sums + j, rows, outs, w->bias ? w->bias + n : NULL, y + j * y_stride);
}

/* Weights of outputs [n, n + outs), inputs [k0, k0 + count), into a panel of vectors [count / LANES][TILE_N]. */
ST_FN void unpack(int bits, int type, const st_matrix *w, int64_t n, int outs, int64_t k0, int64_t count,
                  float *panel) {
    float scales[TILE_N * PANEL_K / 32], biases[TILE_N * PANEL_K / 32];
    const int64_t group_size = w->group, groups = count / group_size, row_bytes = w->cols * bits / 8;
    const uint8_t *codes = row_of(bits, w, n);
    if (bits < 16) {
        widen_groups(w, w->scales, n, outs, k0 / group_size, groups, scales);
        widen_groups(w, w->biases, n, outs, k0 / group_size, groups, biases);
    }
    for (int64_t g = 0; g < groups; g++, panel += group_size * TILE_N) {
        const int64_t start = k0 + g * group_size;
        for (int i = 0; i < outs; i++) {
            const uint8_t *row = codes + i * row_bytes;
            __builtin_prefetch(row + start * bits / 8 + TILE_N * row_bytes, 0, 2);
            vgroup group = {0};
            if (bits < 16) group = v_group(bits, &scales[i * groups + g], &biases[i * groups + g]);
            float *to = panel + i * LANES;
            for (int64_t k = start; k < start + group_size; k += STEP, to += STEP * TILE_N) {
                for (int v = 0; v < STEP; v += LANES) {
                    v_store(to + v * TILE_N, v_weights(bits, type, group, row, (uint64_t)(k + v)));
                }
            }
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
            const vf weights = v_keep(v_load(panel + i * LANES));
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

/* `outs` outputs from n, for one to ST_DIRECT_M rows. */
ST_FN void direct_rows(int bits, int type, int outs, int64_t rows, const st_matrix *w, int64_t n, const float *x,
                       int64_t x_stride, float *y, int64_t y_stride) {
    switch (rows) {
        case 1: direct(bits, type, outs, 1, w, n, x, x_stride, y, y_stride); break;
#if ST_DIRECT_M > 1
        case 2: direct(bits, type, outs, 2, w, n, x, x_stride, y, y_stride); break;
#endif
#if ST_DIRECT_M > 2
        case 3: direct(bits, type, outs, 3, w, n, x, x_stride, y, y_stride); break;
        default: direct(bits, type, outs, 4, w, n, x, x_stride, y, y_stride); break;
#endif
    }
}

/* Outputs [n, n + outs) for a few rows: eight outputs at once where their codes fit AHEAD_BYTES, else four. */
ST_FN void direct_outputs(int bits, int type, const st_matrix *w, int64_t n, int64_t outs, const float *x, int64_t m,
                          int64_t x_stride, float *y, int64_t y_stride) {
    const int short_rows = w->cols * bits / 8 * TILE_N <= AHEAD_BYTES;
    for (; m == 1 && short_rows && outs >= TILE_N; outs -= TILE_N, n += TILE_N, y += TILE_N) {
        direct(bits, type, TILE_N, 1, w, n, x, x_stride, y, y_stride);
    }
    for (; outs >= 4; outs -= 4, n += 4, y += 4) {
        for (int64_t j = 0; j < m; j += ST_DIRECT_M) {
            const int64_t rows = m - j < ST_DIRECT_M ? m - j : ST_DIRECT_M;
            direct_rows(bits, type, 4, rows, w, n, x + j * x_stride, x_stride, y + j * y_stride, y_stride);
        }
    }
    for (; outs > 0; outs--, n++, y++) {
        for (int64_t j = 0; j < m; j++) {
            direct(bits, type, 1, 1, w, n, x + j * x_stride, x_stride, y + j * y_stride, y_stride);
        }
    }
}

/* One way of packing weights: what `tile` needs of it. */
typedef struct {
    void (*direct)(const st_matrix *, int64_t n, int64_t outs, const float *x, int64_t m, int64_t x_stride, float *y,
                   int64_t y_stride);
    void (*unpack)(const st_matrix *, int64_t n, int64_t outs, int64_t k0, int64_t count, float *panel);
} st_packing;

#define ST_PACKING(name, bits, type)                                                                                  \
    static ST_TARGET void direct_##name(const st_matrix *w, int64_t n, int64_t outs, const float *x, int64_t m,       \
                                        int64_t x_stride, float *y, int64_t y_stride) {                               \
        direct_outputs(bits, type, w, n, outs, x, m, x_stride, y, y_stride);                                          \
    }                                                                                                                 \
    static ST_TARGET void unpack_##name(const st_matrix *w, int64_t n, int64_t outs, int64_t k0, int64_t count,       \
                                        float *panel) {                                                               \
        unpack(bits, type, w, n, (int)outs, k0, count, panel);                                                        \
    }
#ifndef ST_HAS_FIXED
ST_PACKING(2, 2, 0)
ST_PACKING(3, 3, 0)
ST_PACKING(4, 4, 0)
ST_PACKING(5, 5, 0)
ST_PACKING(6, 6, 0)
ST_PACKING(8, 8, 0)
#endif
ST_PACKING(f32, 32, ST_F32)
ST_PACKING(bf16, 16, ST_BF16)
ST_PACKING(f16, 16, ST_F16)
#undef ST_PACKING

static const st_packing *packing_of(const st_matrix *w) {
#ifndef ST_HAS_FIXED
    static const st_packing codes[] = {
        [2] = {direct_2, unpack_2}, [3] = {direct_3, unpack_3}, [4] = {direct_4, unpack_4},
        [5] = {direct_5, unpack_5}, [6] = {direct_6, unpack_6}, [8] = {direct_8, unpack_8},
    };
    if (w->bits < 16) return &codes[w->bits];
#endif
    static const st_packing numbers[] = {
        [ST_F32] = {direct_f32, unpack_f32},
        [ST_BF16] = {direct_bf16, unpack_bf16},
        [ST_F16] = {direct_f16, unpack_f16},
    };
    return &numbers[w->scale_type];
}

/* Outputs [n, n + outs), at most TILE_N, for at most BLOCK_M rows. */
ST_FN void unpacked(const st_packing *packing, const st_matrix *w, int64_t n, int64_t outs, const float *x,
                    int64_t rows, int64_t x_stride, float *y, int64_t y_stride) {
    _Alignas(64) float panel[PANEL_K * TILE_N];
    vf sums[BLOCK_M * TILE_N];
    for (int64_t i = 0; i < (rows + TILE_M - 1) / TILE_M * TILE_M * TILE_N; i++) sums[i] = v_zero();
    if (outs < TILE_N) memset(panel, 0, sizeof panel);
    for (int64_t k = 0; k < w->cols; k += PANEL_K) {
        const int64_t count = w->cols - k < PANEL_K ? w->cols - k : PANEL_K;
        packing->unpack(w, n, outs, k, count, panel);
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
    for (int64_t j = 0; j < rows; j++) {
        finish(sums + j / TILE_M * TILE_M * TILE_N + j % TILE_M, TILE_M, (int)outs, w->bias ? w->bias + n : NULL,
               y + j * y_stride);
    }
}

static ST_TARGET void tile_floats(const st_matrix *w, int64_t n0, int64_t n1, const float *x, int64_t m,
                                  int64_t x_stride, float *y, int64_t y_stride) {
    const st_packing *packing = packing_of(w);
    if (m <= ST_DIRECT_MOST) {
        packing->direct(w, n0, n1 - n0, x, m, x_stride, y, y_stride);
        return;
    }
    for (int64_t j = 0; j < m; j += BLOCK_M) {
        const int64_t rows = m - j < BLOCK_M ? m - j : BLOCK_M;
        for (int64_t n = n0; n < n1; n += TILE_N) {
            unpacked(packing, w, n, n1 - n < TILE_N ? n1 - n : TILE_N, x + j * x_stride, rows, x_stride,
                     y + j * y_stride + (n - n0), y_stride);
        }
    }
}

#ifdef ST_HAS_FIXED
#include "fixed_body.h"
#endif

static ST_TARGET void tile(const st_matrix *w, int64_t n0, int64_t n1, const st_rows *rows, int64_t first, int64_t m,
                           float *y, int64_t y_stride) {
#ifdef ST_HAS_FIXED
    if (w->bits < 16) {
        tile_fixed(w, n0, n1, rows, first, m, y, y_stride);
        return;
    }
#endif
    tile_floats(w, n0, n1, rows->x + first * rows->x_stride, m, rows->x_stride, y, y_stride);
}
