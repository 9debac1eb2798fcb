/* What both kinds of layers share: carving scratch, projecting, and everything after the mix. */
#ifndef STREAMOE_LAYER_H
#define STREAMOE_LAYER_H

#include <stddef.h>

#include "mix.h"

/* Hands out floats one array after the other, each on a cache line of its own; from NULL it only counts. */
typedef struct {
    char *base;
    int64_t used;
} st_carver;

enum { ST_LINE = 64 };

static inline st_carver st_carver_of(void *scratch) {
    return (st_carver){scratch, scratch == NULL ? ST_LINE : ST_LINE - (int64_t)((uintptr_t)scratch % ST_LINE)};
}

static inline float *st_carve(st_carver *carver, int64_t floats) {
    float *taken = carver->base == NULL ? NULL : (float *)(void *)(carver->base + carver->used);
    carver->used += (floats * (int64_t)sizeof *taken + ST_LINE - 1) / ST_LINE * ST_LINE;
    return taken;
}

/* y (tokens, matrix rows) = matrix times rows of x. */
typedef struct {
    const st_matrix *matrix;
    const float *x;
    int64_t x_stride;
    float *y;
} st_projection;

/* All of them as one piece of work; their matrices have equally many columns. */
void st_project(st_pool *, const st_projection *, int64_t count, int64_t tokens);

/* after = hidden + mixed, then the norm, the router and the guess. `mixed` is lost. */
void st_leave_layer(st_pool *, const st_routing *, const st_layer_io *, float norm_eps, int64_t width, float *mixed);

#endif
