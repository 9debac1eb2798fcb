/* The C boundary of whole layers: one call runs a layer from its input up to its routing.
 *
 *     input norm -> projections -> mix (gated delta rule, or attention) -> output projection -> residual
 *         -> norm -> router (and the next layer's router, as a guess)
 *
 * Owns the layouts. Refuses to know which expert is where: what the experts add to `after` is the caller's. Nothing
 * here allocates; scratch comes from the caller, as many bytes as the *_scratch functions say.
 * Exactness rule: bits do not depend on threads or on how a sequence is cut into calls. All activations are float32;
 * norm weights and the other small vectors are float32 too.
 */
#ifndef STREAMOE_LAYERS_H
#define STREAMOE_LAYERS_H

#include "streamoe_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ST_MAX_HEAD_DIM = 256, ST_CONV_TAPS = 4 };

/* ---- Parts of a layer ---- */

/* out = x / sqrt(mean(x^2) + eps) * weight for each of `rows` rows of `width` (a multiple of 16). out may be x. */
ST_API void st_rms_norm(st_pool *, const float *x, const float *weight, float eps, int64_t rows, int64_t width,
                        float *out);

/* Rotation angles of one token: half cosines, then half sines of position * base^(-i / half), i in [0, half), computed
 * in double. table (tokens, 2 * half); positions[t] may be any number, so that image tokens have their own. */
ST_API void st_rope_table(const int32_t *positions, int64_t tokens, int64_t half, double base, float *table);

/* Causal attention of tokens at position, position + 1, ... over a cache that already holds their keys and values. */
typedef struct {
    const float *query; /* head h of token t at query + t * query_token_stride + h * query_head_stride */
    int64_t query_token_stride, query_head_stride;
    const void *keys, *values; /* (kv_heads, context, dim); cache_head_stride elements from head to head */
    int64_t cache_head_stride;
    int64_t tokens, position, heads, kv_heads, dim; /* dim a multiple of 16, at most ST_MAX_HEAD_DIM */
    int32_t cache_type; /* ST_F32, ST_BF16, ST_F16 */
    float scale;
    float *out;     /* (tokens, heads * dim) */
    float *running; /* scratch (tokens, heads, 2) */
    float *parts;   /* scratch st_attention_parts floats, or NULL: then one token is not shared out by blocks of keys */
} st_attention;

ST_API int64_t st_attention_parts(int64_t heads, int64_t dim, int64_t context);
ST_API void st_attend(st_pool *, const st_attention *);

/* The gated delta rule of linear attention with its convolution and gated norm, over tokens in order. */
typedef struct {
    int64_t tokens, key_heads, value_heads;
    int64_t key_dim, value_dim; /* of a head: multiples of 16, at most ST_MAX_HEAD_DIM */
    float *mixed;               /* (tokens, width): q, k, v of all heads in; the result leaves in v's place */
    const float *gate;          /* (tokens, value_heads * value_dim) */
    const float *a, *b; /* (tokens, value_heads): decay exp(-exp(a_log) * softplus(a + dt_bias)), beta sigmoid(b) */
    const float *a_log, *dt_bias; /* (value_heads) */
    const float *conv_weight;     /* (ST_CONV_TAPS, width), oldest tap first */
    const float *norm_weight;     /* (value_dim) */
    float *conv_state;            /* (ST_CONV_TAPS - 1, width): the last projections, oldest first */
    float *state;                 /* (value_heads, value_dim, key_dim) */
    float norm_eps;
} st_gated_delta;

static inline int64_t st_gated_delta_width(const st_gated_delta *d) {
    return 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;
}

ST_API void st_gated_delta_run(st_pool *, const st_gated_delta *);

/* ---- Layers ---- */

/* The expert that every token passes: sigmoid(scale . x) * expert(x); scale.rows 0: it counts in full. */
typedef struct {
    st_expert expert;
    st_matrix scale; /* one output */
} st_shared_expert;

typedef struct {
    const float *norm, *next_norm;
    st_matrix router, next_router; /* rows 0: none */
} st_routing;

