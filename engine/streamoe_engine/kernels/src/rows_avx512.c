/* The row functions for x86-64 with AVX-512 (F, BW, DQ, VL). Called only where the processor has it. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#define ST_PART_LANES 16
#define ST_ROWS_TABLE st_rows_avx512
#include "rows_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int st_rows_avx512_is_for_x86_64;
#endif
