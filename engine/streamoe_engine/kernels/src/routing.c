/* Owns the end of every layer, from the mix's output to the router's logits, the choice of experts, the shared one,
 * and what becomes of their outputs. */
#include "isa.h"
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

/* The scale is a matter of one output: not worth a second thread. */
void st_weigh_shared(st_pool *pool, const st_shared_expert *shared, int64_t tokens, const float *x, float *weight,
                     float *out) {
    const int64_t in = shared->expert.gate.cols, width = shared->expert.down.rows;
    if (shared->scale.rows == 0) return;
    st_matmul(pool, &shared->scale, x, tokens, in, weight, 1);
    for (int64_t t = 0; t < tokens; t++) {
        st_pool_mix(pool)->scale(1.0f / (1.0f + expf(-weight[t])), width, out + t * width);
    }
}

void st_shared_expert_run(st_pool *pool, const st_shared_expert *shared, int64_t tokens, const float *x, void *scratch,
                          float *out) {
    st_carver carver = st_carver_of(scratch);
    const shared_scratch own = carve(shared, tokens, &carver);
    const st_group all = {0, 0, tokens};
    st_expert_rows(pool, &shared->expert, &all, 1, x, shared->expert.gate.cols, own.hidden, out,
                   shared->expert.down.rows);
    st_weigh_shared(pool, shared, tokens, x, own.weight, out);
}

void st_combine(st_pool *pool, const float *products, const float *weights, int64_t picks, int64_t width,
                const float *shared, float *hidden) {
    st_pool_mix(pool)->combine(products, weights, picks, width, shared, hidden);
}

/* The places of the `count` highest of `scores`, the highest first, of equals the first. */
static void highest(const float *scores, int64_t num_scores, int64_t count, int64_t *places) {
    for (int64_t i = 0; i < num_scores; i++) {
        int64_t at = i < count ? i : count;
        if (at == count && !(scores[i] > scores[places[--at]])) continue;
        for (; at > 0 && scores[i] > scores[places[at - 1]]; at--) places[at] = places[at - 1];
        places[at] = i;
    }
}

typedef struct {
    const float *logits;
    int64_t stride, experts, top_k;
    int normalises;
    int64_t *picks;
    float *weights;
} route_job;

/* The softmax in double: its sum in the order of experts, or of picks where only they count. */
static void route_tokens(void *context, int64_t begin, int64_t end) {
    const route_job *job = context;
    for (int64_t t = begin; t < end; t++) {
        const float *logits = job->logits + t * job->stride;
        int64_t *picks = job->picks + t * job->top_k;
        float *weights = job->weights + t * job->top_k;
        highest(logits, job->experts, job->top_k, picks);
        const double most = logits[picks[0]];
        double sum = 0;
        for (int64_t i = 0; job->normalises && i < job->top_k; i++) sum += exp(logits[picks[i]] - most);
        for (int64_t i = 0; !job->normalises && i < job->experts; i++) sum += exp(logits[i] - most);
        for (int64_t i = 0; i < job->top_k; i++) weights[i] = (float)(exp(logits[picks[i]] - most) / sum);
    }
}

void st_route(st_pool *pool, const float *logits, int64_t stride, int64_t tokens, int64_t experts, int64_t top_k,
              int normalises, int64_t *picks, float *weights) {
    enum { TOKENS_A_CHUNK = 16 };
    route_job job = {logits, stride, experts, top_k, normalises, picks, weights};
    st_parallel(pool, route_tokens, &job, tokens, TOKENS_A_CHUNK);
}

int64_t st_layer_struct_bytes(int kind) {
    static const size_t bytes[] = {sizeof(st_layer_io), sizeof(st_gdn_layer), sizeof(st_attention_layer),
                                   sizeof(st_sequence), sizeof(st_shared_expert)};
    return kind >= 0 && (size_t)kind < sizeof bytes / sizeof *bytes ? (int64_t)bytes[kind] : 0;
}
