/* Owns several matrix products as one piece of shared work: a layer's projections wait for its threads once.
 *
 * Units are those of st_matmul, and so are the bits: outputs are independent of each other.
 */
#include "layer.h"

#include "isa.h"
#include "work.h"

typedef struct {
    const st_ops *ops;
    const st_projection *projections;
    int64_t tokens;
} project_job;

static int64_t units_of(const st_matrix *matrix) { return (matrix->rows + ST_OUTPUTS - 1) / ST_OUTPUTS; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void outputs(void *context, int64_t begin, int64_t end) {
    const project_job *job = context;
    const st_projection *p = job->projections;
    while (begin < end) {
        const int64_t units = units_of(p->matrix);
        if (begin < units) {
            const int64_t n0 = begin * ST_OUTPUTS, n1 = least(least(end, units) * ST_OUTPUTS, p->matrix->rows);
            job->ops->tile(p->matrix, n0, n1, p->x, job->tokens, p->x_stride, p->y + n0, p->matrix->rows);
            begin = least(end, units);
        }
        begin -= units, end -= units, p++;
    }
}

void st_project(st_pool *pool, const st_projection *projections, int64_t count, int64_t tokens) {
    project_job job = {st_pool_ops(pool), projections, tokens};
    int64_t units = 0;
    for (int64_t i = 0; i < count; i++) units += units_of(projections[i].matrix);
    if (units > 0) st_parallel(pool, outputs, &job, units, st_units_per_chunk(projections[0].matrix, tokens));
}
