/* Intel's matrix tiles: whether they can be compiled, and whether this process may use them. */
#ifndef STREAMOE_AMX_H
#define STREAMOE_AMX_H

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 11)
#define ST_COMPILES_AMX 1
#endif

/* Asks the kernel, once; 0 where the processor, the kernel or the compiler has none. */
int st_amx_permitted(void);

#endif
