/* The bodies compiled for NEON. */
#include "isa.h"

#include <stddef.h>

#if defined(__aarch64__)
#include "vec_neon.h"

#include "matmul_body.h"
#include "silu_body.h"

static const st_ops ops = {tile, silu_mul, NULL};
const st_ops *const st_ops_neon = &ops;
#else
const st_ops *const st_ops_neon = NULL;
#endif
