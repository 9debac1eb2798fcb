/* Owns the choice of row functions and how rows of a norm are shared out. */
#include "mix.h"

#include <stddef.h>

const st_mix_ops *st_pool_mix(const st_pool *pool) {
    switch (st_pool_isa(pool)) {
        case ST_AVX2: return st_mix_avx2;
        case ST_AVX512:
        case ST_AMX: return st_mix_avx512;
        case ST_NEON: return st_mix_neon;
        default: return st_mix_portable;
    }
}

typedef struct {
    const st_mix_ops *mix;
    const float *x, *weight;
    float *out, eps;
    int64_t width;
} norm_job;

static void norm_rows(void *context, int64_t begin, int64_t end) {
    const norm_job *job = context;
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * job->width;
        job->mix->rms_norm(job->x + at, job->weight, job->eps, 1.0f, job->width, job->out + at);
    }
}

void st_rms_norm(st_pool *pool, const float *x, const float *weight, float eps, int64_t rows, int64_t width,
                 float *out) {
    norm_job job = {st_pool_mix(pool), x, weight, out, eps, width};
    st_parallel(pool, norm_rows, &job, rows, st_rows_per_chunk(width));
}
