/* Softmax attention of a few queries over a cache, for the instruction set of the including file.
 *
 * A block of ST_KEY_BLOCK keys gives each query its own maximum, sum and weighted values, always computed from
 * nothing; blocks are then merged in the order of their positions. So a query's bits are the same whether its blocks
 * are taken one after the other or by several cores, and whichever queries share the pass over a block.
 */
#ifndef ST_ATTENTION_ROWS_H
#define ST_ATTENTION_ROWS_H

#include "norm_rows.h"

/* Keys or values taken at once: 32 KiB of floats at 256 dims, inside a first-level cache. */
enum { ST_STRIP = 32 };
/* Queries a tile: 16 accumulators fit the 32 registers of AVX-512, 4 those of the others. */
enum { ST_TILE_QUERIES = ST_PART_LANES == 16 ? 4 : 1 };

typedef struct {
    float scores[ST_HEAD_GROUP * ST_KEY_BLOCK];
    float values[ST_HEAD_GROUP * ST_MAX_HEAD_DIM];
    float maximum[ST_HEAD_GROUP], sum[ST_HEAD_GROUP];
    float strip[ST_STRIP * ST_MAX_HEAD_DIM]; /* used for 16-bit caches only */
} st_block;

ST_INLINE const float *strip_rows(const st_attention *a, const void *rows, int64_t first, int64_t count, float *strip)
{
    if (a->kv_type == ST_KV_F32)
        return (const float *)rows + first * a->dim;
    load_kv((const uint16_t *)rows + first * a->dim, count * a->dim, a->kv_type, strip);
    return strip;
}

