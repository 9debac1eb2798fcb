/* Softmax attention of a few queries over a cache, over the vectors of a vec_*.h.
 *
 * Owns the order of sums. A block of ST_KEY_BLOCK keys gives each query its own maximum, sum and weighted values,
 * computed from nothing; blocks are then merged in the order of their positions. A query's bits are the same whether
 * one core takes its blocks in turn or several cores share them, and whichever tokens pass a block together.
 */
#ifndef STREAMOE_ATTENTION_BODY_H
#define STREAMOE_ATTENTION_BODY_H

#include "norm_body.h"

enum {
    STRIP = 32,                             /* keys or values taken at once: 32 KiB at 256 dims */
    TILE_QUERIES = 2,                       /* with TILE_N keys: accumulators of a score tile */
    VALUE_QUERIES = LANES == 16 ? 4 : 2,    /* with VALUE_VECTORS: accumulators of a value tile */
    VALUE_VECTORS = 4,
};

typedef struct {
    float scores[ST_HEAD_GROUP * ST_KEY_BLOCK], values[ST_HEAD_GROUP * ST_MAX_HEAD_DIM];
    float maximum[ST_HEAD_GROUP], sum[ST_HEAD_GROUP];
    float widened[STRIP * ST_MAX_HEAD_DIM]; /* of 16-bit caches */
} block_result;

/* `count` rows of the cache from `first`, as float32. */
ST_FN const float *strip_of(const st_attention *a, const char *rows, int64_t first, int64_t count, float *widened) {
    if (a->cache_type == ST_F32) return (const float *)(const void *)rows + first * a->dim;
    const uint8_t *halves = (const uint8_t *)rows + 2 * first * a->dim;
    const vgroup none = {0};
    for (int64_t i = 0; i < count * a->dim; i += LANES) {
        v_store(widened + i, a->cache_type == ST_BF16 ? v_weights(16, ST_BF16, none, halves, i)
                                                      : v_weights(16, ST_F16, none, halves, i));
    }
    return widened;
}

/* scores[i][j] = query i . key j for TILE_N keys; `queries` is known when compiling. */
ST_FN void score_tile(int queries, const float *query, int64_t stride, const float *const *keys, int64_t dim,
                      float (*scores)[TILE_N]) {
    vf sums[TILE_QUERIES][TILE_N];
    for (int i = 0; i < queries; i++) {
        for (int j = 0; j < TILE_N; j++) sums[i][j] = v_zero();
    }
    for (int64_t c = 0; c < dim; c += LANES) {
        vf q[TILE_QUERIES];
        for (int i = 0; i < queries; i++) q[i] = v_load(query + i * stride + c);
        for (int j = 0; j < TILE_N; j++) {
            vf k = v_load(keys[j] + c);
            for (int i = 0; i < queries; i++) sums[i][j] = v_fma(q[i], k, sums[i][j]);
        }
    }
    for (int i = 0; i < queries; i++) v_sums(scores[i], sums[i], 1);
}

/* All heads' scores of `count` keys that lie one after the other. */
static ST_TARGET void score_strip(const st_attention *a, const float *query, int64_t heads, const float *keys,
                                  int64_t count, float *scores) {
    const int64_t stride = a->query_head_stride, dim = a->dim;
    for (int64_t key = 0; key < count; key += TILE_N) {
        const size_t width = (size_t)(count - key < TILE_N ? count - key : TILE_N) * sizeof *scores;
        const float *rows[TILE_N];
        float tile[TILE_QUERIES][TILE_N];
        for (int64_t j = 0; j < TILE_N; j++) rows[j] = keys + (key + j < count ? key + j : count - 1) * dim;
        int64_t head = 0;
        for (; head + TILE_QUERIES <= heads; head += TILE_QUERIES) {
            score_tile(TILE_QUERIES, query + head * stride, stride, rows, dim, tile);
            for (int i = 0; i < TILE_QUERIES; i++) memcpy(scores + (head + i) * ST_KEY_BLOCK + key, tile[i], width);
        }
        for (; head < heads; head++) {
            score_tile(1, query + head * stride, stride, rows, dim, tile);
            memcpy(scores + head * ST_KEY_BLOCK + key, tile[0], width);
        }
    }
}

