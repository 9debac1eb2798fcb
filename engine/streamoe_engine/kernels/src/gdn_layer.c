/* Owns a layer of linear attention (GatedDeltaNet of qwen3_5 and qwen3_next) up to its routing. */
#include "layer.h"

#include <string.h>

typedef struct {
    float *normed; /* the input's norm; later the output projection */
    float *mixed, *gate, *a, *b;
    float *raw, *raw_ba; /* interleaved projections */
} gdn_scratch;

static int64_t mixed_width(const st_gdn_layer *layer) {
    return 2 * layer->key_heads * layer->key_dim + layer->value_heads * layer->value_dim;
}

static gdn_scratch carve(const st_gdn_layer *layer, int64_t tokens, st_carver *carver) {
    gdn_scratch scratch = {0};
    const int64_t gate_width = layer->value_heads * layer->value_dim;
    scratch.normed = st_carve(carver, tokens * layer->width);
    scratch.mixed = st_carve(carver, tokens * mixed_width(layer));
    scratch.gate = st_carve(carver, tokens * gate_width);
    scratch.a = st_carve(carver, tokens * layer->value_heads);
    scratch.b = st_carve(carver, tokens * layer->value_heads);
    if (layer->interleaved) {
        scratch.raw = st_carve(carver, tokens * (mixed_width(layer) + gate_width));
        scratch.raw_ba = st_carve(carver, tokens * 2 * layer->value_heads);
    }
    return scratch;
}

int64_t st_gdn_layer_scratch(const st_gdn_layer *layer, int64_t tokens) {
    st_carver carver = st_carver_of(NULL);
    carve(layer, tokens, &carver);
    return carver.used;
}

static const float *take(float *to, const float *from, int64_t count) {
    memcpy(to, from, (size_t)count * sizeof *to);
    return from + count;
}

/* One token's rows, ordered by key head, to rows ordered by kind. */
static void part_token(const st_gdn_layer *layer, const gdn_scratch *scratch, int64_t t) {
    const int64_t keys = layer->key_dim, heads = layer->value_heads / layer->key_heads;
    const int64_t values = heads * layer->value_dim;
    const int64_t all_keys = layer->key_heads * keys, all_values = layer->key_heads * values;
    const float *raw = scratch->raw + t * (mixed_width(layer) + all_values);
    const float *raw_ba = scratch->raw_ba + t * 2 * layer->value_heads;
    float *mixed = scratch->mixed + t * mixed_width(layer);
    for (int64_t h = 0; h < layer->key_heads; h++) {
        raw = take(mixed + h * keys, raw, keys);
        raw = take(mixed + all_keys + h * keys, raw, keys);
        raw = take(mixed + 2 * all_keys + h * values, raw, values);
        raw = take(scratch->gate + t * all_values + h * values, raw, values);
        raw_ba = take(scratch->b + t * layer->value_heads + h * heads, raw_ba, heads);
        raw_ba = take(scratch->a + t * layer->value_heads + h * heads, raw_ba, heads);
    }
}

typedef struct {
    const st_gdn_layer *layer;
    const gdn_scratch *scratch;
} part_job;

static void part_tokens(void *context, int64_t begin, int64_t end) {
    const part_job *job = context;
    for (int64_t t = begin; t < end; t++) part_token(job->layer, job->scratch, t);
}

static void project(st_pool *pool, const st_gdn_layer *layer, const gdn_scratch *scratch, int64_t tokens) {
    const float *x = scratch->normed;
    const int64_t width = layer->width;
    if (layer->interleaved) {
        const st_projection both[] = {{&layer->qkv, x, width, scratch->raw}, {&layer->b, x, width, scratch->raw_ba}};
        part_job job = {layer, scratch};
        st_project(pool, both, 2, tokens);
        st_parallel(pool, part_tokens, &job, tokens, st_rows_per_chunk(layer->qkv.rows));
        return;
    }
    const st_projection all[] = {{&layer->qkv, x, width, scratch->mixed},
                                 {&layer->z, x, width, scratch->gate},
                                 {&layer->b, x, width, scratch->b},
                                 {&layer->a, x, width, scratch->a}};
    st_project(pool, all, 4, tokens);
}

void st_gdn_layer_run(st_pool *pool, const st_gdn_layer *layer, const st_layer_io *io, float *conv_state,
                      float *state) {
    st_carver carver = st_carver_of(io->scratch);
    const gdn_scratch scratch = carve(layer, io->tokens, &carver);
    st_rms_norm(pool, io->hidden, layer->input_norm, layer->norm_eps, io->tokens, layer->width, scratch.normed);
    project(pool, layer, &scratch, io->tokens);
    const st_gated_delta delta = {
        .tokens = io->tokens,
        .key_heads = layer->key_heads,
        .value_heads = layer->value_heads,
        .key_dim = layer->key_dim,
        .value_dim = layer->value_dim,
        .mixed = scratch.mixed,
        .gate = scratch.gate,
        .a = scratch.a,
        .b = scratch.b,
        .a_log = layer->a_log,
        .dt_bias = layer->dt_bias,
        .conv_weight = layer->conv_weight,
        .norm_weight = layer->norm_weight,
        .conv_state = conv_state,
        .state = state,
        .norm_eps = layer->norm_eps,
    };
    st_gated_delta_run(pool, &delta);
    const float *result = scratch.mixed + 2 * layer->key_heads * layer->key_dim;
    st_matmul(pool, &layer->out, result, io->tokens, mixed_width(layer), scratch.normed, layer->width);
    st_leave_layer(pool, &layer->routing, io, layer->norm_eps, layer->width, scratch.normed);
}
