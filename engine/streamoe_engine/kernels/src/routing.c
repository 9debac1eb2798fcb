/* Owns the end of every layer, from the mix's output to the router's logits, and the shared expert. */
#include "layer.h"

#include <math.h>
#include <string.h>

typedef struct {
    const st_mix_ops *mix;
    const float *hidden, *mixed;
    float *after;
    int64_t width;
} residual_job;

static void add_rows(void *context, int64_t begin, int64_t end) {
    const residual_job *job = context;
    const int64_t at = begin * job->width, count = (end - begin) * job->width;
    if (job->after != job->hidden) memcpy(job->after + at, job->hidden + at, (size_t)count * sizeof *job->after);
    job->mix->add(job->mixed + at, count, job->after + at);
}

void st_leave_layer(st_pool *pool, const st_routing *routing, const st_layer_io *io, float norm_eps, int64_t width,
                    float *mixed) {
    residual_job job = {st_pool_mix(pool), io->hidden, mixed, io->after, width};
    st_parallel(pool, add_rows, &job, io->tokens, st_rows_per_chunk(width));
    st_rms_norm(pool, io->after, routing->norm, norm_eps, io->tokens, width, io->expert_input);
    const int has_guess = routing->next_router.rows > 0 && io->guess_logits != NULL;
    if (has_guess) st_rms_norm(pool, io->after, routing->next_norm, norm_eps, io->tokens, width, mixed);
    st_projection routers[2];
    int64_t count = 0;
    if (routing->router.rows > 0) {
        routers[count++] = (st_projection){&routing->router, io->expert_input, width, io->router_logits};
    }
    if (has_guess) routers[count++] = (st_projection){&routing->next_router, mixed, width, io->guess_logits};
    st_project(pool, routers, count, io->tokens);
}

typedef struct {
    float *hidden, *weight;
} shared_scratch;

static shared_scratch carve(const st_shared_expert *shared, int64_t tokens, st_carver *carver) {
    shared_scratch scratch;
    scratch.hidden = st_carve(carver, tokens * shared->expert.gate.rows);
    scratch.weight = st_carve(carver, tokens);
    return scratch;
}

int64_t st_shared_expert_scratch(const st_shared_expert *shared, int64_t tokens) {
    st_carver carver = st_carver_of(NULL);
    carve(shared, tokens, &carver);
    return carver.used;
}

void st_shared_expert_run(st_pool *pool, const st_shared_expert *shared, int64_t tokens, const float *x, void *scratch,
                          float *out) {
    st_carver carver = st_carver_of(scratch);
    const shared_scratch own = carve(shared, tokens, &carver);
    const int64_t in = shared->expert.gate.cols, width = shared->expert.down.rows;
    const st_group all = {0, 0, tokens};
    st_expert_rows(pool, &shared->expert, &all, 1, x, in, own.hidden, out, width);
    if (shared->scale.rows == 0) return;
    st_matmul(pool, &shared->scale, x, tokens, in, own.weight, 1);
    for (int64_t t = 0; t < tokens; t++) {
        st_pool_mix(pool)->scale(1.0f / (1.0f + expf(-own.weight[t])), width, out + t * width);
    }
}

int64_t st_layer_struct_bytes(int kind) {
    static const size_t bytes[] = {sizeof(st_layer_io), sizeof(st_gdn_layer), sizeof(st_attention_layer),
                                   sizeof(st_sequence), sizeof(st_shared_expert)};
    return kind >= 0 && (size_t)kind < sizeof bytes / sizeof *bytes ? (int64_t)bytes[kind] : 0;
}
