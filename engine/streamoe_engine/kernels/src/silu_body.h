/* The activation silu(gate) * up over the vectors of a vec_*.h.
 *
 * Exactness rule: every lane computes the same, so an element's bits do not depend on where it lies; the end of an
 * array goes through a padded vector.
 */
#include "isa.h"

/* e^x for x in [-87, 88] (clamped), within 1.3 units in the last place. 2^n * e^r with n = round(x / ln 2); r in
 * [-ln2/2, ln2/2] by a two-part ln 2 whose first part has 15 bits, so that n times it is exact; e^r = 1 + r + r^2 p(r),
 * p fitted to that interval for the least relative error (0.0009 units). */
ST_FN vf v_exp(vf x) {
    const vf shift = v_all(0x1.8p23f);
    x = v_max(v_all(-87.0f), v_min(v_all(88.0f), x));
    vf t = v_fma(x, v_all(0x1.715476p0f), shift);
    vf n = v_sub(t, shift);
    vf r = v_fma(n, v_all(-0x1.62e4p-1f), x);
    r = v_fma(n, v_all(-0x1.7f7d1cp-20f), r);
    vf p = v_all(0x1.9f0896p-13f);
    p = v_fma(p, r, v_all(0x1.6d8d08p-10f));
    p = v_fma(p, r, v_all(0x1.111270p-7f));
    p = v_fma(p, r, v_all(0x1.55548ep-5f));
    p = v_fma(p, r, v_all(0x1.555554p-3f));
    p = v_fma(p, r, v_all(0.5f));
    vf e = v_fma(v_mul(r, r), p, r);
    return v_mul(v_add(e, v_all(1.0f)), v_pow2(t));
}

ST_FN vf v_silu_mul(vf gate, vf up) {
    vf one = v_all(1.0f);
    return v_mul(v_div(gate, v_add(one, v_exp(v_sub(v_zero(), gate)))), up);
}

static ST_TARGET void silu_mul(float *gate, const float *up, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) v_store(gate + i, v_silu_mul(v_load(gate + i), v_load(up + i)));
    if (i == count) return;
    float g[LANES] = {0}, u[LANES] = {0};
    memcpy(g, gate + i, (size_t)(count - i) * sizeof *g);
    memcpy(u, up + i, (size_t)(count - i) * sizeof *u);
    v_store(g, v_silu_mul(v_load(g), v_load(u)));
    memcpy(gate + i, g, (size_t)(count - i) * sizeof *g);
}
