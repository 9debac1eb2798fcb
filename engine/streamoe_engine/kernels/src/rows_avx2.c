/* The row functions for x86-64 with AVX2, FMA and F16C. Called only where the processor has them. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define ST_PART_LANES 8
#define ST_ROWS_TABLE st_rows_avx2
#include "rows_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int st_rows_avx2_is_for_x86_64;
#endif
