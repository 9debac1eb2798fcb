/* What one core does to rows between matrix products: norms, gates, attention over a cache, the gated delta rule.
 *
 * Owns the table of these functions, compiled once per instruction set from norm_body.h, attention_body.h and
 * gated_delta_body.h, and the limits they share with the files that divide their work over cores (norm.c,
 * attention.c, gated_delta.c).
 * Exactness rule: each function walks its row in one order, fixed by the row's length. Row lengths are multiples of
 * 16, so that every instruction set's vectors fill them.
 */
#ifndef STREAMOE_MIX_H
#define STREAMOE_MIX_H

#include "streamoe_layers.h"

enum {
    ST_KEY_BLOCK = 256,  /* keys softened together, counted from position 0: a query's bits are fixed by its own keys */
    ST_HEAD_GROUP = 8,   /* query heads that share one pass over their keys */
    ST_RUN_TOKENS = 16,  /* tokens that pass a state together: their q, k, v fit the first-level cache */
};

typedef struct {
    /* out = x / sqrt(mean(x^2) + eps) * factor (* weight, where there is one); out may be x */
    void (*rms_norm)(const float *x, const float *weight, float eps, float factor, int64_t count, float *out);
    /* out = silu(gate) * x; out may be either */
    void (*silu_mul)(const float *gate, const float *x, int64_t count, float *out);
    void (*sigmoid_mul)(const float *gate, int64_t count, float *x); /* x *= sigmoid(gate) */
    void (*add)(const float *a, int64_t count, float *x);            /* x += a */
    void (*scale)(float factor, int64_t count, float *x);            /* x *= factor */
    /* x += (the sum of rows[i] * weights[i], in their order, each product rounded) + last, where there is one */
    void (*combine)(const float *rows, const float *weights, int64_t num_rows, int64_t count, const float *last,
                    float *x);
    /* Turns the pairs (x[i], x[i + half]); table: half cosines, half sines */
    void (*rotate)(const float *table, int64_t half, float *x);
    void (*store)(const float *x, int64_t count, int type, void *row); /* as ST_F32, ST_BF16 or ST_F16 */
    /* Tokens [begin, end) of `heads` query heads that share a key head, over all their keys. */
    void (*attend)(const st_attention *, int64_t begin, int64_t end, int64_t first_head, int64_t heads);
    /* The only token over one block of keys, and the blocks' results put together. */
    void (*attend_block)(const st_attention *, int64_t block, int64_t first_head, int64_t heads);
    void (*merge_blocks)(const st_attention *, int64_t head);
    void (*gated_delta)(const st_gated_delta *, int64_t key_head);
} st_mix_ops;

/* NULL where the set is not compiled in. */
extern const st_mix_ops *const st_mix_portable, *const st_mix_avx2, *const st_mix_avx512, *const st_mix_neon;

const st_mix_ops *st_pool_mix(const st_pool *);

/* out (tokens, width) *= sigmoid of the scale's output for x, where the shared expert has a scale. weight: scratch,
 * one float a token. */
void st_weigh_shared(st_pool *, const st_shared_expert *, int64_t tokens, const float *x, float *weight, float *out);

/* Decay and beta of one value head for tokens [first, first + tokens), computed in double. */
void st_delta_gates(const st_gated_delta *, int64_t head, int64_t first, int64_t tokens, float *decay, float *beta);

/* Rows of `width` floats that make a chunk worth handing to another thread: 128 KiB, a few microseconds. */
static inline int64_t st_rows_per_chunk(int64_t width) { return width < 32768 ? 32768 / width : 1; }

#endif
