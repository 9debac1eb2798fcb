/* Owns the worker threads: one job at a time, cut into a part for each of them, which it walks chunk by chunk.
 *
 * Parts are walked in order, so that what a thread reads is a stream. Who is done takes over half of what another has
 * left, from its end. Nobody waits for a sleeper: a worker joins a job only while it is open, and the caller, having
 * seen every part empty, closes the job and waits only for those that joined.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "streamoe_kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "isa.h"

enum {
    CACHE_LINE = 64,
    /* How long a worker looks for the next job before it sleeps: bridges what lies between two matrices, and between
     * two calls from Python. */
    SPIN_NS = 50000,
    /* Waking a sleeper takes the caller 8 us and the sleeper 30 (measured under KVM): less work than this is done
     * sooner alone. */
    WORTH_WAKING_NS = 40000,
};

typedef struct {
    st_task task;
    void *context;
    int64_t count, grain;
} job;

/* What a thread has yet to do: chunks [first, end), as first << 32 | end. */
typedef struct {
    _Alignas(CACHE_LINE) atomic_ullong chunks;
} part;

struct st_pool {
    part *parts; /* of the caller, then of each worker */
    _Alignas(CACHE_LINE) atomic_uint generation;
    atomic_int joined;
    atomic_bool stop, scratch_taken;
    pthread_mutex_t lock, caller;
    pthread_cond_t work, done;
    job current;
    int is_open, sleepers, num_workers, isa;
    pthread_t *workers;
    uint8_t *scratch; /* of ST_READY_BYTES; pages nobody touches cost nothing */
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t pack(uint64_t first, uint64_t end) { return first << 32 | end; }

static int64_t chunks_left(uint64_t chunks) { return (int64_t)(uint32_t)chunks - (int64_t)(chunks >> 32); }

/* The first chunk of a part; -1 where it is empty. */
static int64_t take_first(part *own) {
    uint64_t seen = atomic_load(&own->chunks);
    while (chunks_left(seen) > 0) {
        if (atomic_compare_exchange_weak(&own->chunks, &seen, pack((seen >> 32) + 1, (uint32_t)seen))) {
            return (int64_t)(seen >> 32);
        }
    }
    return -1;
}

/* Moves the second half of the fullest other part to `own`, which is empty; 0 where all are. */
static int take_over(st_pool *pool, part *own) {
    for (;;) {
        part *fullest = NULL;
        uint64_t seen = 0;
        for (int i = 0; i <= pool->num_workers; i++) {
            const uint64_t chunks = atomic_load(&pool->parts[i].chunks);
            if (chunks_left(chunks) > chunks_left(seen)) fullest = &pool->parts[i], seen = chunks;
        }
        if (fullest == NULL) return 0;
        const uint64_t first = seen >> 32, end = (uint32_t)seen, middle = first + (end - first) / 2;
        if (!atomic_compare_exchange_strong(&fullest->chunks, &seen, pack(first, middle))) continue;
        atomic_store(&own->chunks, pack(middle, end));
        return 1;
    }
}

/* Does one chunk; 0 when there is none left. */
static int run_chunk(st_pool *pool, const job *work, part *own) {
    int64_t chunk;
    while ((chunk = take_first(own)) < 0) {
        if (!take_over(pool, own)) return 0;
    }
    const int64_t begin = chunk * work->grain;
    work->task(work->context, begin, begin + work->grain < work->count ? begin + work->grain : work->count);
    return 1;
}

/* Cuts a job's chunks into a part for each thread. */
static void cut(st_pool *pool, const job *work) {
    const uint64_t chunks = (uint64_t)((work->count + work->grain - 1) / work->grain);
    const uint64_t parts = (uint64_t)pool->num_workers + 1;
    for (uint64_t i = 0; i < parts; i++) {
        atomic_store(&pool->parts[i].chunks, pack(chunks * i / parts, chunks * (i + 1) / parts));
    }
}

/* Waits for a generation other than `seen`: spins shortly, then sleeps. Returns with the lock held. */
static void await_work(st_pool *pool, unsigned seen) {
    const int64_t until = now_ns() + SPIN_NS;
    while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop) && now_ns() < until) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop)) {
        pool->sleepers++;
        pthread_cond_wait(&pool->work, &pool->lock);
        pool->sleepers--;
    }
}

typedef struct {
    st_pool *pool;
    part *own;
} worker_start;

