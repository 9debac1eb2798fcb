/* The row functions for any machine: four lanes at a time, NEON on arm64, SSE2 on x86-64. */
#define ST_PART_LANES 4
#define ST_ROWS_TABLE st_rows_base
#include "rows_table.h"
