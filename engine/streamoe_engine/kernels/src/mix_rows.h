/* What one core does to rows between the matrix products: norms, gates, attention over a cache, the gated delta rule.
 *
 * Owns: the table of these functions, compiled once per instruction set (rows_base.c, rows_avx2.c, rows_avx512.c from
 * norm_rows.h, attention_rows.h, gated_delta_rows.h), and the arguments they share with the files that divide the
 * work over cores (norm.c, attention.c, gated_delta.c). All activations are float32.
 * Exactness: each function walks its row in one order, fixed by the row's length.
 */
#ifndef ST_MIX_ROWS_H
#define ST_MIX_ROWS_H

#include <stdint.h>

/* Keys are taken in blocks counted from position 0, so that a query's result is fixed by its own keys alone. */
enum { ST_KEY_BLOCK = 256, ST_HEAD_GROUP = 8, ST_MAX_HEAD_DIM = 256, ST_CONV_TAPS = 4 };

enum { ST_KV_F32, ST_KV_BF16, ST_KV_F16 };

/* Tokens `position`, position + 1, ... over the cache that already holds their own keys and values. */
typedef struct {
    const float *query; /* head h of token t at query + t * query_token_stride + h * query_head_stride */
    int64_t query_token_stride, query_head_stride;
    const void *keys, *values; /* (kv_heads, context, dim) of kv_type, kv_head_stride elements from head to head */
    int64_t kv_head_stride, kv_type;
    int64_t tokens, position, heads, kv_heads, dim; /* dim: a multiple of 16 up to ST_MAX_HEAD_DIM */
    float scale;
    float *out; /* (tokens, heads * dim) */
    float *sums; /* (tokens, heads, 2): running maximum and sum of each query */
    float *partial; /* (blocks, heads, dim + 2): each block's own result, when one token is divided by blocks */
} st_attention;

/* Gated delta rule over `tokens` rows of q | k | v, one key head and its value heads at a time, all in place. */
typedef struct {
    int64_t tokens, key_heads, value_heads, key_dim, value_dim; /* dims of one head, multiples of 16 */
    float *mixed; /* (tokens, channels): projections in; the v part leaves as the normed, gated result */
    const float *gate; /* (tokens, value_heads * value_dim), before silu */
    const float *decay, *beta; /* (tokens, value_heads) */
    const float *conv_weight; /* (ST_CONV_TAPS, channels), oldest tap first */
    float *conv_state; /* (ST_CONV_TAPS - 1, channels), oldest first */
    float *state; /* (value_heads, value_dim, key_dim) */
    const float *norm_weight; /* (value_dim) */
    float norm_eps;
} st_gated_delta;

static inline int64_t st_gated_delta_channels(const st_gated_delta *d)
{
    return 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;
}

typedef struct {
    /* out = x / sqrt(mean(x^2) + eps) * factor [* weight]; out may be x; weight may be NULL */
    void (*rms_norm)(const float *x, const float *weight, float eps, float factor, int64_t count, float *out);
    void (*silu_mul)(const float *gate, const float *x, int64_t count, float *out);    /* silu(gate) * x */
    void (*sigmoid_mul)(const float *gate, int64_t count, float *x);                   /* x *= sigmoid(gate) */
    void (*scale)(float factor, int64_t count, float *x);                              /* x *= factor */
    void (*add)(const float *a, const float *b, int64_t count, float *out);            /* a + b */
    void (*sigmoid)(const float *x, int64_t count, float *out);
    void (*rotate)(float *x, const float *table, int64_t half); /* pairs (i, i + half); table: half cos, half sin */
    void (*store_kv)(const float *x, int64_t count, int64_t kv_type, void *row);
    /* Tokens begin..end of the query heads first_head..first_head + num_heads of one kv head, over all their keys. */
    void (*attend)(const st_attention *a, int64_t begin, int64_t end, int64_t first_head, int64_t num_heads);
    void (*attend_block)(const st_attention *a, int64_t block, int64_t first_head, int64_t num_heads);
    void (*merge_blocks)(const st_attention *a, int64_t head);
    void (*gated_delta)(const st_gated_delta *d, int64_t key_head);
} st_mix_rows;

/* The table of the instruction set in use. */
const st_mix_rows *st_rows(void);

extern const st_mix_rows st_rows_base;
#if defined(__x86_64__)
extern const st_mix_rows st_rows_avx2, st_rows_avx512;
#endif

#endif