/* Scores to e^(scaled score - maximum), and the maximum and the sum. */
static ST_TARGET void soften(float *scores, int64_t count, float factor, float *maximum, float *sum) {
    vf top = v_all(-INFINITY), total = v_zero();
    float lanes[LANES];
    for (int64_t i = count; i % LANES != 0; i++) scores[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += LANES) {
        vf scaled = v_mul(v_load(scores + i), v_all(factor));
        v_store(scores + i, scaled);
        top = v_max(top, scaled);
    }
    v_store(lanes, top);
    *maximum = lanes[0];
    for (int l = 1; l < LANES; l++) *maximum = *maximum > lanes[l] ? *maximum : lanes[l];
    for (int64_t i = 0; i < count; i += LANES) {
        vf weight = v_exp(v_sub(v_load(scores + i), v_all(*maximum)));
        v_store(scores + i, weight);
        total = v_add(total, weight); /* of a lane past the end e^-87, which a sum of at least 1 does not feel */
    }
    *sum = v_sum(total);
}

/* out[i] += weights[i][key] * values[key] over `count` keys in order; `queries` and `vectors` known when compiling. */
ST_FN void value_tile(int queries, int vectors, const float *weights, const float *values, int64_t count, int64_t dim,
                      float *out) {
    vf sums[VALUE_QUERIES][VALUE_VECTORS];
    for (int i = 0; i < queries; i++) {
        for (int j = 0; j < vectors; j++) sums[i][j] = v_load(out + i * dim + j * LANES);
    }
    for (int64_t key = 0; key < count; key++) {
        vf value[VALUE_VECTORS];
        for (int j = 0; j < vectors; j++) value[j] = v_load(values + key * dim + j * LANES);
        for (int i = 0; i < queries; i++) {
            vf weight = v_all(weights[i * ST_KEY_BLOCK + key]);
            for (int j = 0; j < vectors; j++) sums[i][j] = v_fma(weight, value[j], sums[i][j]);
        }
    }
    for (int i = 0; i < queries; i++) {
        for (int j = 0; j < vectors; j++) v_store(out + i * dim + j * LANES, sums[i][j]);
    }
}

ST_FN void value_tiles(int queries, const float *weights, const float *values, int64_t count, int64_t dim, float *out) {
    int64_t c = 0;
    for (; c + VALUE_VECTORS * LANES <= dim; c += VALUE_VECTORS * LANES) {
        value_tile(queries, VALUE_VECTORS, weights, values + c, count, dim, out + c);
    }
    for (; c < dim; c += LANES) value_tile(queries, 1, weights, values + c, count, dim, out + c);
}

static ST_TARGET void add_values(const float *weights, const float *values, int64_t count, int64_t dim, int64_t heads,
                                 float *out) {
    int64_t head = 0;
    for (; head + VALUE_QUERIES <= heads; head += VALUE_QUERIES) {
        value_tiles(VALUE_QUERIES, weights + head * ST_KEY_BLOCK, values, count, dim, out + head * dim);
    }
    for (; head < heads; head++) value_tiles(1, weights + head * ST_KEY_BLOCK, values, count, dim, out + head * dim);
}

