/* The activation of gated experts over the vectors of a vec_*.h.
 *
 * Exactness rule: every lane computes the same, so an element's bits do not depend on where it lies; the end of an
 * array goes through a padded vector.
 */
#include "isa.h"
#include "vec_math.h"

static ST_TARGET void silu_mul(float *gate, const float *up, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) v_store(gate + i, v_mul(v_silu(v_load(gate + i)), v_load(up + i)));
    if (i == count) return;
    float g[LANES] = {0}, u[LANES] = {0};
    memcpy(g, gate + i, (size_t)(count - i) * sizeof *g);
    memcpy(u, up + i, (size_t)(count - i) * sizeof *u);
    v_store(g, v_mul(v_silu(v_load(g)), v_load(u)));
    memcpy(gate + i, g, (size_t)(count - i) * sizeof *g);
}
