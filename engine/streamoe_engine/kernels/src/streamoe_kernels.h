/* The C boundary of the CPU kernels: plain pointers and sizes, no Python objects, no policy.
 *
 * Exactness rule: the order in which one output is summed depends on the number of columns alone. Threads, rows
 * multiplied together, cuts of the work and alignment never change a bit. Instruction sets may differ from each
 * other, but ST_AMX (AVX-512 and matrix tiles) has the bits of ST_AVX512; a pool keeps the one it was made with.
 */
#ifndef STREAMOE_KERNELS_H
#define STREAMOE_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ST_API __attribute__((visibility("default")))

/* Raised by one whenever a struct or a signature here changes: a stale build is then refused, not called. */
#define ST_ABI 4
ST_API int st_abi(void);

/* Instruction sets. */
enum { ST_PORTABLE = 0, ST_AVX2 = 1, ST_AVX512 = 2, ST_NEON = 3, ST_AMX = 4, ST_ISA_COUNT = 5 };
ST_API int st_isa_available(int isa); /* 1 if compiled in and this processor has it */
ST_API int st_isa_best(void);

/* A pool of threads - 1 workers and whoever calls. One caller at a time gets the workers; a second one, or a task
 * that calls st_parallel itself, does its work alone. NULL where a thread cannot be made. */
typedef struct st_pool st_pool;
ST_API st_pool *st_pool_new(int threads);               /* with the best instruction set */
ST_API st_pool *st_pool_new_for(int threads, int isa);  /* NULL too where `isa` is not available */
ST_API void st_pool_free(st_pool *);
ST_API int st_pool_isa(const st_pool *);
ST_API int st_pool_threads(const st_pool *);

/* Runs task over [0, count) in pieces of at most `grain` (the last may be shorter; a job too small to share is one
 * piece). Returns when all is done. The caller works too and never waits for a worker that is asleep. */
typedef void (*st_task)(void *context, int64_t begin, int64_t end);
ST_API void st_parallel(st_pool *, st_task, void *context, int64_t count, int64_t grain);

/* A matrix of `rows` outputs and `cols` inputs, cols a multiple of `group`.
 *
 * bits 2, 3, 4, 5, 6, 8: MLX's affine packing. A row is a little-endian stream of cols * bits bits; the weight of
 *   code q is scale * q + bias, with one scale and one bias per `group` (32, 64 or 128) inputs.
 * bits 16, 32: no codes; weights are of scale_type (bfloat16 or float16, float32), scales and biases are unused,
 *   group is 32.
 */
enum { ST_F32 = 0, ST_BF16 = 1, ST_F16 = 2 };
typedef struct {
    int32_t bits, group, scale_type, reserved;
    int64_t rows, cols;
    const void *weight, *scales, *biases;
    const float *bias; /* one per output, or NULL */
} st_matrix;

/* y[i][n] = sum over k of weight[n][k] * x[i][k] (+ bias[n]); strides in floats. */
ST_API void st_matmul(st_pool *, const st_matrix *, const float *x, int64_t m, int64_t x_stride, float *y,
                      int64_t y_stride);

/* A gated expert: down(silu(gate(x)) * up(x)). The pointers of its matrices count from the start of a record
 * (a resident expert is a record at address 0); `bias` must be NULL. */
typedef struct {
    st_matrix gate, up, down;
} st_expert;

/* One row x through `count` experts at the given record addresses: expert i's output is row places[i] of y (NULL: row
 * i). hidden is scratch, count * gate.rows floats. Experts do not touch each other: any split of `records` gives the
 * same bits. */
ST_API void st_expert_token(st_pool *, const st_expert *, const uint64_t *records, const int64_t *places,
                            int64_t count, const float *x, float *hidden, float *y, int64_t y_stride);

/* Rows [first_row, first_row + rows) of x through the expert at `record`, into the same rows of y. hidden is scratch,
 * gate.rows floats for each row of x. The bits of a row are those of st_expert_token. */
typedef struct {
    uint64_t record;
    int64_t first_row, rows;
} st_group;
ST_API void st_expert_rows(st_pool *, const st_expert *, const st_group *groups, int64_t count, const float *x,
                           int64_t x_stride, float *hidden, float *y, int64_t y_stride);

#ifdef __cplusplus
}
#endif
#endif
