/* Owns gated experts: two phases (gate and up with the activation, then down), one join each.
 *
 * A unit of work is ST_OUTPUTS outputs of one expert, for all its rows. Units touch nothing of each other.
 */
#include "streamoe_layers.h"

#include <stddef.h>

#include "isa.h"
#include "mix.h"
#include "work.h"

enum { UP_ROWS = 64, UP_OUTPUTS = 64 }; /* what is held of up: rows by outputs, 16 KiB */

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
    /* x for gate and for up, hidden for down; the same of the shared expert */
    st_rows gate_rows, up_rows, down_rows, shared_gate_rows, shared_up_rows, shared_down_rows;
    int64_t units, shared_units; /* units of work in this phase: of each expert, and of the shared one */
} expert_job;

/* One expert's rows: from where among those of x, and among those of hidden. */
typedef struct {
    const st_expert *expert;
    uint64_t record;
    const st_rows *gate_rows, *up_rows, *down_rows;
    int64_t first, first_hidden, rows;
    float *hidden, *y; /* of the first of them */
} expert_rows;

static expert_rows rows_at(const expert_job *job, int64_t i) {
    expert_rows at = {.expert = job->expert, .gate_rows = &job->gate_rows, .up_rows = &job->up_rows};
    at.down_rows = &job->down_rows;
    int64_t place;
    if (job->records != NULL) {
        place = job->places != NULL ? job->places[i] : i;
        at.record = job->records[i], at.first_hidden = i, at.rows = 1;
    } else {
        const st_group *group = &job->groups[i];
        place = group->first_row;
        at.record = group->record, at.first = at.first_hidden = group->first_row, at.rows = group->rows;
    }
    at.hidden = job->hidden + at.first_hidden * job->expert->gate.rows;
    at.y = job->y + place * job->y_stride;
    return at;
}

static expert_rows shared_row(const expert_job *job) {
    return (expert_rows){.expert = job->shared,
                         .gate_rows = &job->shared_gate_rows,
                         .up_rows = &job->shared_up_rows,
                         .down_rows = &job->shared_down_rows,
                         .rows = 1,
                         .hidden = job->shared_hidden,
                         .y = job->shared_y};
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
    for (int64_t j0 = 0; j0 < at.rows; j0 += UP_ROWS) {
        const int64_t rows = least(at.rows - j0, UP_ROWS);
        float *hidden = at.hidden + j0 * gate.rows + n0;
        job->ops->tile(&gate, n0, n1, at.gate_rows, at.first + j0, rows, hidden, gate.rows);
        job->ops->tile(&up, n0, n1, at.up_rows, at.first + j0, rows, up_out, UP_OUTPUTS);
        for (int64_t j = 0; j < rows; j++) job->ops->silu_mul(hidden + j * gate.rows, up_out + j * UP_OUTPUTS, n1 - n0);
    }
}

