/* The bodies compiled for whatever the compiler's target is. */
#include "isa.h"

#include <stddef.h>

#include "vec_portable.h"

#include "matmul_body.h"
#include "silu_body.h"

static const st_ops ops = {tile, silu_mul, NULL};
const st_ops *const st_ops_portable = &ops;