/* One block's own result for some heads of one token. */
static ST_TARGET void attend_one(const st_attention *a, int64_t token, int64_t block, int64_t first_head,
                                 int64_t heads, block_result *r) {
    const int64_t first = block * ST_KEY_BLOCK, keys = a->position + token + 1 - first, dim = a->dim;
    const int64_t count = keys < ST_KEY_BLOCK ? keys : ST_KEY_BLOCK;
    const int64_t kv_head = first_head / (a->heads / a->kv_heads);
    const int64_t skip = kv_head * a->cache_head_stride * (a->cache_type == ST_F32 ? 4 : 2);
    const float *query = a->query + token * a->query_token_stride + first_head * a->query_head_stride;
    for (int64_t i = 0; i < count; i += STRIP) {
        const int64_t some = count - i < STRIP ? count - i : STRIP;
        const float *rows = strip_of(a, (const char *)a->keys + skip, first + i, some, r->widened);
        score_strip(a, query, heads, rows, some, r->scores + i);
    }
    for (int64_t i = 0; i < heads; i++) {
        soften(r->scores + i * ST_KEY_BLOCK, count, a->scale, &r->maximum[i], &r->sum[i]);
    }
    memset(r->values, 0, (size_t)(heads * dim) * sizeof *r->values);
    for (int64_t i = 0; i < count; i += STRIP) {
        const int64_t some = count - i < STRIP ? count - i : STRIP;
        const float *rows = strip_of(a, (const char *)a->values + skip, first + i, some, r->widened);
        add_values(r->scores + i, rows, some, dim, heads, r->values);
    }
}

ST_FN float exp_of(float x) {
    float lanes[LANES];
    v_store(lanes, v_exp(v_all(x)));
    return lanes[0];
}

/* Adds a block's result to that of the blocks before it. running: their maximum and sum. */
static ST_TARGET void merge(const float *values, float maximum, float sum, int64_t dim, int is_first, float *running,
                            float *out) {
    if (is_first) {
        memcpy(out, values, (size_t)dim * sizeof *out);
        running[0] = maximum, running[1] = sum;
        return;
    }
    const float top = running[0] > maximum ? running[0] : maximum;
    const float old = exp_of(running[0] - top), new = exp_of(maximum - top);
    for (int64_t c = 0; c < dim; c += LANES) {
        v_store(out + c, v_fma(v_load(out + c), v_all(old), v_mul(v_load(values + c), v_all(new))));
    }
    running[0] = top, running[1] = running[1] * old + sum * new;
}

/* Block by block over all tokens: a block comes from memory once for the whole run of tokens. */
static ST_TARGET void attend(const st_attention *a, int64_t begin, int64_t end, int64_t first_head, int64_t heads) {
    block_result r;
    const int64_t dim = a->dim, width = a->heads * dim, last_block = (a->position + end - 1) / ST_KEY_BLOCK;
    for (int64_t block = 0; block <= last_block; block++) {
        const int64_t reaching = block * ST_KEY_BLOCK - a->position;
        for (int64_t token = begin > reaching ? begin : reaching; token < end; token++) {
            attend_one(a, token, block, first_head, heads, &r);
            for (int64_t i = 0; i < heads; i++) {
                const int64_t head = first_head + i;
                merge(r.values + i * dim, r.maximum[i], r.sum[i], dim, block == 0,
                      a->running + 2 * (token * a->heads + head), a->out + token * width + head * dim);
            }
        }
    }
    for (int64_t token = begin; token < end; token++) {
        for (int64_t head = first_head; head < first_head + heads; head++) {
            scale(1.0f / a->running[2 * (token * a->heads + head) + 1], dim, a->out + token * width + head * dim);
        }
    }
}

static ST_TARGET void attend_block(const st_attention *a, int64_t block, int64_t first_head, int64_t heads) {
    block_result r;
    attend_one(a, 0, block, first_head, heads, &r);
    for (int64_t i = 0; i < heads; i++) {
        float *part = a->parts + (block * a->heads + first_head + i) * (a->dim + 2);
        memcpy(part, r.values + i * a->dim, (size_t)a->dim * sizeof *part);
        part[a->dim] = r.maximum[i], part[a->dim + 1] = r.sum[i];
    }
}

static ST_TARGET void merge_blocks(const st_attention *a, int64_t head) {
    float running[2], *out = a->out + head * a->dim;
    for (int64_t block = 0; block <= a->position / ST_KEY_BLOCK; block++) {
        const float *part = a->parts + (block * a->heads + head) * (a->dim + 2);
        merge(part, part[a->dim], part[a->dim + 1], a->dim, block == 0, running, out);
    }
    scale(1.0f / running[1], a->dim, out);
}

#endif
