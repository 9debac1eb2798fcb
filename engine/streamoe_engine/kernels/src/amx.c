/* Owns the permission to use matrix tiles: their registers are kept for a process that asked for them. */
#define _GNU_SOURCE /* syscall */

#include "amx.h"

#ifdef ST_COMPILES_AMX
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_permitted;

static void ask(void) {
    enum { TILE = 1 << 24, INT8 = 1 << 25, REQUEST = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h, xfeatures */
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILE) == 0 || (d & INT8) == 0) return;
    is_permitted = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

int st_amx_permitted(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    return is_permitted;
}
#else
int st_amx_permitted(void) { return 0; }
#endif
