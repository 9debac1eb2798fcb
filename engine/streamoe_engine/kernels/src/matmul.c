/* Owns how the outputs of one matrix are shared out. The cut never changes a bit: outputs are independent. */
#include "streamoe_kernels.h"

#include "isa.h"
#include "work.h"

typedef struct {
    const st_ops *ops;
    const st_matrix *matrix;
    const float *x;
    float *y;
    int64_t m, x_stride, y_stride;
} matmul_job;

static void outputs(void *context, int64_t begin, int64_t end) {
    const matmul_job *job = context;
    const int64_t n0 = begin * ST_OUTPUTS, rows = job->matrix->rows;
    const int64_t n1 = end * ST_OUTPUTS < rows ? end * ST_OUTPUTS : rows;
    job->ops->tile(job->matrix, n0, n1, job->x, job->m, job->x_stride, job->y + n0, job->y_stride);
}

void st_matmul(st_pool *pool, const st_matrix *matrix, const float *x, int64_t m, int64_t x_stride, float *y,
               int64_t y_stride) {
    if (m <= 0) return;
    matmul_job job = {st_pool_ops(pool), matrix, x, y, m, x_stride, y_stride};
    const int64_t units = (matrix->rows + ST_OUTPUTS - 1) / ST_OUTPUTS;
    st_parallel(pool, outputs, &job, units, st_units_per_chunk(matrix, m));
}
