/* Owns a layer of softmax attention up to its routing: gated (qwen3_5, qwen3_next) or plain, q and k normed or not. */
#include "layer.h"

typedef struct {
    float *normed; /* the input's norm; later the output projection */
    float *query, *key, *value, *attended, *running, *parts;
} attention_scratch;

static attention_scratch carve(const st_attention_layer *layer, int64_t tokens, int64_t context, st_carver *carver) {
    attention_scratch scratch;
    scratch.normed = st_carve(carver, tokens * layer->width);
    scratch.query = st_carve(carver, tokens * layer->q.rows);
    scratch.key = st_carve(carver, tokens * layer->k.rows);
    scratch.value = st_carve(carver, tokens * layer->v.rows);
    scratch.attended = st_carve(carver, tokens * layer->heads * layer->dim);
    scratch.running = st_carve(carver, tokens * layer->heads * 2);
    scratch.parts = st_carve(carver, st_attention_parts(layer->heads, layer->dim, context));
    return scratch;
}

int64_t st_attention_layer_scratch(const st_attention_layer *layer, int64_t tokens, int64_t context) {
    st_carver carver = st_carver_of(NULL);
    carve(layer, tokens, context, &carver);
    return carver.used;
}

typedef struct {
    const st_mix_ops *mix;
    const st_attention_layer *layer;
    const st_sequence *sequence;
    const attention_scratch *scratch;
} attention_job;

/* Norms and rotates the heads of one token's queries or keys. */
static void turn_heads(const attention_job *job, const float *norm, int64_t heads, int64_t stride, int64_t token,
                       float *row) {
    const st_attention_layer *layer = job->layer;
    if (layer->qk_norm == ST_WIDTH_NORM) job->mix->rms_norm(row, norm, layer->norm_eps, 1.0f, heads * layer->dim, row);
    for (int64_t h = 0; h < heads; h++) {
        float *head = row + h * stride;
        if (layer->qk_norm == ST_HEAD_NORM) job->mix->rms_norm(head, norm, layer->norm_eps, 1.0f, layer->dim, head);
        job->mix->rotate(job->sequence->rope + token * 2 * layer->rope_half, layer->rope_half, head);
    }
}

static char *cache_row(const attention_job *job, void *cache, int64_t head, int64_t token) {
    const int64_t element_bytes = job->layer->cache_type == ST_F32 ? 4 : 2, at = job->sequence->position + token;
    return (char *)cache + (head * job->sequence->context + at) * job->layer->dim * element_bytes;
}

/* Tokens' queries made ready, their keys and values put into the cache. */
static void enter_tokens(void *context, int64_t begin, int64_t end) {
    const attention_job *job = context;
    const st_attention_layer *layer = job->layer;
    const int64_t dim = layer->dim;
    for (int64_t t = begin; t < end; t++) {
        float *query = job->scratch->query + t * layer->q.rows, *key = job->scratch->key + t * layer->k.rows;
        const float *value = job->scratch->value + t * layer->v.rows;
        turn_heads(job, layer->q_norm, layer->heads, layer->q.rows / layer->heads, t, query);
        turn_heads(job, layer->k_norm, layer->kv_heads, dim, t, key);
        for (int64_t h = 0; h < layer->kv_heads; h++) {
            job->mix->store(key + h * dim, dim, layer->cache_type, cache_row(job, job->sequence->keys, h, t));
            job->mix->store(value + h * dim, dim, layer->cache_type, cache_row(job, job->sequence->values, h, t));
        }
    }
}

static void gate_tokens(void *context, int64_t begin, int64_t end) {
    const attention_job *job = context;
    const int64_t heads = job->layer->heads, dim = job->layer->dim;
    for (int64_t at = begin * heads; at < end * heads; at++) {
        job->mix->sigmoid_mul(job->scratch->query + (2 * at + 1) * dim, dim, job->scratch->attended + at * dim);
    }
}

static void attend(st_pool *pool, const attention_job *job, int64_t tokens) {
    const st_attention_layer *layer = job->layer;
    const st_attention attention = {
        .query = job->scratch->query,
        .query_token_stride = layer->q.rows,
        .query_head_stride = layer->q.rows / layer->heads,
        .keys = job->sequence->keys,
        .values = job->sequence->values,
        .cache_head_stride = job->sequence->context * layer->dim,
        .tokens = tokens,
        .position = job->sequence->position,
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .dim = layer->dim,
        .cache_type = layer->cache_type,
        .scale = layer->scale,
        .out = job->scratch->attended,
        .running = job->scratch->running,
        .parts = job->scratch->parts,
    };
    st_attend(pool, &attention);
}

void st_attention_layer_run(st_pool *pool, const st_attention_layer *layer, const st_layer_io *io,
                            const st_sequence *sequence) {
    st_carver carver = st_carver_of(io->scratch);
    const attention_scratch scratch = carve(layer, io->tokens, sequence->position + io->tokens, &carver);
    attention_job job = {st_pool_mix(pool), layer, sequence, &scratch};
    const int64_t chunk = st_rows_per_chunk(layer->q.rows);
    st_rms_norm(pool, io->hidden, layer->input_norm, layer->norm_eps, io->tokens, layer->width, scratch.normed);
    const st_projection all[] = {{&layer->q, scratch.normed, layer->width, scratch.query},
                                 {&layer->k, scratch.normed, layer->width, scratch.key},
                                 {&layer->v, scratch.normed, layer->width, scratch.value}};
    st_project(pool, all, 3, io->tokens);
    st_parallel(pool, enter_tokens, &job, io->tokens, chunk);
    attend(pool, &job, io->tokens);
    if (layer->gated) st_parallel(pool, gate_tokens, &job, io->tokens, chunk);
    st_matmul(pool, &layer->out, scratch.attended, io->tokens, layer->out.cols, scratch.normed, layer->width);
    st_leave_layer(pool, &layer->routing, io, layer->norm_eps, layer->width, scratch.normed);
}
