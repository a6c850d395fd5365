// What the kernels that make lossless tiles share: the slots of coded planes.
#pragma once

#include "assemble.cuh"

// A plane is coded if that saves at least this share of its bytes: decoding takes time too.
#define WORTH 0.004

// Whether a kernel of the second pass has nothing to do.
DEVICE bool lossless_done(const LosslessArgs &a) { return a.again && !a.tabled->missed; }

// States come first in a slot.
#define SLOT_STATES (MAX_LANES * 4)

DEVICE u8 *slot_at(const LosslessArgs &a, u32 planes, u64 tile, u32 plane) {
    return a.slots + (tile * planes + plane) * a.slot_bytes;
}
