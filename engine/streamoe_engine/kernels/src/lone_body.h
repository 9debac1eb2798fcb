/* A lone row times a matrix of 4 bits in groups of 64: what a decoded token spends its time on. A part of matmul_body.h,
 * for instruction sets whose vec_*.h has a way for it. The sums are those of `direct`, lane by lane.
 */
/* TILE_N outputs from n of 4 bits in groups of 64, for one row: `direct` with a group's inputs held in registers. */
static ST_TARGET __attribute__((noinline)) void lone(const st_matrix *w, int64_t n, const float *x, float *y) {
    enum { GROUP = 64, HELD = GROUP / LANES };
    float scales[SCALES], biases[SCALES];
    vf sums[TILE_N];
    for (int i = 0; i < TILE_N; i++) sums[i] = v_zero();
    const int64_t groups = w->cols / GROUP, row_bytes = w->cols / 2, tile_bytes = row_bytes * TILE_N;
    const int64_t ahead = (AHEAD_BYTES + tile_bytes - 1) / tile_bytes * tile_bytes;
    const uint8_t *codes = row_of(4, w, n);
    for (int64_t first = 0; first < groups; first += SCALES / TILE_N) {
        const int64_t count = groups - first < SCALES / TILE_N ? groups - first : SCALES / TILE_N;
        widen_inline(w, w->scales, n, TILE_N, first, count, scales);
        widen_inline(w, w->biases, n, TILE_N, first, count, biases);
        for (int64_t g = 0; g < count; g++, codes += GROUP / 2, x += GROUP) {
            vf in[HELD];
            for (int h = 0; h < HELD; h++) in[h] = v_lone_order(v_load(x + h * LANES));
            if (g % 2 == 0) { /* a cache line is two groups */
                for (int i = 0; i < TILE_N; i++) __builtin_prefetch(codes + i * row_bytes + ahead);
            }
            for (int i = 0; i < TILE_N; i++) {
                const vgroup group = v_group(4, &scales[i * count + g], &biases[i * count + g]);
                for (int h = 0; h < HELD; h++) {
                    const vf weights = v_lone_weights(group, codes + i * row_bytes + h * LANES / 2);
                    sums[i] = v_fma(weights, in[h], sums[i]);
                }
            }
        }
    }
    for (int i = 0; i < TILE_N; i++) sums[i] = v_lone_back(sums[i]);
    finish(sums, 1, TILE_N, w->bias ? w->bias + n : NULL, y);
}
