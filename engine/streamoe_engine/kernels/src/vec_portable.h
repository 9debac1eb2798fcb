/* Four lanes of the compilers' own vectors: whatever the target has, down to scalars. Multiply and add round apart. */
#ifndef STREAMOE_VEC_H
#define STREAMOE_VEC_H

#include "numbers.h"

#define ST_TARGET
#define ST_FN static inline __attribute__((always_inline))

enum { LANES = 4, TILE_N = 4, TILE_M = 2 };

#define ST_DIRECT_M 1
#define ST_DIRECT_MOST 1

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

ST_FN vf v_zero(void) { return (vf){0, 0, 0, 0}; }
ST_FN vf v_all(float a) { return (vf){a, a, a, a}; }
ST_FN vf v_load(const float *p) {
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
ST_FN void v_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
ST_FN vf v_keep(vf a) { return a; }
ST_FN vf v_add(vf a, vf b) { return a + b; }
ST_FN vf v_sub(vf a, vf b) { return a - b; }
ST_FN vf v_mul(vf a, vf b) { return a * b; }
ST_FN vf v_div(vf a, vf b) { return a / b; }
ST_FN vf v_pick(vi yes, vf a, vf b) { return (vf)((yes & (vi)a) | (~yes & (vi)b)); }
ST_FN vf v_min(vf a, vf b) { return v_pick(a < b, a, b); }
ST_FN vf v_max(vf a, vf b) { return v_pick(a > b, a, b); }
ST_FN vf v_fma(vf a, vf b, vf c) { return a * b + c; }
ST_FN vf v_pow2(vf t) { return (vf)(((vi)t << 23) + 0x3f800000); }

/* Lane l with l + 2, then 1. */
ST_FN float v_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }

ST_FN void v_sums(float *out, const vf *a, int stride) {
    for (int i = 0; i < TILE_N; i++) out[i] = v_sum(a[i * stride]);
}

/* Codes stay where they lie among four: lane l's scale carries the 2^-(bits * l) that moves it, an exact factor. */
typedef struct {
    vf scale, bias;
} vgroup;

ST_FN vgroup v_group(int bits, const float *scale, const float *bias) {
    vgroup group = {v_all(*scale), v_all(*bias)};
    if (bits < 8) {
        float step = 1.0f / (float)(1 << bits);
        group.scale *= (vf){1, step, step * step, step * step * step};
    }
    return group;
}

/* The four weights from index k of a row; for 16 and 32 bits, of stored numbers. */
ST_FN vf v_weights(int bits, int type, vgroup group, const uint8_t *row, uint64_t k) {
    if (bits >= 16) {
        float wide[LANES];
        st_widen(wide, row, bits == 32 ? ST_F32 : type, k, LANES);
        return v_load(wide);
    }
    int32_t codes = (int32_t)st_four_codes(bits, row, k), one = (1 << bits) - 1;
    vi q;
    if (bits == 8) {
        q = (vi){codes & one, codes >> 8 & one, codes >> 16 & one, codes >> 24 & one};
    } else {
        q = (vi){codes, codes, codes, codes} & (vi){one, one << bits, one << 2 * bits, one << 3 * bits};
    }
    return __builtin_convertvector(q, vf) * group.scale + group.bias;
}

#endif
