// What the kernels that make lossless tiles share: their arguments, and the slots of coded planes.
#pragma once

#include "assemble.cuh"

// A plane is coded if that saves at least this share of its bytes: decoding takes time too.
#define WORTH 0.004

// What is known of the planes of a tensor: which have a table, which are one byte throughout as far as a sample says,
// and whether a tile turned out to have a byte that the sample had not.
struct Tabled {
    u32 coded, constant, missed, unused;
};

struct LosslessArgs {
    Assembly assembly;
    const u8 *data;
    u64 values, tile_values;
    // Workspace. How often each byte occurs in each plane; the same in a sample, or null where there is none.
    u64 *counts;
    u64 *sampled;
    // Symbols as they are pushed, by plane.
    uint2 *entries;
    Tabled *tabled;
    // Head of each plane of each tile; and a slot for each of them, states first.
    u32 *heads;
    u8 *slots;
    u64 slot_bytes;
    u32 slot_words;
    u32 staged_room;
    u32 lanes, ticks;
    u32 dtype, dims;
    // Set for the second pass over a tensor that was sampled: it does nothing unless the sample had missed a byte.
    u32 again;
    u64 shape[MAX_DIMS];
};

// Whether a kernel of the second pass has nothing to do.
DEVICE bool lossless_done(const LosslessArgs &a) { return a.again && !a.tabled->missed; }

// States come first in a slot.
#define SLOT_STATES (MAX_LANES * 4)

DEVICE u8 *slot_at(const LosslessArgs &a, u32 planes, u64 tile, u32 plane) {
    return a.slots + (tile * planes + plane) * a.slot_bytes;
}
