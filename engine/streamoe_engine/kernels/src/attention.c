/* Owns how attention is shared out: tokens by runs and heads, or a single token by blocks of keys. Both ways give the
 * same bits (attention_body.h), so that the choice is free. */
#include "mix.h"

#include <stddef.h>

typedef struct {
    const st_mix_ops *mix;
    const st_attention *attention;
    int64_t groups, per_kv_head; /* groups of query heads in all, and those of one kv head */
    int64_t run;                 /* tokens taken together */
} attention_job;

typedef struct {
    int64_t first, count;
} some_heads;

static some_heads heads_of(const attention_job *job, int64_t group) {
    const int64_t sharing = job->attention->heads / job->attention->kv_heads;
    const int64_t skip = group % job->per_kv_head * ST_HEAD_GROUP, left = sharing - skip;
    return (some_heads){group / job->per_kv_head * sharing + skip, left < ST_HEAD_GROUP ? left : ST_HEAD_GROUP};
}

static void token_runs(void *context, int64_t begin, int64_t end) {
    const attention_job *job = context;
    for (int64_t unit = begin; unit < end; unit++) {
        /* The last tokens, which have most keys, first. */
        const int64_t stop = job->attention->tokens - unit / job->groups * job->run;
        const some_heads heads = heads_of(job, unit % job->groups);
        job->mix->attend(job->attention, stop > job->run ? stop - job->run : 0, stop, heads.first, heads.count);
    }
}

static void key_blocks(void *context, int64_t begin, int64_t end) {
    const attention_job *job = context;
    for (int64_t unit = begin; unit < end; unit++) {
        const some_heads heads = heads_of(job, unit % job->groups);
        job->mix->attend_block(job->attention, unit / job->groups, heads.first, heads.count);
    }
}

static void merged_heads(void *context, int64_t begin, int64_t end) {
    const attention_job *job = context;
    for (int64_t head = begin; head < end; head++) job->mix->merge_blocks(job->attention, head);
}

static int64_t blocks_of(int64_t keys) { return (keys + ST_KEY_BLOCK - 1) / ST_KEY_BLOCK; }

int64_t st_attention_parts(int64_t heads, int64_t dim, int64_t context) {
    return blocks_of(context) * heads * (dim + 2);
}

/* Long enough runs to read a block of keys once for several tokens, enough of them to keep all threads busy. */
static int64_t run_of(const st_attention *attention, int64_t groups, int64_t threads) {
    enum { LONGEST = 8, UNITS_A_THREAD = 4 };
    const int64_t run = attention->tokens * groups / (threads * UNITS_A_THREAD);
    return run < 1 ? 1 : run < LONGEST ? run : LONGEST;
}

void st_attend(st_pool *pool, const st_attention *attention) {
    const int64_t per_kv_head = (attention->heads / attention->kv_heads + ST_HEAD_GROUP - 1) / ST_HEAD_GROUP;
    const int64_t groups = attention->kv_heads * per_kv_head, blocks = blocks_of(attention->position + 1);
    attention_job job = {st_pool_mix(pool), attention, groups, per_kv_head, 1};
    if (attention->tokens == 1 && blocks > 1 && attention->parts != NULL) {
        st_parallel(pool, key_blocks, &job, blocks * groups, 1);
        st_parallel(pool, merged_heads, &job, attention->heads, st_rows_per_chunk(blocks * attention->dim));
        return;
    }
    job.run = run_of(attention, groups, st_pool_threads(pool));
    st_parallel(pool, token_runs, &job, (attention->tokens + job.run - 1) / job.run * groups, 1);
}
