/* Functions of one variable over the vectors of a vec_*.h, which the including file has chosen.
 *
 * Exactness rule: every lane computes the same; an element's bits do not depend on where it lies.
 */
#ifndef STREAMOE_VEC_MATH_H
#define STREAMOE_VEC_MATH_H

/* e^x within 1.5 units in the last place; below -87 it stays at e^-87, above 88 at e^88; NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which n times the first is exact; then Taylor to r^7,
 * whose next term is below 6e-9. */
ST_FN vf v_exp(vf x) {
    const vf rounder = v_all(0x1.8p23f); /* adding it rounds to integers */
    x = v_max(v_all(-87.0f), v_min(v_all(88.0f), x));
    vf shifted = v_fma(x, v_all(0x1.715476p0f), rounder);
    vf n = v_sub(shifted, rounder);
    vf r = v_fma(n, v_all(-0x1.63p-1f), x);
    r = v_fma(n, v_all(0x1.bd0106p-13f), r);
    vf sum = v_fma(r, v_all(1.0f / 5040), v_all(1.0f / 720));
    sum = v_fma(sum, r, v_all(1.0f / 120));
    sum = v_fma(sum, r, v_all(1.0f / 24));
    sum = v_fma(sum, r, v_all(1.0f / 6));
    sum = v_fma(sum, r, v_all(0.5f));
    sum = v_fma(sum, v_mul(r, r), r);
    return v_mul(v_add(sum, v_all(1.0f)), v_pow2(shifted));
}

/* 1 / (1 + e^-x) */
ST_FN vf v_sigmoid(vf x) {
    const vf one = v_all(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
}

/* x * sigmoid(x) */
ST_FN vf v_silu(vf x) { return v_div(x, v_add(v_all(1.0f), v_exp(v_sub(v_zero(), x)))); }

#endif
