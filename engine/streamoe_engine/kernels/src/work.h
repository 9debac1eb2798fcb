/* How much work is worth handing to another thread. */
#ifndef STREAMOE_WORK_H
#define STREAMOE_WORK_H

#include <stdlib.h>

#include "streamoe_kernels.h"

/* A mistake of ours ends the process, in every build. */
#define ST_MUST(condition)         \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

/* Work is cut into units of this many outputs: a multiple of every TILE_N. */
enum { ST_OUTPUTS = 16 };

/* Units of `matrix` that make a chunk of about 3 microseconds for m rows: 32 KiB of weights read once, or as many
 * multiplications as take the time of that. */
static inline int64_t st_units_per_chunk(const st_matrix *matrix, int64_t m) {
    const int64_t unit_bytes = matrix->cols * matrix->bits / 8 * ST_OUTPUTS * (1 + m / 8);
    const int64_t units = 32768 / (unit_bytes > 0 ? unit_bytes : 1);
    return units < 1 ? 1 : units;
}

#endif
