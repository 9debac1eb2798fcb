/* Owns the worker threads: one job at a time, cut into chunks that a shared counter hands out.
 *
 * Nobody waits for a sleeper: a worker joins a job only while it is open, and the caller, having seen the counter
 * run out, closes the job and waits only for those that joined.
 */
#include "streamoe_kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "isa.h"

/* About 10 microseconds: long enough to bridge the gap between two matrices of a layer, too short to matter to the
 * threads that a waiting worker keeps from the core. */
enum { SPINS = 300, CACHE_LINE = 64 };

typedef struct {
    st_task task;
    void *context;
    int64_t count, grain;
} job;

struct st_pool {
    _Alignas(CACHE_LINE) atomic_llong next; /* first index nobody has taken */
    _Alignas(CACHE_LINE) atomic_uint generation;
    atomic_int joined;
    atomic_bool stop;
    pthread_mutex_t lock, caller;
    pthread_cond_t work, done;
    job current;
    int is_open, sleepers, num_workers, isa;
    pthread_t *workers;
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_chunks(st_pool *pool, const job *work) {
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, work->grain, memory_order_relaxed);
        if (begin >= work->count) return;
        int64_t end = begin + work->grain < work->count ? begin + work->grain : work->count;
        work->task(work->context, begin, end);
    }
}

/* Waits for a generation other than `seen`: spins shortly, then sleeps. Returns with the lock held. */
static void await_work(st_pool *pool, unsigned seen) {
    for (int i = 0; i < SPINS && atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop); i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == seen && !atomic_load(&pool->stop)) {
        pool->sleepers++;
        pthread_cond_wait(&pool->work, &pool->lock);
        pool->sleepers--;
    }
}

static void *worker(void *argument) {
    st_pool *pool = argument;
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
        run_chunks(pool, &work);
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->joined, 1) == 1) pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void open_job(st_pool *pool, job work) {
    pthread_mutex_lock(&pool->lock);
    pool->current = work;
    atomic_store(&pool->next, 0);
    pool->is_open = 1;
    atomic_fetch_add(&pool->generation, 1);
    int sleepers = pool->sleepers;
    pthread_mutex_unlock(&pool->lock);
    if (sleepers > 0) pthread_cond_broadcast(&pool->work);
}

static void close_job(st_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_open = 0;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < SPINS && atomic_load(&pool->joined) > 0; i++) relax();
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
    open_job(pool, work);
    run_chunks(pool, &work);
    close_job(pool);
    pthread_mutex_unlock(&pool->caller);
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
    while (pool->workers != NULL && pool->num_workers < threads - 1) {
        if (pthread_create(&pool->workers[pool->num_workers], NULL, worker, pool) != 0) break;
        pool->num_workers++;
    }
    if (pool->num_workers < threads - 1 || pool->workers == NULL) {
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
    free(pool);
}

int st_pool_isa(const st_pool *pool) { return pool->isa; }

int st_pool_threads(const st_pool *pool) { return pool->num_workers + 1; }
