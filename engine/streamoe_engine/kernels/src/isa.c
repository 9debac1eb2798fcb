/* Owns the choice of the instruction set by what the processor has. */
#include "isa.h"

#include <stddef.h>

#include "amx.h"

static const st_ops *ops_of(int isa) {
    switch (isa) {
        case ST_PORTABLE: return st_ops_portable;
        case ST_AVX2: return st_ops_avx2;
        case ST_AVX512: return st_ops_avx512;
        case ST_NEON: return st_ops_neon;
        case ST_AMX: return st_ops_amx;
        default: return NULL;
    }
}

static int processor_has(int isa) {
#if defined(__x86_64__)
    if (isa == ST_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == ST_AVX512) {
        /* VNNI multiplies codes, VBMI unpacks any bit width; processors with AVX-512 but without them use AVX2. */
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
    }
    if (isa == ST_AMX) return processor_has(ST_AVX512) && st_amx_permitted();
#endif
    return isa == ST_PORTABLE || isa == ST_NEON;
}

int st_isa_available(int isa) { return ops_of(isa) != NULL && processor_has(isa); }

int st_isa_best(void) {
    static const int by_preference[] = {ST_AMX, ST_AVX512, ST_AVX2, ST_NEON};
    for (size_t i = 0; i < sizeof by_preference / sizeof *by_preference; i++) {
        if (st_isa_available(by_preference[i])) return by_preference[i];
    }
    return ST_PORTABLE;
}

const st_ops *st_pool_ops(const st_pool *pool) { return ops_of(st_pool_isa(pool)); }

int st_abi(void) { return ST_ABI; }
