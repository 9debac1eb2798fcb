/* Panels passed by sixteen rows at once, by matrix tiles. A part of fixed_panel.h.
 *
 * A tile of a plane is rows by inputs; a panel is already the tile it is multiplied with. Tiles 0-2: sums of a, b, c;
 * 3, 5, 6: inputs of a, b, c; 4 and 7: a group's panels. Sums of several groups are stored before the first is read: a
 * tile's way through memory takes a hundred cycles, which pass side by side. */
enum { TILE_ROWS = 16 };

ST_FN int64_t tile_rows(const passing *p) { return p->rows < TILE_ROWS ? p->rows : TILE_ROWS; }

ST_FN void begin_passes(const passing *p) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    const int unit = p->group < UNIT ? p->group : UNIT;
    for (int t = 0; t < 8; t++) shape.bytes[t] = 64, shape.rows[t] = (uint8_t)tile_rows(p);
    shape.bytes[3] = shape.bytes[5] = shape.bytes[6] = (uint16_t)unit;
    shape.rows[4] = shape.rows[7] = (uint8_t)(unit / 4);
    _tile_loadconfig(&shape);
}

ST_FN void end_passes(void) { _tile_release(); }

/* Integer sums of a tile of rows, plane by plane. */
typedef struct {
    _Alignas(64) __m512i a[TILE_ROWS], b[TILE_ROWS], c[TILE_ROWS];
} tile_sums;

#define ST_PLANE(sums, inputs, plane, two)                  \
    do {                                                    \
        _tile_zero(sums);                                   \
        _tile_loadd(inputs, plane, p->stride);              \
        _tile_dpbsud(sums, inputs, 4);                      \
        if (two) {                                          \
            _tile_loadd(inputs, (plane) + UNIT, p->stride); \
            _tile_dpbsud(sums, inputs, 7);                  \
        }                                                   \
    } while (0)

ST_FN void multiply_group(const passing *p, const uint8_t *row, const panel *panels, int two, tile_sums *to) {
    _tile_loadd(4, panels[0].fours, 64);
    if (two) _tile_loadd(7, panels[1].fours, 64);
    ST_PLANE(0, 3, row, two);
    ST_PLANE(1, 5, row + p->pad, two);
    ST_PLANE(2, 6, row + 2 * p->pad, two);
    _tile_stored(0, to->a, 64);
    _tile_stored(1, to->b, 64);
    _tile_stored(2, to->c, 64);
}
#undef ST_PLANE

/* Rows that no whole tile is left for are multiplied with some before them, once more. */
ST_FN void pass_panels(const passing *p, const held_panels *held) {
    tile_sums sums[HELD_PANELS];
    const int two = p->group > UNIT;
    for (int64_t done = 0; done < p->rows;) {
        const int64_t j = done + tile_rows(p) <= p->rows ? done : p->rows - tile_rows(p);
        const uint8_t *row = p->row + j * p->stride + held->first * p->group;
        for (int64_t g = 0; g < held->count; g++) {
            multiply_group(p, row + g * p->group, held->panels + (two ? 2 * g : g), two, &sums[g]);
        }
        for (int64_t r = done - j; r < tile_rows(p); r++) {
            vf total = p->sums[j + r];
            for (int64_t g = 0; g < held->count; g++) {
                total = add_to_row(p, held, j + r, g, sums[g].a[r], sums[g].b[r], sums[g].c[r], total);
            }
            p->sums[j + r] = total;
        }
        done = j + tile_rows(p);
    }
}
