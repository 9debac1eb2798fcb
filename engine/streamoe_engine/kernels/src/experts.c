/* Owns gated experts: two phases (gate and up with the activation, then down), one join each.
 *
 * A unit of work is ST_OUTPUTS outputs of one expert, for all its rows. Units touch nothing of each other.
 */
#include "streamoe_kernels.h"

#include <stddef.h>

#include "isa.h"
#include "work.h"

enum { UP_ROWS = 72, UP_OUTPUTS = 64 }; /* what is held of up: rows by outputs, 18 KiB */

/* The experts of a call: `records` (one row each, the same x), or `groups` (their own rows). */
typedef struct {
    const st_ops *ops;
    const st_expert *expert;
    const uint64_t *records;
    const st_group *groups;
    const float *x;
    float *hidden, *y;
    int64_t x_stride, y_stride, units; /* units of work an expert makes in this phase */
} expert_job;

typedef struct {
    uint64_t record;
    int64_t in, out, rows; /* first row of x, first row of hidden and y, how many */
} rows_of_expert;

static rows_of_expert rows_at(const expert_job *job, int64_t i) {
    if (job->records != NULL) return (rows_of_expert){job->records[i], 0, i, 1};
    const st_group *group = &job->groups[i];
    return (rows_of_expert){group->record, group->first_row, group->first_row, group->rows};
}

static const void *placed(const void *offset, uint64_t record) {
    return (const void *)(uintptr_t)((uint64_t)(uintptr_t)offset + record);
}

static st_matrix in_record(const st_matrix *matrix, uint64_t record) {
    st_matrix own = *matrix;
    own.weight = placed(matrix->weight, record);
    own.scales = placed(matrix->scales, record);
    own.biases = placed(matrix->biases, record);
    return own;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Hidden outputs [n0, n1), at most UP_OUTPUTS, of one expert. */
static void hidden_outputs(const expert_job *job, rows_of_expert at, int64_t n0, int64_t n1) {
    const st_matrix gate = in_record(&job->expert->gate, at.record), up = in_record(&job->expert->up, at.record);
    float up_out[UP_ROWS * UP_OUTPUTS];
    for (int64_t first = 0; first < at.rows; first += UP_ROWS) {
        const int64_t rows = least(at.rows - first, UP_ROWS);
        const float *x = job->x + (at.in + first) * job->x_stride;
        float *hidden = job->hidden + (at.out + first) * gate.rows + n0;
        job->ops->tile(&gate, n0, n1, x, rows, job->x_stride, hidden, gate.rows);
        job->ops->tile(&up, n0, n1, x, rows, job->x_stride, up_out, UP_OUTPUTS);
        for (int64_t j = 0; j < rows; j++) job->ops->silu_mul(hidden + j * gate.rows, up_out + j * UP_OUTPUTS, n1 - n0);
    }
}

static void down_outputs(const expert_job *job, rows_of_expert at, int64_t n0, int64_t n1) {
    const st_matrix down = in_record(&job->expert->down, at.record);
    job->ops->tile(&down, n0, n1, job->hidden + at.out * down.cols, at.rows, down.cols,
                   job->y + at.out * job->y_stride + n0, job->y_stride);
}

typedef void (*some_outputs)(const expert_job *, rows_of_expert, int64_t n0, int64_t n1);

/* Units [begin, end), expert after expert, at most `most` outputs at once. */
static void each(const expert_job *job, int64_t begin, int64_t end, int64_t rows, int64_t most, some_outputs run) {
    while (begin < end) {
        const int64_t i = begin / job->units, unit = begin % job->units;
        const int64_t count = least(least(end - begin, job->units - unit), most / ST_OUTPUTS);
        run(job, rows_at(job, i), unit * ST_OUTPUTS, least((unit + count) * ST_OUTPUTS, rows));
        begin += count;
    }
}

static void hidden_units(void *context, int64_t begin, int64_t end) {
    const expert_job *job = context;
    each(job, begin, end, job->expert->gate.rows, UP_OUTPUTS, hidden_outputs);
}

static void down_units(void *context, int64_t begin, int64_t end) {
    const expert_job *job = context;
    each(job, begin, end, job->expert->down.rows, job->units * ST_OUTPUTS, down_outputs);
}

static void run(st_pool *pool, expert_job *job, int64_t count, int64_t rows) {
    const st_expert *expert = job->expert;
    job->ops = st_pool_ops(pool);
    job->units = (expert->gate.rows + ST_OUTPUTS - 1) / ST_OUTPUTS;
    st_parallel(pool, hidden_units, job, count * job->units, (st_units_per_chunk(&expert->gate, rows) + 1) / 2);
    job->units = (expert->down.rows + ST_OUTPUTS - 1) / ST_OUTPUTS;
    st_parallel(pool, down_units, job, count * job->units, st_units_per_chunk(&expert->down, rows));
}

void st_expert_token(st_pool *pool, const st_expert *expert, const uint64_t *records, int64_t count, const float *x,
                     float *hidden, float *y, int64_t y_stride) {
    if (count <= 0) return;
    expert_job job = {.expert = expert, .records = records, .x = x, .hidden = hidden, .y = y, .y_stride = y_stride};
    run(pool, &job, count, 1);
}

void st_expert_rows(st_pool *pool, const st_expert *expert, const st_group *groups, int64_t count, const float *x,
                    int64_t x_stride, float *hidden, float *y, int64_t y_stride) {
    if (count <= 0) return;
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) rows += groups[i].rows;
    expert_job job = {.expert = expert, .groups = groups, .x = x, .hidden = hidden, .y = y};
    job.x_stride = x_stride;
    job.y_stride = y_stride;
    run(pool, &job, count, rows / count);
}
