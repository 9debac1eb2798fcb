/* The table of the bodies that the including file has compiled. */
static const st_mix_ops table = {
    .rms_norm = rms_norm,
    .silu_mul = silu_mul_rows,
    .sigmoid_mul = sigmoid_mul,
    .add = add,
    .scale = scale,
    .combine = combine,
    .rotate = rotate,
    .store = store,
    .attend = attend,
    .attend_block = attend_block,
    .merge_blocks = merge_blocks,
    .gated_delta = gated_delta,
};
