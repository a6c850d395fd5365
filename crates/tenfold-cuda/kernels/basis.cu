// Around the products of a basis: rows of bf16 whose rotary positions are undone or done.

#include "turn.cuh"

// Rows whose heads are whole eights, turned half with half and all of them: a thread takes eight pairs of every head.
DEVICE void basis_turn_eights(const BasisArgs &a) {
    const Turning &t = a.turning;
    const u32 each = t.half / 8;
    const u64 all = a.rows * each, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const u64 row = i / each, position = rope_position(t, row);
        const u32 k = (u32)(i - row * each) * 8;
        const EightAngles angles = turn_angles(t, position, k);
        // Four heads on their way at once: what is put away may be what is read next, for all that the compiler knows.
        const u64 end = (row + 1) * a.columns;
        u64 head = row * a.columns + k;
        for (; head + 3 * t.head < end; head += 4 * t.head) {
            TurnEights e[4];
#pragma unroll
            for (u32 j = 0; j < 4; ++j) e[j] = turn_load(a.from + head + j * t.head, t.half);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) turn_away(angles, e[j], a.to + head + j * t.head, t.half);
        }
        for (; head < end; head += t.head) turn_away(angles, turn_load(a.from + head, t.half), a.to + head, t.half);
    }
}

KERNEL(256) basis_turn(const BasisArgs a) {
    const Turning &t = a.turning;
    if (!t.neighbours && t.half % 8 == 0 && t.head == 2 * t.half) {
        basis_turn_eights(a);
        return;
    }
    rope_rows<float>(
        t, a.rows, a.columns, [&](u64 i) { return turn_low(a.from[i]); },
        [&](u64 i, float v) { a.to[i] = (u16)turn_half(v); });
}
