/* The bodies compiled for AVX-512. */
#include "isa.h"

#include <stddef.h>

#if defined(__x86_64__)
#include "vec_avx512.h"

#include "matmul_body.h"
#include "silu_body.h"

static const st_ops ops = {tile, silu_mul, fix};
const st_ops *const st_ops_avx512 = &ops;
#else
const st_ops *const st_ops_avx512 = NULL;
#endif
