/* Owns how the outputs of one matrix are shared out. The cut never changes a bit: outputs are independent. */
#include "streamoe_kernels.h"

#include "isa.h"
#include "work.h"

typedef struct {
    const st_ops *ops;
    const st_matrix *matrix;
    st_rows rows;
    float *y;
    int64_t first, m, y_stride;
} matmul_job;

static void outputs(void *context, int64_t begin, int64_t end) {
    const matmul_job *job = context;
    const int64_t n0 = begin * ST_OUTPUTS, rows = job->matrix->rows;
    const int64_t n1 = end * ST_OUTPUTS < rows ? end * ST_OUTPUTS : rows;
    job->ops->tile(job->matrix, n0, n1, &job->rows, job->first, job->m, job->y + n0, job->y_stride);
}

void st_matmul(st_pool *pool, const st_matrix *matrix, const float *x, int64_t m, int64_t x_stride, float *y,
               int64_t y_stride) {
    const int64_t most = st_ready_most(st_ready_bytes(pool, matrix));
    const int64_t units = (matrix->rows + ST_OUTPUTS - 1) / ST_OUTPUTS;
    for (int64_t first = 0; first < m; first += most) {
        const int64_t count = m - first < most ? m - first : most;
        st_ready ready = st_ready_begin(pool);
        const st_rows rows = st_ready_rows(pool, &ready, matrix, x, x_stride, first, count);
        matmul_job job = {st_pool_ops(pool), matrix, rows, y + first * y_stride, first, count, y_stride};
        st_parallel(pool, outputs, &job, units, st_units_per_chunk(matrix, count));
        st_ready_end(pool, &ready);
    }
}
