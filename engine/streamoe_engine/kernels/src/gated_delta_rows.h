/* The gated delta rule of one key head and its value heads, for the instruction set of the including file.
 *
 * Per token and row of a value head's state S (value_dim rows of key_dim), as in mlx-lm's gated_delta.py:
 *   S *= decay;  S += k * beta * (v - S . k);  out = S . q
 * preceded by a causal convolution of four taps with silu and by the l2 normalisation of q and k, followed by the
 * gated norm. Tokens are taken one after the other, in runs: a run's q, k, v and 16 rows of S stay in a first-level
 * cache. Rows of S know nothing of each other, so that neither runs nor cores change a bit.
 */
#ifndef ST_GATED_DELTA_ROWS_H
#define ST_GATED_DELTA_ROWS_H

#include "norm_rows.h"

enum { ST_RUN = 16, ST_ROWS = 16 };

typedef struct {
    float query[ST_RUN * ST_MAX_HEAD_DIM], key[ST_RUN * ST_MAX_HEAD_DIM], value[ST_RUN * ST_MAX_HEAD_DIM];
} st_run;

/* Row `token` of the raw projections, or what the convolution kept of earlier ones (token < 0). */
ST_INLINE const float *raw_row(const st_gated_delta *d, int64_t first, int64_t token)
{
    const int64_t channels = st_gated_delta_channels(d);
    return token < 0 ? d->conv_state + (ST_CONV_TAPS - 1 + token) * channels : d->mixed + (first + token) * channels;
}

/* silu of the convolution of channels channel.. for tokens first.. to out (tokens, count); keeps the last rows. */
static void convolve(const st_gated_delta *d, int64_t first, int64_t tokens, int64_t channel, int64_t count, float *out)
{
    const int64_t channels = st_gated_delta_channels(d);
    const float *weight = d->conv_weight + channel;
    for (int64_t t = 0; t < tokens; t++) {
        const float *oldest = raw_row(d, first, t - 3) + channel, *older = raw_row(d, first, t - 2) + channel;
        const float *last = raw_row(d, first, t - 1) + channel, *now = raw_row(d, first, t) + channel;
        for (int64_t c = 0; c < count; c += 16) {
            st_v16 sum = v16_mul(v16_load(oldest + c), v16_load(weight + c));
            sum = v16_fma(v16_load(older + c), v16_load(weight + channels + c), sum);
            sum = v16_fma(v16_load(last + c), v16_load(weight + 2 * channels + c), sum);
            sum = v16_fma(v16_load(now + c), v16_load(weight + 3 * channels + c), sum);
            v16_store(out + t * count + c, v16_silu(sum));
        }
    }
    for (int64_t kept = 0; kept < ST_CONV_TAPS - 1; kept++)
        memmove(d->conv_state + kept * channels + channel,
                raw_row(d, first, tokens - (ST_CONV_TAPS - 1) + kept) + channel, (size_t)count * sizeof(float));
}

/* l2 norms with eps 1e-6 under the root; the readout's key_dim^-1/2 goes into q. */
static void normalize(const st_gated_delta *d, int64_t tokens, st_run *run)
{
    const float inverse = 1.0f / sqrtf((float)d->key_dim), eps = 1e-6f * inverse * inverse;
    for (int64_t t = 0; t < tokens; t++) {
        float *q = run->query + t * d->key_dim, *k = run->key + t * d->key_dim;
        rms_norm(q, 0, eps, inverse * inverse, d->key_dim, q);
        rms_norm(k, 0, eps, inverse, d->key_dim, k);
    }
}