static void *worker(void *argument) {
    const worker_start start = *(worker_start *)argument;
    free(argument);
    st_pool *pool = start.pool;
    unsigned seen = 0;
    for (;;) {
        await_work(pool, seen);
        if (atomic_load(&pool->stop)) break;
        seen = atomic_load(&pool->generation);
        int may_join = pool->is_open;
        job work = pool->current;
        if (may_join) atomic_fetch_add(&pool->joined, 1);
        pthread_mutex_unlock(&pool->lock);
        if (!may_join) continue;
        while (run_chunk(pool, &work, start.own)) {}
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->joined, 1) == 1) pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Lets workers that are awake join at once. Returns whether others sleep. */
static int open_job(st_pool *pool, job work) {
    pthread_mutex_lock(&pool->lock);
    pool->current = work;
    cut(pool, &work);
    pool->is_open = 1;
    atomic_fetch_add(&pool->generation, 1);
    const int some_sleep = pool->sleepers > 0;
    pthread_mutex_unlock(&pool->lock);
    return some_sleep;
}

/* Does the first chunk, and wakes the sleepers if what is left then takes long enough. */
static void run_first_chunk(st_pool *pool, const job *work) {
    const int64_t start = now_ns();
    if (!run_chunk(pool, work, pool->parts)) return;
    int64_t left = 0;
    for (int i = 0; i <= pool->num_workers; i++) left += chunks_left(atomic_load(&pool->parts[i].chunks));
    if (left > 0 && (now_ns() - start) * left > WORTH_WAKING_NS) pthread_cond_broadcast(&pool->work);
}

static void close_job(st_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_open = 0;
    pthread_mutex_unlock(&pool->lock);
    const int64_t until = now_ns() + SPIN_NS;
    while (atomic_load(&pool->joined) > 0 && now_ns() < until) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->joined) > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void st_parallel(st_pool *pool, st_task task, void *context, int64_t count, int64_t grain) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    if (count <= grain || pool->num_workers == 0 || pthread_mutex_trylock(&pool->caller) != 0) {
        task(context, 0, count);
        return;
    }
    job work = {task, context, count, grain};
    if (open_job(pool, work)) run_first_chunk(pool, &work);
    while (run_chunk(pool, &work, pool->parts)) {}
    close_job(pool);
    pthread_mutex_unlock(&pool->caller);
}

static int start_worker(st_pool *pool) {
    worker_start *start = malloc(sizeof *start);
    if (start == NULL) return 0;
    *start = (worker_start){pool, &pool->parts[pool->num_workers + 1]};
    if (pthread_create(&pool->workers[pool->num_workers], NULL, worker, start) != 0) {
        free(start);
        return 0;
    }
    pool->num_workers++;
    return 1;
}

st_pool *st_pool_new_for(int threads, int isa) {
    if (threads < 1 || !st_isa_available(isa)) return NULL;
    st_pool *pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (pool == NULL) return NULL;
    *pool = (st_pool){.isa = isa};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->caller, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    pool->scratch = aligned_alloc(CACHE_LINE, ST_READY_BYTES);
    pool->parts = aligned_alloc(CACHE_LINE, (size_t)threads * sizeof *pool->parts);
    for (int i = 0; pool->parts != NULL && i < threads; i++) atomic_init(&pool->parts[i].chunks, 0);
    while (pool->workers != NULL && pool->scratch != NULL && pool->parts != NULL && pool->num_workers < threads - 1) {
        if (!start_worker(pool)) break;
    }
    if (pool->num_workers < threads - 1 || pool->workers == NULL || pool->scratch == NULL || pool->parts == NULL) {
        st_pool_free(pool);
        return NULL;
    }
    return pool;
}

st_pool *st_pool_new(int threads) { return st_pool_new_for(threads, st_isa_best()); }

void st_pool_free(st_pool *pool) {
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->num_workers; i++) pthread_join(pool->workers[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->caller);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    free(pool->workers);
    free(pool->scratch);
    free(pool->parts);
    free(pool);
}

uint8_t *st_pool_take_scratch(st_pool *pool) {
    return atomic_exchange(&pool->scratch_taken, 1) ? NULL : pool->scratch;
}

int st_pool_return_scratch(st_pool *pool, const uint8_t *scratch) {
    if (scratch != pool->scratch) return 0;
    atomic_store(&pool->scratch_taken, 0);
    return 1;
}

int st_pool_isa(const st_pool *pool) { return pool->isa; }

int st_pool_threads(const st_pool *pool) { return pool->num_workers + 1; }
