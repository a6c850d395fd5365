// What the kernels that make lossless tiles share: their arguments, and the slots of coded planes.
#pragma once

#include "assemble.cuh"

struct LosslessArgs {
    Assembly assembly;
    const u8 *data;
    u64 values, tile_values;
    // Workspace: how often each byte occurs in each plane; symbols as they are pushed, by plane; which planes have a
    // table; head of each plane of each tile; and a slot for each plane of each tile, states first.
    u64 *counts;
    uint2 *entries;
    u32 *coded;
    u32 *heads;
    u8 *slots;
    u64 slot_bytes;
    u32 slot_words;
    u32 staged_room;
    u32 lanes, steps;
    u32 dtype, dims;
    u64 shape[MAX_DIMS];
};

// States come first in a slot.
#define SLOT_STATES (MAX_LANES * 4)

DEVICE u8 *slot_at(const LosslessArgs &a, u32 planes, u64 tile, u32 plane) {
    return a.slots + (tile * planes + plane) * a.slot_bytes;
}
