/* The bodies compiled for AVX2. */
#include "isa.h"

#include <stddef.h>

#if defined(__x86_64__)
#include "vec_avx2.h"

#include "matmul_body.h"
#include "silu_body.h"

static const st_ops ops = {tile, silu_mul, NULL};
const st_ops *const st_ops_avx2 = &ops;
#else
const st_ops *const st_ops_avx2 = NULL;
#endif
