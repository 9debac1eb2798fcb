/* Owns the gates of the gated delta rule and how its heads are shared out: one key head, with the value heads that use
 * it, is a unit. */
#include "mix.h"

#include <math.h>

static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

void st_delta_gates(const st_gated_delta *d, int64_t head, int64_t first, int64_t tokens, float *decay, float *beta) {
    const double rate = -exp(d->a_log[head]);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = (first + t) * d->value_heads + head;
        decay[t] = (float)exp(rate * softplus((double)d->a[at] + d->dt_bias[head]));
        beta[t] = (float)(1 / (1 + exp(-(double)d->b[at])));
    }
}

typedef struct {
    const st_mix_ops *mix;
    const st_gated_delta *delta;
} delta_job;

static void key_heads(void *context, int64_t begin, int64_t end) {
    const delta_job *job = context;
    for (int64_t head = begin; head < end; head++) job->mix->gated_delta(job->delta, head);
}

void st_gated_delta_run(st_pool *pool, const st_gated_delta *delta) {
    delta_job job = {st_pool_mix(pool), delta};
    st_parallel(pool, key_heads, &job, delta->key_heads, 1);
}
