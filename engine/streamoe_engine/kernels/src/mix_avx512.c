/* What lies between matrix products, compiled for AVX-512. */
#include "mix.h"

#include <stddef.h>

#if defined(__x86_64__)
#include "vec_avx512.h"

#include "attention_body.h"
#include "gated_delta_body.h"
#include "mix_table.h"

const st_mix_ops *const st_mix_avx512 = &table;
#else
const st_mix_ops *const st_mix_avx512 = NULL;
#endif
