/* Fills the table ST_ROWS_TABLE with the row functions compiled for the including file's instruction set. */
#include "attention_rows.h"
#include "gated_delta_rows.h"
#include "norm_rows.h"

const st_mix_rows ST_ROWS_TABLE = {
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .sigmoid_mul = sigmoid_mul,
    .scale = scale_row,
    .add = add_rows,
    .sigmoid = sigmoid,
    .rotate = rotate,
    .store_kv = store_kv,
    .attend = attend,
    .attend_block = attend_block,
    .merge_blocks = merge_blocks,
    .gated_delta = gated_delta,
};