/* Four rows of S through one token. value: v of these rows in, their outputs out. */
ST_INLINE void step_rows(float *state, int64_t dim, const float *q, const float *k, float decay, float beta, float *value)
{
    float sums[4];
    const st_v16 g = v16_of(decay);
    st_v16 s0 = v16_of(0), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t c = 0; c < dim; c += 16) {
        const st_v16 key = v16_load(k + c);
        s0 = v16_fma(v16_mul(v16_load(state + c), g), key, s0);
        s1 = v16_fma(v16_mul(v16_load(state + dim + c), g), key, s1);
        s2 = v16_fma(v16_mul(v16_load(state + 2 * dim + c), g), key, s2);
        s3 = v16_fma(v16_mul(v16_load(state + 3 * dim + c), g), key, s3);
    }
    v16_sum4(s0, s1, s2, s3, sums);
    const st_v16 d0 = v16_of((value[0] - sums[0]) * beta), d1 = v16_of((value[1] - sums[1]) * beta);
    const st_v16 d2 = v16_of((value[2] - sums[2]) * beta), d3 = v16_of((value[3] - sums[3]) * beta);
    s0 = s1 = s2 = s3 = v16_of(0);
    for (int64_t c = 0; c < dim; c += 16) {
        const st_v16 key = v16_load(k + c), query = v16_load(q + c);
        const st_v16 r0 = v16_fma(key, d0, v16_mul(v16_load(state + c), g));
        const st_v16 r1 = v16_fma(key, d1, v16_mul(v16_load(state + dim + c), g));
        const st_v16 r2 = v16_fma(key, d2, v16_mul(v16_load(state + 2 * dim + c), g));
        const st_v16 r3 = v16_fma(key, d3, v16_mul(v16_load(state + 3 * dim + c), g));
        v16_store(state + c, r0);
        v16_store(state + dim + c, r1);
        v16_store(state + 2 * dim + c, r2);
        v16_store(state + 3 * dim + c, r3);
        s0 = v16_fma(r0, query, s0);
        s1 = v16_fma(r1, query, s1);
        s2 = v16_fma(r2, query, s2);
        s3 = v16_fma(r3, query, s3);
    }
    v16_sum4(s0, s1, s2, s3, value);
}

static void run_value_head(const st_gated_delta *d, int64_t first, int64_t tokens, int64_t head, st_run *run)
{
    const int64_t keys = d->key_dim, values = d->value_dim, heads = d->value_heads;
    float *state = d->state + head * values * keys;
    for (int64_t row = 0; row < values; row += ST_ROWS)
        for (int64_t t = 0; t < tokens; t++) {
            const float decay = d->decay[(first + t) * heads + head], beta = d->beta[(first + t) * heads + head];
            /* Fours of one token are independent: the processor overlaps them. */
            for (int64_t four = row; four < row + ST_ROWS; four += 4)
                step_rows(state + four * keys, keys, run->query + t * keys, run->key + t * keys, decay, beta,
                          run->value + t * values + four);
        }
}

static void gated_delta(const st_gated_delta *d, int64_t key_head)
{
    st_run run;
    const int64_t keys = d->key_dim, values = d->value_dim, channels = st_gated_delta_channels(d);
    const int64_t all_keys = d->key_heads * keys, heads_a_key = d->value_heads / d->key_heads;
    for (int64_t first = 0; first < d->tokens; first += ST_RUN) {
        const int64_t tokens = d->tokens - first < ST_RUN ? d->tokens - first : ST_RUN;
        convolve(d, first, tokens, key_head * keys, keys, run.query);
        convolve(d, first, tokens, all_keys + key_head * keys, keys, run.key);
        normalize(d, tokens, &run);
        for (int64_t head = key_head * heads_a_key; head < (key_head + 1) * heads_a_key; head++) {
            const int64_t channel = 2 * all_keys + head * values;
            convolve(d, first, tokens, channel, values, run.value);
            run_value_head(d, first, tokens, head, &run);
            for (int64_t t = 0; t < tokens; t++) {
                float *out = run.value + t * values;
                rms_norm(out, d->norm_weight, d->norm_eps, 1.0f, values, out);
                silu_mul(d->gate + ((first + t) * d->value_heads + head) * values, out, values,
                         d->mixed + (first + t) * channels + channel);
            }
        }
    }
}

#endif
