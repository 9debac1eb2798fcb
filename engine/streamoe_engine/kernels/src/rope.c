/* Owns rotation angles. They come from double: at position 100,000 a float angle would be off by 0.004. */
#include "mix.h"

#include <math.h>

void st_rope_table(const int32_t *positions, int64_t tokens, int64_t half, double base, float *table) {
    for (int64_t i = 0; i < half; i++) {
        const double frequency = pow(base, -(double)i / (double)half);
        for (int64_t t = 0; t < tokens; t++) {
            const double angle = positions[t] * frequency;
            table[t * 2 * half + i] = (float)cos(angle);
            table[t * 2 * half + half + i] = (float)sin(angle);
        }
    }
}
