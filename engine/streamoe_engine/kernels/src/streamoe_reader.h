/* The C boundary of reading in the background: see reader.c. Calls come from one thread. Waits end after some
 * milliseconds, so that a caller who must look at signals can do so. */
#ifndef STREAMOE_READER_H
#define STREAMOE_READER_H

#include "streamoe_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ST_READ_QUEUED = 0, ST_READ_RUNNING = 1, ST_READ_DONE = 2, ST_READ_CANCELLED = 3 };
enum { ST_READ_SHORT = -1 }; /* the file ended */

/* One range of a file on its way; the caller keeps it in place until it is done or cancelled. */
typedef struct st_read st_read;
struct st_read {
    st_read *next, *before; /* in a queue; the reader's own */
    void *to;
    int64_t offset, length; /* what is asked of the system, in whole blocks */
    int64_t bytes, got;     /* how many of them the file has, and have come */
    int64_t finished;       /* which read of this reader it was to end, from 1 */
    int32_t fd, gives_back; /* gives_back: the file is cached, its pages are given back */
    int32_t state, is_demand, error, reserved; /* error: 0, an errno, or ST_READ_SHORT */
};

typedef struct st_reader st_reader;
ST_API st_reader *st_reader_new(void);
ST_API int st_reader_start(st_reader *, int threads); /* how many threads there are; once */

/* Makes guesses part of the demand where they have not started, then queues reads, demand before every guess. */
ST_API void st_reader_submit(st_reader *, st_read *const *guessed, int64_t num_guessed, st_read *const *reads,
                             int64_t count, int is_demand);
ST_API int st_reader_cancel(st_reader *, st_read *); /* 1 if it had not started, and now never will */

/* Waits until `enough` of the reads are done, or time is up; done[i] tells which are. Returns how many. */
ST_API int64_t st_reader_wait(st_reader *, st_read *const *reads, int64_t count, int64_t enough, int64_t ms,
                              uint8_t *done);
ST_API int st_reader_drain(st_reader *, int64_t ms); /* cancels what is queued; 1 once nothing runs */
ST_API void st_reader_free(st_reader *);             /* ends what runs, drops what is queued */

#ifdef __cplusplus
}
#endif
#endif
