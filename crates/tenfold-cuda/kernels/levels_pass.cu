// Around the passes of a lossy encoder: what starts them, what one leaves for whoever judges it, and what the caller
// is told in the end. One thread each.

#include "levels.cuh"

// Of a pass: it was not begun.
#define PASS_SKIPPED 0xffffffffu

// Before anything is planned.
KERNEL(32) levels_pass_open(const LevelsTurn a) {
    if (threadIdx.x) return;
    // No reader takes a position beyond that.
    const Each<const u64> &positions = a.levels.encoding.positions;
    const bool far = positions.first != nullptr && *(const u64 *)positions > MAX_POSITION;
    *a.status = Status{far ? (u32)STATUS_POSITION : (u32)STATUS_OK, 0, 0};
    *a.levels.pass = Status{STATUS_OK, PASS_SKIPPED, 0};
    a.levels.plan->done = 0;
    a.levels.plan->paired = 0;
    a.levels.plan->bytes = 0;
    a.levels.plan->squared_error = 0.0;
    a.levels.plan->finite = 0;
}

// Makes words zero that all threads of a tensor's blocks share. The number of bytes is a multiple of four.
DEVICE void pass_clear(void *at, u64 bytes) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < bytes / 4; i += stride) ((u32 *)at)[i] = 0;
}

// Says whether there is anything left to do, and if so clears what the pass adds to.
KERNEL(PASS_THREADS) levels_pass_begin(const LevelsTurn a) {
    const LevelsPass &p = a.levels;
    const Plan *plan = p.plan;
    const bool skip = plan->done || a.status->code;
    if (blockIdx.x == 0 && threadIdx.x == 0) p.pass->code = skip ? PASS_SKIPPED : STATUS_OK;
    if (skip) return;
    pass_clear((u64 *)p.counts, (u64)plan->classes * 2 * 256 * 8);
    const u64 lists = (plan->rows * plan->row_bits + 7) / 8 + (plan->width * listed_bits(plan->col_bits) + 7) / 8;
    pass_clear((u32 *)p.header, min(p.header_room, (p.header_front + lists + 3) & ~3ull));
    pass_clear((LevelsTile *)p.tiles, p.encoding.tiles * sizeof(LevelsTile));
}

// A blob that does not fit is a result like another: the next one may.
KERNEL(32) levels_pass_end(const LevelsTurn a) {
    if (threadIdx.x || a.levels.pass->code == PASS_SKIPPED) return;
    a.levels.pass->detail = a.levels.pass->code;
    if (a.levels.pass->code == STATUS_OK || a.levels.pass->code == STATUS_BUFFER) a.levels.plan->bytes = a.levels.pass->size;
    else report(a.status, a.levels.pass->code);
}

// The last pass that was made is the one that counts.
KERNEL(32) levels_pass_close(const LevelsTurn a) {
    if (threadIdx.x || a.status->code) return;
    // Someone waits who can queue another.
    a.status->detail = a.more && !a.levels.plan->done;
    if (a.status->detail) return;
    if (a.levels.pass->detail == STATUS_OK) a.status->size = a.levels.plan->bytes;
    else report(a.status, a.levels.pass->detail == STATUS_BUFFER ? STATUS_BUFFER : STATUS_WORKSPACE, 0, a.levels.plan->bytes);
}
