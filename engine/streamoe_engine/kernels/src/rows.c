/* Owns how rows are made ready for a matrix, shared out over cores where it pays. */
#include "rows.h"

#include <stddef.h>

#include "fixed.h"
#include "isa.h"
#include "work.h"

st_ready st_ready_begin(st_pool *pool) {
    uint8_t *scratch = st_pool_take_scratch(pool);
    if (scratch == NULL) scratch = aligned_alloc(64, ST_READY_BYTES);
    ST_MUST(scratch != NULL);
    return (st_ready){scratch, 0};
}

void st_ready_end(st_pool *pool, const st_ready *ready) {
    if (!st_pool_return_scratch(pool, ready->scratch)) free(ready->scratch);
}

int64_t st_ready_bytes(const st_pool *pool, const st_matrix *matrix) {
    if (st_pool_ops(pool)->fix == NULL || matrix->bits >= 16) return 0;
    return st_fixed_stride(matrix->cols, matrix->group);
}

int64_t st_ready_most(int64_t row_bytes) {
    const int64_t most = row_bytes > 0 ? ST_READY_BYTES / row_bytes : ST_READY_BYTES; /* no bytes, no limit */
    return most > 0 ? most : 1;
}

int st_ready_alike(const st_matrix *a, const st_matrix *b) {
    if (a->bits >= 16 || b->bits >= 16) return a->bits >= 16 && b->bits >= 16;
    return (a->bits == 4) == (b->bits == 4) && a->group == b->group && a->cols == b->cols;
}

typedef struct {
    const st_ops *ops;
    const st_matrix *matrix;
    const float *x;
    int64_t x_stride, to_stride;
    uint8_t *to;
} ready_job;

static void fix_rows(void *context, int64_t begin, int64_t end) {
    const ready_job *job = context;
    for (int64_t j = begin; j < end; j++) {
        job->ops->fix(job->x + j * job->x_stride, job->matrix->cols, job->matrix->group, job->matrix->bits == 4,
                      job->to + j * job->to_stride);
    }
}

st_rows st_ready_rows(st_pool *pool, st_ready *ready, const st_matrix *matrix, const float *x, int64_t x_stride,
                      int64_t first, int64_t m) {
    enum { FLOATS_A_CHUNK = 16384 }; /* some 5 microseconds */
    const int64_t stride = st_ready_bytes(pool, matrix);
    if (stride == 0) return (st_rows){x, x_stride, NULL, 0};
    uint8_t *to = ready->scratch + ready->used;
    ready->used += m * stride;
    ST_MUST(ready->used <= ST_READY_BYTES);
    ready_job job = {st_pool_ops(pool), matrix, x + first * x_stride, x_stride, stride, to};
    st_parallel(pool, fix_rows, &job, m, 1 + FLOATS_A_CHUNK / matrix->cols);
    return (st_rows){x, x_stride, to - first * stride, stride};
}
