/* What each instruction set offers: one table of functions, compiled from the same bodies (matmul_body.h,
 * silu_body.h) over that set's vectors (vec_*.h). */
#ifndef STREAMOE_ISA_H
#define STREAMOE_ISA_H

#include "rows.h"

typedef struct {
    /* Outputs [n0, n1) of the matrix for rows [first, first + m); y points at output n0 of the first of them. */
    void (*tile)(const st_matrix *, int64_t n0, int64_t n1, const st_rows *, int64_t first, int64_t m, float *y,
                 int64_t y_stride);
    /* gate[i] = silu(gate[i]) * up[i] */
    void (*silu_mul)(float *gate, const float *up, int64_t count);
    /* One row in fixed point (fixed.h); NULL where codes are multiplied by floats. */
    void (*fix)(const float *x, int64_t cols, int group, int is_nibbles, uint8_t *to);
} st_ops;

/* NULL where the set is not compiled in. */
extern const st_ops *const st_ops_portable, *const st_ops_avx2, *const st_ops_avx512, *const st_ops_neon,
    *const st_ops_amx;

const st_ops *st_pool_ops(const st_pool *);

#endif
