/* The bodies compiled for AVX-512 with matrix tiles, where the compiler knows them. */
#include "amx.h"

#include <stddef.h>

#include "isa.h"

#ifdef ST_COMPILES_AMX
#define ST_ALSO ",amx-tile,amx-int8"
#define ST_HAS_TILES 1
#include "vec_avx512.h"

#include "matmul_body.h"
#include "silu_body.h"

static const st_ops ops = {tile, silu_mul, fix};
const st_ops *const st_ops_amx = &ops;
#else
const st_ops *const st_ops_amx = NULL;
#endif
