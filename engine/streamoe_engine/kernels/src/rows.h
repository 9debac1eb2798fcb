/* Rows of inputs made ready for a matrix: the floats themselves, and their fixed point where the pool's instruction
 * set multiplies codes by integers.
 *
 * Owns how the scratch of ST_READY_BYTES is shared out: who has more rows than it holds goes through them in parts. */
#ifndef STREAMOE_ROWS_H
#define STREAMOE_ROWS_H

#include "streamoe_kernels.h"

enum { ST_READY_BYTES = 4 << 20 };

typedef struct {
    const float *x;
    int64_t x_stride;
    const uint8_t *fixed; /* NULL: floats */
    int64_t fixed_stride;
} st_rows;

/* The scratch while one product is under way: the pool's own, or, for a second caller at the same time, one made for
 * it. */
typedef struct {
    uint8_t *scratch;
    int64_t used;
} st_ready;

st_ready st_ready_begin(st_pool *);
void st_ready_end(st_pool *, const st_ready *);

/* Bytes that a row for this matrix takes of the scratch, 0 where floats do. */
int64_t st_ready_bytes(const st_pool *, const st_matrix *);

/* How many rows, at least 1, whose bytes together are `row_bytes` each, fit the scratch. */
int64_t st_ready_most(int64_t row_bytes);

/* Whether rows made ready for one matrix serve the other. */
int st_ready_alike(const st_matrix *, const st_matrix *);

/* Rows [first, first + m) of x, made ready on all cores; the result's rows are numbered as x's are. */
st_rows st_ready_rows(st_pool *, st_ready *, const st_matrix *, const float *x, int64_t x_stride, int64_t first,
                      int64_t m);

/* The pool's own scratch of ST_READY_BYTES, on a cache line; NULL while another caller has it. */
uint8_t *st_pool_take_scratch(st_pool *);
int st_pool_return_scratch(st_pool *, const uint8_t *); /* 0, and nothing happens, where it is not the pool's */

#endif
