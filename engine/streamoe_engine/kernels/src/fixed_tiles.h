/* A panel passed by sixteen rows at once, by matrix tiles. A part of fixed_panel.h.
 *
 * A tile of a plane is rows by inputs; a panel is already the tile it is multiplied with. */

/* Tiles 0-2: sums of a, b, c for sixteen rows, 3: their inputs, 4 and 7: the panels; 5 and 6: sums and inputs of the rows
 * that are left, fewer than sixteen. */
enum { TILE_ROWS = 16 };

ST_FN void begin_passes(const passing *p, int unit) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    const uint8_t left = (uint8_t)(p->rows % TILE_ROWS);
    for (int t = 0; t < 3; t++) shape.bytes[t] = 64, shape.rows[t] = TILE_ROWS;
    shape.bytes[3] = (uint16_t)unit, shape.rows[3] = TILE_ROWS;
    shape.bytes[4] = shape.bytes[7] = 64, shape.rows[4] = shape.rows[7] = (uint8_t)(unit / 4);
    if (left > 0) {
        shape.bytes[5] = 64, shape.rows[5] = left;
        shape.bytes[6] = (uint16_t)unit, shape.rows[6] = left;
    }
    _tile_loadconfig(&shape);
}

ST_FN void end_passes(void) { _tile_release(); }

/* Integer sums of a block of rows, plane by plane. */
typedef struct {
    _Alignas(64) __m512i a[BLOCK_ROWS], b[BLOCK_ROWS], c[BLOCK_ROWS];
} tile_sums;

#define ST_FULL_PLANE(sums, plane, to)                 \
    do {                                               \
        _tile_zero(sums);                              \
        _tile_loadd(3, plane, p->stride);              \
        _tile_dpbsud(sums, 3, 4);                      \
        if (group > UNIT) {                            \
            _tile_loadd(3, (plane) + UNIT, p->stride); \
            _tile_dpbsud(sums, 3, 7);                  \
        }                                              \
        _tile_stored(sums, to, 64);                    \
    } while (0)

ST_FN void left_plane(const passing *p, const uint8_t *plane, int group, __m512i *to) {
    _tile_zero(5);
    _tile_loadd(6, plane, p->stride);
    _tile_dpbsud(5, 6, 4);
    if (group > UNIT) {
        _tile_loadd(6, plane + UNIT, p->stride);
        _tile_dpbsud(5, 6, 7);
    }
    _tile_stored(5, to, 64);
}

ST_FN void pass_group(const passing *p, int64_t g, int64_t groups, const panel *panels, int group, vf scale, vf bias) {
    tile_sums sums;
    const uint8_t *row = p->row + g * group;
    int64_t j = 0;
    _tile_loadd(4, panels[0].fours, 64);
    if (group > UNIT) _tile_loadd(7, panels[1].fours, 64);
    for (; j + TILE_ROWS <= p->rows; j += TILE_ROWS, row += TILE_ROWS * p->stride) {
        ST_FULL_PLANE(0, row, sums.a + j);
        ST_FULL_PLANE(1, row + p->pad, sums.b + j);
        ST_FULL_PLANE(2, row + 2 * p->pad, sums.c + j);
    }
    if (j < p->rows) {
        left_plane(p, row, group, sums.a + j);
        left_plane(p, row + p->pad, group, sums.b + j);
        left_plane(p, row + 2 * p->pad, group, sums.c + j);
    }
    for (j = 0; j < p->rows; j++) add_to_row(p, j, g, groups, sums.a[j], sums.b[j], sums.c[j], scale, bias);
}
#undef ST_FULL_PLANE