/* scores[i][0..3] = query i . key 0..3 */
ST_INLINE void score_tile(const float *query, int64_t stride, const float *const *keys, int64_t dim, int num_queries,
                          float (*scores)[4])
{
    st_v16 sums[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < num_queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sums[i][j] = v16_of(0);
    for (int64_t c = 0; c < dim; c += 16) {
        const st_v16 k0 = v16_load(keys[0] + c), k1 = v16_load(keys[1] + c);
        const st_v16 k2 = v16_load(keys[2] + c), k3 = v16_load(keys[3] + c);
#pragma GCC unroll 4
        for (int i = 0; i < num_queries; i++) {
            const st_v16 q = v16_load(query + i * stride + c);
            sums[i][0] = v16_fma(q, k0, sums[i][0]);
            sums[i][1] = v16_fma(q, k1, sums[i][1]);
            sums[i][2] = v16_fma(q, k2, sums[i][2]);
            sums[i][3] = v16_fma(q, k3, sums[i][3]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < num_queries; i++)
        v16_sum4(sums[i][0], sums[i][1], sums[i][2], sums[i][3], scores[i]);
}

/* All heads' scores of `count` keys that lie one after the other. */
static void score_strip(const st_attention *a, const float *query, int64_t num_heads, const float *keys, int64_t count,
                        float *scores)
{
    const int64_t dim = a->dim, stride = a->query_head_stride;
    for (int64_t key = 0; key < count; key += 4) {
        const int64_t last = count - 1, width = count - key < 4 ? count - key : 4;
        const float *rows[4];
        float tile[4][4];
        for (int64_t j = 0; j < 4; j++)
            rows[j] = keys + (key + j < last ? key + j : last) * dim;
        int64_t head = 0;
        for (; head + ST_TILE_QUERIES <= num_heads; head += ST_TILE_QUERIES) {
            score_tile(query + head * stride, stride, rows, dim, ST_TILE_QUERIES, tile);
            for (int i = 0; i < ST_TILE_QUERIES; i++)
                memcpy(scores + (head + i) * ST_KEY_BLOCK + key, tile[i], (size_t)width * sizeof(float));
        }
        for (; head < num_heads; head++) {
            score_tile(query + head * stride, stride, rows, dim, 1, tile);
            memcpy(scores + head * ST_KEY_BLOCK + key, tile[0], (size_t)width * sizeof(float));
        }
    }
}

/* Scaled scores to e^(score - maximum), with the maximum and the sum. */
static void soften(float *scores, int64_t count, float scale, float *maximum, float *sum)
{
    const st_v16 factor = v16_of(scale);
    st_v16 top = v16_of(-INFINITY), total = v16_of(0);
    for (int64_t i = count; i % 16; i++)
        scores[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += 16) {
        const st_v16 scaled = v16_mul(v16_load(scores + i), factor);
        v16_store(scores + i, scaled);
        top = v16_max(top, scaled);
    }
    *maximum = v16_largest(top);
    const st_v16 highest = v16_of(*maximum);
    for (int64_t i = 0; i < count; i += 16) {
        const st_v16 weight = v16_exp(v16_sub(v16_load(scores + i), highest));
        v16_store(scores + i, weight);
        total = v16_add(total, weight);
    }
    *sum = v16_sum(total);
}

/* out[i] += weights[i][key] * value of key, over `count` keys in order; num_vectors * 16 dims. */
ST_INLINE void value_tile(const float *weights, const float *values, int64_t count, int64_t dim, int num_queries,
                          int num_vectors, float *out)
{
    st_v16 sums[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < num_queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            sums[i][j] = v16_load(out + i * dim + 16 * j);
    for (int64_t key = 0; key < count; key++) {
        st_v16 value[4];
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            value[j] = v16_load(values + key * dim + 16 * j);
#pragma GCC unroll 4
        for (int i = 0; i < num_queries; i++) {
            const st_v16 weight = v16_of(weights[i * ST_KEY_BLOCK + key]);
#pragma GCC unroll 4
            for (int j = 0; j < num_vectors; j++)
                sums[i][j] = v16_fma(weight, value[j], sums[i][j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < num_queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < num_vectors; j++)
            v16_store(out + i * dim + 16 * j, sums[i][j]);
}

ST_INLINE void value_tiles(const float *weights, const float *values, int64_t count, int64_t dim, int num_queries,
                           float *out)
{
    int64_t c = 0;
    for (; c + 64 <= dim; c += 64)
        value_tile(weights, values + c, count, dim, num_queries, 4, out + c);
    for (; c < dim; c += 16)
        value_tile(weights, values + c, count, dim, num_queries, 1, out + c);
}

static void add_values(const st_attention *a, const float *weights, const float *values, int64_t count,
                       int64_t num_heads, float *out)
{
    int64_t head = 0;
    for (; head + ST_TILE_QUERIES <= num_heads; head += ST_TILE_QUERIES)
        value_tiles(weights + head * ST_KEY_BLOCK, values, count, a->dim, ST_TILE_QUERIES, out + head * a->dim);
    for (; head < num_heads; head++)
        value_tiles(weights + head * ST_KEY_BLOCK, values, count, a->dim, 1, out + head * a->dim);
}

/* One block's own result for the heads of one token. */
static void block_result(const st_attention *a, int64_t token, int64_t block, int64_t first_head, int64_t num_heads,
                         st_block *b)
{
    const int64_t kv_head = first_head / (a->heads / a->kv_heads), first = block * ST_KEY_BLOCK;
    const int64_t keys = a->position + token + 1 - first, count = keys < ST_KEY_BLOCK ? keys : ST_KEY_BLOCK;
    const int64_t element_bytes = a->kv_type == ST_KV_F32 ? 4 : 2;
    const int64_t skip = kv_head * a->kv_head_stride * element_bytes;
    const void *stored_keys = (const char *)a->keys + skip, *stored_values = (const char *)a->values + skip;
    const float *query = a->query + token * a->query_token_stride + first_head * a->query_head_stride;

    for (int64_t i = 0; i < count; i += ST_STRIP) {
        const int64_t some = count - i < ST_STRIP ? count - i : ST_STRIP;
        const float *rows = strip_rows(a, stored_keys, first + i, some, b->strip);
        score_strip(a, query, num_heads, rows, some, b->scores + i);
    }
    for (int64_t head = 0; head < num_heads; head++)
        soften(b->scores + head * ST_KEY_BLOCK, count, a->scale, &b->maximum[head], &b->sum[head]);
    memset(b->values, 0, (size_t)(num_heads * a->dim) * sizeof(float));
    for (int64_t i = 0; i < count; i += ST_STRIP) {
        const int64_t some = count - i < ST_STRIP ? count - i : ST_STRIP;
        const float *rows = strip_rows(a, stored_values, first + i, some, b->strip);
        add_values(a, b->scores + i, rows, some, num_heads, b->values);
    }
}

/* Adds one block's result to what the earlier blocks gave; the first block starts it. running: maximum, sum. */
static void merge(float *out, float *running, const float *values, float maximum, float sum, int64_t dim, int is_first)
{
    if (is_first) {
        memcpy(out, values, (size_t)dim * sizeof(float));
        running[0] = maximum;
        running[1] = sum;
        return;
    }
    const float top = running[0] > maximum ? running[0] : maximum;
    const float old_part = one_exp(running[0] - top), new_part = one_exp(maximum - top);
    const st_v16 old_factor = v16_of(old_part), new_factor = v16_of(new_part);
    for (int64_t c = 0; c < dim; c += 16)
        v16_store(out + c, v16_fma(v16_load(out + c), old_factor, v16_mul(v16_load(values + c), new_factor)));
    running[0] = top;
    running[1] = running[1] * old_part + sum * new_part;
}

static void attend(const st_attention *a, int64_t begin, int64_t end, int64_t first_head, int64_t num_heads)
{
    st_block b;
    const int64_t dim = a->dim, width = a->heads * dim, blocks = (a->position + end - 1) / ST_KEY_BLOCK + 1;
    /* Block by block over all tokens: a block is read from memory once for the whole run of tokens. */
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t token = begin; token < end; token++) {
            if (a->position + token < block * ST_KEY_BLOCK)
                continue;
            block_result(a, token, block, first_head, num_heads, &b);
            for (int64_t i = 0; i < num_heads; i++)
                merge(a->out + token * width + (first_head + i) * dim, a->sums + (token * a->heads + first_head + i) * 2,
                      b.values + i * dim, b.maximum[i], b.sum[i], dim, block == 0);
        }
    for (int64_t token = begin; token < end; token++)
        for (int64_t head = first_head; head < first_head + num_heads; head++)
            scale_row(1.0f / a->sums[(token * a->heads + head) * 2 + 1], dim, a->out + token * width + head * dim);
}

static void attend_block(const st_attention *a, int64_t block, int64_t first_head, int64_t num_heads)
{
    st_block b;
    block_result(a, 0, block, first_head, num_heads, &b);
    for (int64_t i = 0; i < num_heads; i++) {
        float *partial = a->partial + (block * a->heads + first_head + i) * (a->dim + 2);
        memcpy(partial, b.values + i * a->dim, (size_t)a->dim * sizeof(float));
        partial[a->dim] = b.maximum[i];
        partial[a->dim + 1] = b.sum[i];
    }
}

static void merge_blocks(const st_attention *a, int64_t head)
{
    float running[2], *out = a->out + head * a->dim;
    const int64_t blocks = a->position / ST_KEY_BLOCK + 1;
    for (int64_t block = 0; block < blocks; block++) {
        const float *partial = a->partial + (block * a->heads + head) * (a->dim + 2);
        merge(out, running, partial, partial[a->dim], partial[a->dim + 1], a->dim, block == 0);
    }
    scale_row(1.0f / running[1], a->dim, out);
}

#endif
