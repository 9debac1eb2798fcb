/* What lies between matrix products, compiled for NEON. */
#include "mix.h"

#include <stddef.h>

#if defined(__aarch64__)
#include "vec_neon.h"

#include "attention_body.h"
#include "gated_delta_body.h"
#include "mix_table.h"

const st_mix_ops *const st_mix_neon = &table;
#else
const st_mix_ops *const st_mix_neon = NULL;
#endif
