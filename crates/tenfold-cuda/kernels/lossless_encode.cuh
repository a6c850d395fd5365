// What the kernels that make lossless tiles share: the slots of coded planes.
#pragma once

#include "assemble.cuh"

// A plane is coded if that saves at least this share of its bytes: decoding takes time too.
#define WORTH 0.004

// Marks the entry of a byte that has no slot.
#define NO_SLOT 0x80000000u

// Whether a kernel of the second pass has nothing to do.
DEVICE bool lossless_done(const LosslessArgs &a) { return a.again && !a.tabled->missed; }

// Whether tiles are made by `lossless_whole.cu`: 16-bit floats of which the high bytes alone are coded.
DEVICE bool lossless_whole(const LosslessArgs &a) { return a.whole && a.tabled->coded == 2; }

// States come first in a slot.
#define SLOT_STATES (MAX_LANES * 4)

DEVICE u8 *slot_at(const LosslessArgs &a, u32 planes, u64 tile, u32 plane) {
    return a.slots + (tile * planes + plane) * a.slot_bytes;
}