static void down_outputs(const expert_job *job, expert_rows at, int64_t n0, int64_t n1) {
    const st_matrix down = in_record(&at.expert->down, at.record);
    job->ops->tile(&down, n0, n1, at.down_rows, at.first_hidden, at.rows, at.y + n0, job->y_stride);
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

/* Rows [first, first + m) of x for an expert's gate and up. */
static void ready_x(st_pool *pool, st_ready *ready, const expert_job *job, const st_expert *expert, int64_t first,
                    int64_t m, st_rows *gate_rows, st_rows *up_rows) {
    *gate_rows = st_ready_rows(pool, ready, &expert->gate, job->x, job->x_stride, first, m);
    const int alike = st_ready_alike(&expert->gate, &expert->up);
    *up_rows = alike ? *gate_rows : st_ready_rows(pool, ready, &expert->up, job->x, job->x_stride, first, m);
}

/* `count` experts; rows [first, first + m) of x and [first, first + hidden_rows) of hidden are theirs. */
static void run(st_pool *pool, expert_job *job, int64_t count, int64_t first, int64_t m, int64_t hidden_rows) {
    const st_expert *expert = job->expert, *shared = job->shared;
    const int64_t rows_each = count > 0 ? hidden_rows / count : 1;
    st_ready ready = st_ready_begin(pool);
    job->ops = st_pool_ops(pool);
    ready_x(pool, &ready, job, expert, first, m, &job->gate_rows, &job->up_rows);
    if (shared != NULL) ready_x(pool, &ready, job, shared, 0, 1, &job->shared_gate_rows, &job->shared_up_rows);
    job->units = units_of(expert->gate.rows);
    job->shared_units = shared != NULL ? units_of(shared->gate.rows) : 0;
    st_parallel(pool, hidden_units, job, job->shared_units + count * job->units,
                (st_units_per_chunk(&expert->gate, rows_each) + 1) / 2);
    job->down_rows =
        st_ready_rows(pool, &ready, &expert->down, job->hidden, expert->gate.rows, first, hidden_rows);
    if (shared != NULL) {
        job->shared_down_rows =
            st_ready_rows(pool, &ready, &shared->down, job->shared_hidden, shared->gate.rows, 0, 1);
    }
    job->units = units_of(expert->down.rows);
    job->shared_units = shared != NULL ? units_of(shared->down.rows) : 0;
    st_parallel(pool, down_units, job, job->shared_units + count * job->units,
                st_units_per_chunk(&expert->down, rows_each));
    st_ready_end(pool, &ready);
}

/* Bytes of scratch that a row on its way through an expert takes. */
static int64_t row_bytes(const st_pool *pool, const st_expert *expert) {
    return 2 * st_ready_bytes(pool, &expert->gate) + st_ready_bytes(pool, &expert->down);
}

void st_expert_token(st_pool *pool, const st_expert *expert, const uint64_t *records, const int64_t *places,
                     int64_t count, const float *x, float *hidden, float *y, int64_t y_stride) {
    const int64_t most = st_ready_most(row_bytes(pool, expert));
    expert_job job = {.expert = expert, .x = x, .hidden = hidden};
    job.y_stride = y_stride;
    for (int64_t i = 0; i < count; i += most) {
        job.records = records + i;
        job.places = places != NULL ? places + i : NULL;
        job.y = places != NULL ? y : y + i * y_stride;
        const int64_t part = least(count - i, most);
        run(pool, &job, part, 0, 1, part);
    }
}

void st_expert_token_shared(st_pool *pool, const st_expert *expert, const uint64_t *records, const int64_t *places,
                            int64_t count, const st_shared_expert *shared, const float *x, float *hidden, float *y,
                            int64_t y_stride, float *shared_y) {
    expert_job job = {.expert = expert, .records = records, .places = places, .x = x, .hidden = hidden, .y = y};
    job.y_stride = y_stride;
    job.shared = &shared->expert;
    job.shared_hidden = hidden + count * expert->gate.rows;
    job.shared_y = shared_y;
    run(pool, &job, count, 0, 1, count);
    st_weigh_shared(pool, shared, 1, x, job.shared_hidden, shared_y);
}

/* As many of `groups` as pass together: from lower to higher rows without a gap, and their rows fit `most`. */
static int64_t together(const st_group *groups, int64_t count, int64_t most) {
    int64_t taken = 1, rows = groups[0].rows;
    while (taken < count && groups[taken].first_row == groups[taken - 1].first_row + groups[taken - 1].rows &&
           rows + groups[taken].rows <= most) {
        rows += groups[taken++].rows;
    }
    return taken;
}

void st_expert_rows(st_pool *pool, const st_expert *expert, const st_group *groups, int64_t count, const float *x,
                    int64_t x_stride, float *hidden, float *y, int64_t y_stride) {
    expert_job job = {.expert = expert, .x = x, .hidden = hidden, .y = y};
    job.x_stride = x_stride;
    job.y_stride = y_stride;
    const int64_t most = st_ready_most(row_bytes(pool, expert));
    for (int64_t i = 0, taken; i < count; i += taken) {
        taken = together(groups + i, count - i, most);
        const st_group *last = &groups[i + taken - 1];
        const int64_t end = last->first_row + last->rows;
        for (int64_t first = groups[i].first_row; first < end; first += most) {
            const int64_t rows = least(end - first, most);
            const st_group part = {groups[i].record, first, rows}; /* of a lone group with more than `most` */
            job.groups = taken == 1 ? &part : groups + i;
            run(pool, &job, taken, first, rows, rows);
        }
    }
}
