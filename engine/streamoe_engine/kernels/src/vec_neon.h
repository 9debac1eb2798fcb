/* Four lanes of NEON, on every 64-bit ARM. */
#ifndef STREAMOE_VEC_H
#define STREAMOE_VEC_H

#include <arm_neon.h>

#include "numbers.h"

#define ST_TARGET
#define ST_FN static inline __attribute__((always_inline))

enum { LANES = 4, TILE_N = 8, TILE_M = 2 };

#define ST_DIRECT_M 4
#define ST_DIRECT_MOST 4

typedef float32x4_t vf;

ST_FN vf v_zero(void) { return vdupq_n_f32(0); }
ST_FN vf v_all(float a) { return vdupq_n_f32(a); }
ST_FN vf v_load(const float *p) { return vld1q_f32(p); }
ST_FN void v_store(float *p, vf a) { vst1q_f32(p, a); }
ST_FN vf v_keep(vf a) {
    __asm__("" : "+w"(a));
    return a;
}
ST_FN vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
ST_FN vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
ST_FN vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
ST_FN vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
ST_FN vf v_min(vf a, vf b) { return vminq_f32(a, b); }
ST_FN vf v_max(vf a, vf b) { return vmaxq_f32(a, b); }
ST_FN vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
ST_FN vf v_pow2(vf t) {
    int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(n, vdupq_n_s32(0x3f800000)));
}

/* Lane l with l + 2, then 1. */
ST_FN float v_sum(vf a) {
    float32x2_t two = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

ST_FN void v_sums(float *out, const vf *a, int stride) {
    for (int i = 0; i < TILE_N; i++) out[i] = v_sum(a[i * stride]);
}

typedef struct {
    vf scale, bias;
} vgroup;

ST_FN vgroup v_group(int bits, const float *scale, const float *bias) {
    (void)bits;
    return (vgroup){v_all(*scale), v_all(*bias)};
}

/* The four weights from index k of a row; for 16 and 32 bits, of stored numbers. */
ST_FN vf v_weights(int bits, int type, vgroup group, const uint8_t *row, uint64_t k) {
    if (bits >= 16) {
        float wide[LANES];
        st_widen(wide, row, bits == 32 ? ST_F32 : type, k, LANES);
        return v_load(wide);
    }
    const int32_t right[LANES] = {0, -bits, -2 * bits, -3 * bits};
    uint32x4_t q = vshlq_u32(vdupq_n_u32(st_four_codes(bits, row, k)), vld1q_s32(right));
    q = vandq_u32(q, vdupq_n_u32((1u << bits) - 1));
    return v_fma(vcvtq_f32_u32(q), group.scale, group.bias);
}

#endif
