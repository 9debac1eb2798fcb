/* What lies between matrix products, compiled for whatever the compiler's target is. */
#include "mix.h"

#include <stddef.h>

#include "vec_portable.h"

#include "attention_body.h"
#include "gated_delta_body.h"
#include "mix_table.h"

const st_mix_ops *const st_mix_portable = &table;
