/* Owns several matrix products as one piece of shared work: a layer's projections wait for its threads once.
 *
 * Units are those of st_matmul, and so are the bits: outputs are independent of each other.
 */
#include "layer.h"

#include "isa.h"
#include "work.h"

enum { MOST_PROJECTIONS = 8 };

typedef struct {
    const st_ops *ops;
    const st_projection *projections;
    const st_rows *rows; /* of each */
    int64_t first, tokens;
} project_job;

static int64_t units_of(const st_matrix *matrix) { return (matrix->rows + ST_OUTPUTS - 1) / ST_OUTPUTS; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void outputs(void *context, int64_t begin, int64_t end) {
    const project_job *job = context;
    const st_projection *p = job->projections;
    const st_rows *rows = job->rows;
    while (begin < end) {
        const int64_t units = units_of(p->matrix), width = p->matrix->rows;
        if (begin < units) {
            const int64_t n0 = begin * ST_OUTPUTS, n1 = least(least(end, units) * ST_OUTPUTS, width);
            job->ops->tile(p->matrix, n0, n1, rows, job->first, job->tokens, p->y + job->first * width + n0, width);
            begin = least(end, units);
        }
        begin -= units, end -= units, p++, rows++;
    }
}

/* Rows [first, first + tokens) for each projection; those with the same inputs share them. */
static void make_ready(st_pool *pool, st_ready *ready, const st_projection *projections, int64_t count, int64_t first,
                       int64_t tokens, st_rows *rows) {
    for (int64_t i = 0; i < count; i++) {
        const st_projection *p = &projections[i];
        int64_t same = 0;
        while (same < i && (projections[same].x != p->x || !st_ready_alike(projections[same].matrix, p->matrix))) same++;
        rows[i] = same < i ? rows[same] : st_ready_rows(pool, ready, p->matrix, p->x, p->x_stride, first, tokens);
    }
}

void st_project(st_pool *pool, const st_projection *projections, int64_t count, int64_t tokens) {
    int64_t units = 0, row_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        units += units_of(projections[i].matrix);
        row_bytes += st_ready_bytes(pool, projections[i].matrix);
    }
    ST_MUST(count <= MOST_PROJECTIONS);
    if (units == 0) return;
    const int64_t most = st_ready_most(row_bytes);
    st_rows rows[MOST_PROJECTIONS];
    for (int64_t first = 0; first < tokens; first += most) {
        const int64_t part = least(tokens - first, most);
        st_ready ready = st_ready_begin(pool);
        make_ready(pool, &ready, projections, count, first, part, rows);
        project_job job = {st_pool_ops(pool), projections, rows, first, part};
        st_parallel(pool, outputs, &job, units, st_units_per_chunk(projections[0].matrix, part));
        st_ready_end(pool, &ready);
    }
}
