// Around the passes of a lossy encoder: what starts them, what one leaves for whoever judges it, and what the caller
// is told in the end. One thread each.

#include "levels.cuh"

// Of a pass: it was not begun.
#define PASS_SKIPPED 0xffffffffu

struct LevelsTurn {
    Plan *plan;
    Status *status, *pass;
};

// Before anything is planned.
KERNEL(32) levels_pass_open(const LevelsTurn a) {
    if (threadIdx.x) return;
    *a.status = Status{STATUS_OK, 0, 0};
    *a.pass = Status{STATUS_OK, PASS_SKIPPED, 0};
    a.plan->done = 0;
    a.plan->bytes = 0;
    a.plan->squared_error = 0.0;
    a.plan->finite = 0;
}

// Says whether there is anything left to do.
KERNEL(32) levels_pass_begin(const LevelsTurn a) {
    if (threadIdx.x) return;
    a.pass->code = a.plan->done || a.status->code ? PASS_SKIPPED : STATUS_OK;
}

// A blob that does not fit is a result like another: the next one may.
KERNEL(32) levels_pass_end(const LevelsTurn a) {
    if (threadIdx.x || a.pass->code == PASS_SKIPPED) return;
    a.pass->detail = a.pass->code;
    if (a.pass->code == STATUS_OK || a.pass->code == STATUS_BUFFER) a.plan->bytes = a.pass->size;
    else report(a.status, a.pass->code);
}

// The last pass that was made is the one that counts.
KERNEL(32) levels_pass_close(const LevelsTurn a) {
    if (threadIdx.x || a.status->code) return;
    if (a.pass->detail == STATUS_OK) a.status->size = a.plan->bytes;
    else report(a.status, a.pass->detail == STATUS_BUFFER ? STATUS_BUFFER : STATUS_WORKSPACE, 0, a.plan->bytes);
}
