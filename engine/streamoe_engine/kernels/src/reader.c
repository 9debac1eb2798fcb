/* Owns reading threads: ranges of files into memory, demand before guesses, without the interpreter's lock.
 *
 * A Python thread that has read must wait for that lock, and whoever computes then waits for it in turn: 30 to 100 us a
 * read. Refuses to know what is read.
 */
#define _GNU_SOURCE /* pread, posix_fadvise */

#include "streamoe_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    st_read *first, *last;
} queue;

struct st_reader {
    pthread_mutex_t lock;
    pthread_cond_t work, landed;
    queue queues[2]; /* guesses, demand */
    int num_running, num_waiting, closing, num_threads;
    int64_t num_finished;
    pthread_t *threads;
};

static void append(queue *to, st_read *read) {
    read->next = NULL;
    read->before = to->last;
    if (to->last != NULL) to->last->next = read;
    else to->first = read;
    to->last = read;
}

static void take_out(queue *from, st_read *read) {
    if (read->before != NULL) read->before->next = read->next;
    else from->first = read->next;
    if (read->next != NULL) read->next->before = read->before;
    else from->last = read->before;
}

static st_read *next_read(st_reader *reader) {
    queue *from = reader->queues[1].first != NULL ? &reader->queues[1] : &reader->queues[0];
    st_read *read = from->first;
    if (read != NULL) take_out(from, read);
    return read;
}

/* 0, an errno, or ST_READ_SHORT. `got` counts the bytes. */
static int fill(st_read *read) {
    while (read->got < read->bytes) {
        const ssize_t got = pread(read->fd, (char *)read->to + read->got, (size_t)(read->length - read->got),
                                  (off_t)(read->offset + read->got));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return ST_READ_SHORT;
        read->got += got;
    }
#if defined(POSIX_FADV_DONTNEED)
    if (read->gives_back) (void)posix_fadvise(read->fd, (off_t)read->offset, (off_t)read->bytes, POSIX_FADV_DONTNEED);
#endif
    return 0;
}

static void *serve(void *argument) {
    st_reader *reader = argument;
    pthread_mutex_lock(&reader->lock);
    while (!reader->closing) {
        st_read *read = next_read(reader);
        if (read == NULL) {
            pthread_cond_wait(&reader->work, &reader->lock);
            continue;
        }
        read->state = ST_READ_RUNNING;
        reader->num_running++;
        pthread_mutex_unlock(&reader->lock);
        const int error = fill(read);
        pthread_mutex_lock(&reader->lock);
        read->error = error;
        read->finished = ++reader->num_finished;
        read->state = ST_READ_DONE;
        reader->num_running--;
        if (reader->num_waiting > 0) pthread_cond_broadcast(&reader->landed);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

st_reader *st_reader_new(void) {
    st_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return NULL;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->work, NULL);
    pthread_cond_init(&reader->landed, NULL);
    return reader;
}

int st_reader_start(st_reader *reader, int threads) {
    reader->threads = calloc((size_t)threads, sizeof *reader->threads);
    while (reader->threads != NULL && reader->num_threads < threads) {
        if (pthread_create(&reader->threads[reader->num_threads], NULL, serve, reader) != 0) break;
        reader->num_threads++;
    }
    return reader->num_threads;
}

static void hurry(st_reader *reader, st_read *const *reads, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (reads[i]->state != ST_READ_QUEUED || reads[i]->is_demand) continue;
        take_out(&reader->queues[0], reads[i]);
        reads[i]->is_demand = 1;
        append(&reader->queues[1], reads[i]);
    }
}

void st_reader_submit(st_reader *reader, st_read *const *guessed, int64_t num_guessed, st_read *const *reads,
                      int64_t count, int is_demand) {
    pthread_mutex_lock(&reader->lock);
    hurry(reader, guessed, num_guessed);
    for (int64_t i = 0; i < count; i++) {
        reads[i]->state = ST_READ_QUEUED;
        reads[i]->is_demand = is_demand;
        append(&reader->queues[is_demand], reads[i]);
    }
    if (count == 1) pthread_cond_signal(&reader->work);
    if (count > 1) pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
}

int st_reader_cancel(st_reader *reader, st_read *read) {
    pthread_mutex_lock(&reader->lock);
    const int is_queued = read->state == ST_READ_QUEUED;
    if (is_queued) {
        take_out(&reader->queues[read->is_demand], read);
        read->state = ST_READ_CANCELLED;
    }
    pthread_mutex_unlock(&reader->lock);
    return is_queued;
}

static int64_t look(st_read *const *reads, int64_t count, uint8_t *done) {
    int64_t num_done = 0;
    for (int64_t i = 0; i < count; i++) num_done += done[i] = reads[i]->state == ST_READ_DONE;
    return num_done;
}

static struct timespec in_ms(int64_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    const int64_t ns = at.tv_nsec + ms % 1000 * 1000000;
    at.tv_sec += ms / 1000 + ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

int64_t st_reader_wait(st_reader *reader, st_read *const *reads, int64_t count, int64_t enough, int64_t ms,
                       uint8_t *done) {
    const struct timespec until = in_ms(ms);
    int64_t num_done;
    int timed_out = 0;
    pthread_mutex_lock(&reader->lock);
    reader->num_waiting++;
    while ((num_done = look(reads, count, done)) < enough && !timed_out) {
        timed_out = pthread_cond_timedwait(&reader->landed, &reader->lock, &until) == ETIMEDOUT;
    }
    reader->num_waiting--;
    pthread_mutex_unlock(&reader->lock);
    return num_done;
}

int st_reader_drain(st_reader *reader, int64_t ms) {
    const struct timespec until = in_ms(ms);
    int timed_out = 0;
    pthread_mutex_lock(&reader->lock);
    for (st_read *read; (read = next_read(reader)) != NULL;) read->state = ST_READ_CANCELLED;
    reader->num_waiting++;
    while (reader->num_running > 0 && !timed_out) {
        timed_out = pthread_cond_timedwait(&reader->landed, &reader->lock, &until) == ETIMEDOUT;
    }
    reader->num_waiting--;
    const int is_idle = reader->num_running == 0;
    pthread_mutex_unlock(&reader->lock);
    return is_idle;
}

void st_reader_free(st_reader *reader) {
    pthread_mutex_lock(&reader->lock);
    reader->closing = 1;
    pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
    for (int i = 0; i < reader->num_threads; i++) pthread_join(reader->threads[i], NULL);
    pthread_mutex_destroy(&reader->lock);
    pthread_cond_destroy(&reader->work);
    pthread_cond_destroy(&reader->landed);
    free(reader->threads);
    free(reader);
}