/* What a call reads and writes; all (tokens, ...) float32. */
typedef struct {
    int64_t tokens;
    const float *hidden;  /* (tokens, width) */
    float *after;         /* (tokens, width): hidden + the mix; may be hidden itself */
    float *expert_input;  /* (tokens, width): what the router and the experts see */
    float *router_logits; /* (tokens, router.rows) */
    float *guess_logits;  /* (tokens, next_router.rows), or NULL */
    void *scratch;
} st_layer_io;

typedef struct {
    int64_t width;
    const float *input_norm;
    st_routing routing;
    float norm_eps;
    int32_t interleaved; /* 1: qkv gives each key head's q, k, v and z, and b its b and a; z and a are unused */
    int64_t key_heads, value_heads, key_dim, value_dim;
    st_matrix qkv, z, b, a, out;
    const float *conv_weight, *norm_weight, *a_log, *dt_bias;
} st_gdn_layer;

ST_API int64_t st_gdn_layer_scratch(const st_gdn_layer *, int64_t tokens);
ST_API void st_gdn_layer_run(st_pool *, const st_gdn_layer *, const st_layer_io *, float *conv_state, float *state);

enum { ST_NO_NORM = 0, ST_HEAD_NORM = 1, ST_WIDTH_NORM = 2 }; /* of q and k: none, each head, all heads together */

typedef struct {
    int64_t width;
    const float *input_norm;
    st_routing routing;
    float norm_eps;
    int32_t gated;   /* 1: q gives each head's query, then its gate */
    int32_t qk_norm, cache_type;
    int64_t heads, kv_heads, dim, rope_half;
    float scale;
    int32_t reserved;
    st_matrix q, k, v, out;
    const float *q_norm, *k_norm;
} st_attention_layer;

/* Where a sequence stands: its cache has `context` rows a head, the first `position` of them filled. */
typedef struct {
    void *keys, *values;
    int64_t context, position;
    const float *rope; /* st_rope_table of the tokens */
} st_sequence;

/* Enough for calls of any number of tokens up to `tokens`. */
ST_API int64_t st_attention_layer_scratch(const st_attention_layer *, int64_t tokens, int64_t context);
ST_API void st_attention_layer_run(st_pool *, const st_attention_layer *, const st_layer_io *, const st_sequence *);

/* Size of struct `kind` (in the order st_layer_io, st_gdn_layer, st_attention_layer, st_sequence, st_shared_expert),
 * for bindings that mirror them. */
ST_API int64_t st_layer_struct_bytes(int kind);

ST_API int64_t st_shared_expert_scratch(const st_shared_expert *, int64_t tokens);
ST_API void st_shared_expert_run(st_pool *, const st_shared_expert *, int64_t tokens, const float *x, void *scratch,
                                 float *out);

/* Softmax routing: of each row of logits (tokens, experts; `stride` floats from row to row) the top_k highest, the
 * highest first, of equals the first: picks (tokens, top_k), and weights (tokens, top_k), their softmax over all
 * experts, or over the picks where `normalises`. Of NaN any experts are picked, each once. */
ST_API void st_route(st_pool *, const float *logits, int64_t stride, int64_t tokens, int64_t experts, int64_t top_k,
                     int normalises, int64_t *picks, float *weights);

/* One row x through the shared expert, into shared_y (width), and through `count` others (0 will do) as
 * st_expert_token, all shared out together. hidden: count * gate.rows + the shared expert's gate.rows floats. */
ST_API void st_expert_token_shared(st_pool *, const st_expert *, const uint64_t *records, const int64_t *places,
                                   int64_t count, const st_shared_expert *, const float *x, float *hidden, float *y,
                                   int64_t y_stride, float *shared_y);

/* hidden (width, a multiple of 16) += the products (picks, width) weighted and summed in their order, + shared (NULL:
 * none). Each product is rounded before it is added. */
ST_API void st_combine(st_pool *, const float *products, const float *weights, int64_t picks, int64_t width,
                       const float *shared, float *hidden);

#ifdef __cplusplus
}
#endif
#endif
