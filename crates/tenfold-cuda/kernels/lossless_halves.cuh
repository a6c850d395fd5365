// Which lossless blobs and tiles `lossless_halves.cu` decodes: 16-bit floats as weights have them, low bytes stored and
// high bytes coded.
#pragma once

#include "rans.cuh"
#include "tiles.cuh"

// Rings as in `rans.cuh`, but of half the size, so that two tiles' registers fit. Four steps take at most a chunk.
#define HALVES_CHUNK 256
#define HALVES_RING (2 * HALVES_CHUNK)
#define HALVES_ROOM (HALVES_RING + HALVES_CHUNK)
// Values of four steps, and of a unit: both turns of the stored bytes' registers.
#define TURN 128
#define UNIT (2 * TURN)
// Shared memory of a warp: the rings of two tiles.
#define HALVES_WARP (2 * HALVES_ROOM)

// Shared memory of the tables; the rings of at least one warp have to fit beside them.
DEVICE u32 halves_tables(const Desc *d) { return (d->tables << PLANE_LOG) * 4; }

// Whether a blob's tiles may be of that kind. The blob has to be wanted whole: who wants a few rows has few tiles.
DEVICE bool halves_suit(const Item &item, const Desc *d, u32 shared) {
    return d->coded & 2 && d->lanes == 32 && is_float(d->dtype) && d->tile_values % UNIT == 0 && d->first == 0 &&
           d->end == d->values && item.out % 8 == 0 && halves_tables(d) + HALVES_WARP <= shared;
}

DEVICE u32 halves_values(const Desc *d, u64 number) { return (u32)min(d->tile_values, d->values - number * d->tile_values); }

// Where the parts of such a tile begin: the states of the coded plane, its words.
DEVICE u32 halves_states(u32 values) { return 4 + ((values + 3) & ~3u) + 4; }
DEVICE u32 halves_words(u32 values) { return halves_states(values) + 4 * 32; }
DEVICE u32 halves_head(const TileAt &tile, u32 values) { return *(const u32 *)(tile.bytes + halves_states(values) - 4); }

// Where a tile is, known to be the same in all lanes. All lanes of the warp take part.
DEVICE TileAt halves_at(const Item &item, const Work *work, u64 number) {
    const TileAt t = tile_at(item, work, number);
    return TileAt{(const u8 *)__shfl_sync(ALL_LANES, (u64)t.bytes, 0), t.len, t.crc};
}

// Whether a tile is of that kind, and sound as far as can be seen. What is not is left to `lossless_decode.cu`, which says
// what is wrong with it. All lanes of the warp take part.
DEVICE bool halves_kind(const TileAt &tile, u32 values) {
    const u32 words = halves_words(values), lane = lane_of();
    if (!warp_agrees(tile.len >= words && *(const u32 *)tile.bytes == PLANE_STORED)) return false;
    const u32 head = halves_head(tile, values), len = (head >> 8) * 2;
    if (!warp_agrees((head & 255) == PLANE_CODED && len > 0 && tile.len == words + ((len + 3) & ~3u))) return false;
    // Padding, of both planes; states.
    bool sound = !(len & 2) || *(const u16 *)(tile.bytes + words + len) == 0;
    if (4 + values + lane < halves_states(values) - 4) sound &= tile.bytes[4 + values + lane] == 0;
    return warp_agrees(sound && *(const u32 *)(tile.bytes + halves_states(values) + 4 * lane) >= START);
}
