/* Owns gated experts: two phases (gate and up with the activation, then down), one join each.
 *
 * A unit of work is ST_OUTPUTS outputs of one expert, for all its rows. Units touch nothing of each other.
 */
#include "streamoe_layers.h"

#include <stddef.h>

#include "isa.h"
#include "mix.h"
#include "work.h"

enum { UP_ROWS = 72, UP_OUTPUTS = 64 }; /* what is held of up: rows by outputs, 18 KiB */

/* The experts of a call: `records` (one row each, the same x), or `groups` (their own rows); and before them, where
 * there is one, the expert that every row passes. */
typedef struct {
    const st_ops *ops;
    const st_expert *expert;
    const uint64_t *records;
    const int64_t *places; /* of each record's output among the rows of y, or NULL: in order */
    const st_group *groups;
    const st_expert *shared;
    const float *x;
    float *hidden, *y, *shared_hidden, *shared_y;
    int64_t x_stride, y_stride;
    int64_t units, shared_units; /* units of work in this phase: of each expert, and of the shared one */
} expert_job;

/* One expert's rows. */
typedef struct {
    const st_expert *expert;
    uint64_t record;
    const float *x;
    float *hidden, *y;
    int64_t rows;
} expert_rows;

static expert_rows rows_at(const expert_job *job, int64_t i) {
    const int64_t width = job->expert->gate.rows;
    if (job->records == NULL) {
        const st_group *group = &job->groups[i];
        return (expert_rows){job->expert, group->record, job->x + group->first_row * job->x_stride,
                             job->hidden + group->first_row * width, job->y + group->first_row * job->y_stride,
                             group->rows};
    }
    const int64_t place = job->places != NULL ? job->places[i] : i;
    return (expert_rows){job->expert, job->records[i], job->x, job->hidden + i * width, job->y + place * job->y_stride,
                         1};
}

static expert_rows shared_row(const expert_job *job) {
    return (expert_rows){job->shared, 0, job->x, job->shared_hidden, job->shared_y, 1};
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
static void hidden_outputs(const expert_job *job, expert_rows at, int64_t n0, int64_t n1) {
    const st_matrix gate = in_record(&at.expert->gate, at.record), up = in_record(&at.expert->up, at.record);
    float up_out[UP_ROWS * UP_OUTPUTS];
    for (int64_t first = 0; first < at.rows; first += UP_ROWS) {
        const int64_t rows = least(at.rows - first, UP_ROWS);
        const float *x = at.x + first * job->x_stride;
        float *hidden = at.hidden + first * gate.rows + n0;
        job->ops->tile(&gate, n0, n1, x, rows, job->x_stride, hidden, gate.rows);
        job->ops->tile(&up, n0, n1, x, rows, job->x_stride, up_out, UP_OUTPUTS);
        for (int64_t j = 0; j < rows; j++) job->ops->silu_mul(hidden + j * gate.rows, up_out + j * UP_OUTPUTS, n1 - n0);
    }
}

static void down_outputs(const expert_job *job, expert_rows at, int64_t n0, int64_t n1) {
    const st_matrix down = in_record(&at.expert->down, at.record);
    job->ops->tile(&down, n0, n1, at.hidden, at.rows, down.cols, at.y + n0, job->y_stride);
}

typedef struct {
    void (*run)(const expert_job *, expert_rows, int64_t n0, int64_t n1);
    int64_t most; /* outputs at once */
    int is_down;
} phase;

static int64_t outputs_of(const st_expert *expert, const phase *phase) {
    return phase->is_down ? expert->down.rows : expert->gate.rows;
}

/* Units [begin, end), the shared expert's first, then expert after expert. */
static void each(const expert_job *job, int64_t begin, int64_t end, const phase *phase) {
    while (begin < end) {
        const int is_shared = begin < job->shared_units;
        const int64_t from = is_shared ? begin : begin - job->shared_units;
        const int64_t units = is_shared ? job->shared_units : job->units;
        const expert_rows at = is_shared ? shared_row(job) : rows_at(job, from / units);
        const int64_t unit = from % units, count = least(least(end - begin, units - unit), phase->most / ST_OUTPUTS);
        phase->run(job, at, unit * ST_OUTPUTS, least((unit + count) * ST_OUTPUTS, outputs_of(at.expert, phase)));
        begin += count;
    }
}

static const phase hidden_phase = {hidden_outputs, UP_OUTPUTS, 0}, down_phase = {down_outputs, INT64_MAX, 1};

static void hidden_units(void *context, int64_t begin, int64_t end) { each(context, begin, end, &hidden_phase); }

static void down_units(void *context, int64_t begin, int64_t end) { each(context, begin, end, &down_phase); }

static int64_t units_of(int64_t outputs) { return (outputs + ST_OUTPUTS - 1) / ST_OUTPUTS; }

static void run(st_pool *pool, expert_job *job, int64_t count, int64_t rows) {
    const st_expert *expert = job->expert, *shared = job->shared;
    job->ops = st_pool_ops(pool);
    job->units = units_of(expert->gate.rows);
    job->shared_units = shared != NULL ? units_of(shared->gate.rows) : 0;
    st_parallel(pool, hidden_units, job, job->shared_units + count * job->units,
                (st_units_per_chunk(&expert->gate, rows) + 1) / 2);
    job->units = units_of(expert->down.rows);
    job->shared_units = shared != NULL ? units_of(shared->down.rows) : 0;
    st_parallel(pool, down_units, job, job->shared_units + count * job->units, st_units_per_chunk(&expert->down, rows));
}

void st_expert_token(st_pool *pool, const st_expert *expert, const uint64_t *records, const int64_t *places,
                     int64_t count, const float *x, float *hidden, float *y, int64_t y_stride) {
    if (count <= 0) return;
    expert_job job = {.expert = expert, .records = records, .places = places, .x = x, .hidden = hidden, .y = y};
    job.y_stride = y_stride;
    run(pool, &job, count, 1);
}

void st_expert_token_shared(st_pool *pool, const st_expert *expert, const uint64_t *records, const int64_t *places,
                            int64_t count, const st_shared_expert *shared, const float *x, float *hidden, float *y,
                            int64_t y_stride, float *shared_y) {
    expert_job job = {.expert = expert, .records = records, .places = places, .x = x, .hidden = hidden, .y = y};
    job.y_stride = y_stride;
    job.shared = &shared->expert;
    job.shared_hidden = hidden + count * expert->gate.rows;
    job.shared_y = shared_y;
    run(pool, &job, count, 1);
    st_weigh_shared(pool, shared, 1, x, job.shared_hidden, shared_y);
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
