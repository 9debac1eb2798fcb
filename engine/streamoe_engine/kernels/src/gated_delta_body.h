/* The gated delta rule of one key head and its value heads, over the vectors of a vec_*.h.
 *
 * Per token and value head, with S of value_dim rows and key_dim columns (mlx-lm's gated_delta.py):
 *     S *= decay;  S += beta * (v - S k) k^T;  out = S q
 * before it a causal convolution of four taps with silu, and l2 norms of q and k; after it the gated norm. Tokens go
 * one after the other. Rows of S know nothing of each other, so that no cut changes a bit; a run of tokens passes a
 * few rows at once, which with the run's q, k and v stay in the first-level cache.
 */
#ifndef STREAMOE_GATED_DELTA_BODY_H
#define STREAMOE_GATED_DELTA_BODY_H

#include "norm_body.h"

typedef struct {
    float query[ST_RUN_TOKENS * ST_MAX_HEAD_DIM], key[ST_RUN_TOKENS * ST_MAX_HEAD_DIM];
    float value[ST_RUN_TOKENS * ST_MAX_HEAD_DIM]; /* v in, out in its place */
    float decay[ST_RUN_TOKENS], beta[ST_RUN_TOKENS];
} token_run;

/* The projections of a run's token, or of one before the run that the convolution has kept. */
ST_FN float *projected(const st_gated_delta *d, int64_t first, int64_t token) {
    const int64_t width = st_gated_delta_width(d);
    return token < 0 ? d->conv_state + (ST_CONV_TAPS - 1 + token) * width : d->mixed + (first + token) * width;
}

/* out (tokens, count) = silu of the convolution of channels from `channel`; keeps the last tokens for the next run. */
static ST_TARGET void convolve(const st_gated_delta *d, int64_t first, int64_t tokens, int64_t channel, int64_t count,
                               float *out) {
    const int64_t width = st_gated_delta_width(d);
    const float *taps = d->conv_weight + channel;
    for (int64_t t = 0; t < tokens; t++) {
        const float *in[ST_CONV_TAPS];
        for (int64_t tap = 0; tap < ST_CONV_TAPS; tap++) in[tap] = projected(d, first, t + tap - 3) + channel;
        for (int64_t c = 0; c < count; c += LANES) {
            vf sum = v_mul(v_load(in[0] + c), v_load(taps + c));
            for (int64_t tap = 1; tap < ST_CONV_TAPS; tap++) {
                sum = v_fma(v_load(in[tap] + c), v_load(taps + tap * width + c), sum);
            }
            v_store(out + t * count + c, v_silu(sum));
        }
    }
    for (int64_t kept = 1 - ST_CONV_TAPS; kept < 0; kept++) {
        memmove(projected(d, first, kept) + channel, projected(d, first, tokens + kept) + channel,
                (size_t)count * sizeof *out);
    }
}

/* l2 norms, 1e-6 under the root; key_dim^-1/2, the scale of the readout, goes into q. */
static ST_TARGET void normalize(int64_t key_dim, int64_t tokens, token_run *run) {
    const float factor = 1.0f / sqrtf((float)key_dim), eps = 1e-6f * factor * factor;
    for (int64_t t = 0; t < tokens; t++) {
        float *q = run->query + t * key_dim, *k = run->key + t * key_dim;
        rms_norm(q, NULL, eps, factor * factor, key_dim, q);
        rms_norm(k, NULL, eps, factor, key_dim, k);
    }
}

/* One token through TILE_N rows of S. value: v of these rows, replaced by their outputs. */
ST_FN void step_rows(float *state, int64_t dim, const float *q, const float *k, float decay, float beta,
                     float *value) {
    const vf g = v_all(decay);
    vf sums[TILE_N], change[TILE_N];
    float kept[TILE_N];
    for (int i = 0; i < TILE_N; i++) sums[i] = v_zero();
    for (int64_t c = 0; c < dim; c += LANES) {
        vf key = v_load(k + c);
        for (int i = 0; i < TILE_N; i++) sums[i] = v_fma(v_mul(v_load(state + i * dim + c), g), key, sums[i]);
    }
    v_sums(kept, sums, 1);
    for (int i = 0; i < TILE_N; i++) {
        change[i] = v_all((value[i] - kept[i]) * beta);
        sums[i] = v_zero();
    }
    for (int64_t c = 0; c < dim; c += LANES) {
        vf key = v_load(k + c), query = v_load(q + c);
        for (int i = 0; i < TILE_N; i++) {
            float *at = state + i * dim + c;
            vf row = v_fma(key, change[i], v_mul(v_load(at), g));
            v_store(at, row);
            sums[i] = v_fma(row, query, sums[i]);
        }
    }
    v_sums(value, sums, 1);
}

static ST_TARGET void run_head(const st_gated_delta *d, int64_t tokens, int64_t head, token_run *run) {
    enum { ROWS = 16 }; /* independent chains for the processor to overlap */
    const int64_t keys = d->key_dim, values = d->value_dim;
    float *state = d->state + head * values * keys;
    for (int64_t row = 0; row < values; row += ROWS) {
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t n = row; n < row + ROWS; n += TILE_N) {
                step_rows(state + n * keys, keys, run->query + t * keys, run->key + t * keys, run->decay[t],
                          run->beta[t], run->value + t * values + n);
            }
        }
    }
}

/* The run's outputs of one head, normed and gated, to where its v was. */
static ST_TARGET void leave(const st_gated_delta *d, int64_t first, int64_t tokens, int64_t head, token_run *run) {
    const int64_t values = d->value_dim, channel = 2 * d->key_heads * d->key_dim + head * values;
    for (int64_t t = 0; t < tokens; t++) {
        float *out = run->value + t * values;
        rms_norm(out, d->norm_weight, d->norm_eps, 1.0f, values, out);
        silu_mul_rows(d->gate + ((first + t) * d->value_heads + head) * values, out, values,
                      projected(d, first, t) + channel);
    }
}

static ST_TARGET void gated_delta(const st_gated_delta *d, int64_t key_head) {
    token_run run;
    const int64_t keys = d->key_dim, all_keys = d->key_heads * keys, heads = d->value_heads / d->key_heads;
    for (int64_t first = 0; first < d->tokens; first += ST_RUN_TOKENS) {
        const int64_t tokens = d->tokens - first < ST_RUN_TOKENS ? d->tokens - first : ST_RUN_TOKENS;
        convolve(d, first, tokens, key_head * keys, keys, run.query);
        convolve(d, first, tokens, all_keys + key_head * keys, keys, run.key);
        normalize(keys, tokens, &run);
        for (int64_t head = key_head * heads; head < (key_head + 1) * heads; head++) {
            convolve(d, first, tokens, 2 * all_keys + head * d->value_dim, d->value_dim, run.value);
            st_delta_gates(d, head, first, tokens, run.decay, run.beta);
            run_head(d, tokens, head, &run);
            leave(d, first, tokens, head, &run);
        }
    }
}

#endif
