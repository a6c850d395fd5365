// Feedback with a trellis of 256 states: a warp a lane, as in `levels_wide.cu`.

#include "feed.cuh"

#define FEED_WIDE_NU 8u
#define FEED_WIDE_WORDS TRELLIS_WORDS(FEED_WIDE_NU)

// Values behind the column, with what was fed to them.
#define FEED_WIDE_AHEAD (FEED_AHEAD * FEED_WIDE_NU * 32)

static_assert(FEED_WIDE_SHARED == FEED_PATH_SHARED + FEED_WIDE_AHEAD * 4 + FEED_THREADS / 32 * WIDE_WARP_SHARED, "as the launch code reckons");

// All values of a run: those of this column are kept with what was fed to them, those ahead go to shared memory.
DEVICE void feed_wide_values(const FeedArgs &a, const FeedRun &r, float *ahead) {
    for (u32 i = r.from + threadIdx.x; i < r.seen; i += FEED_THREADS) {
        u32 column, output;
        feed_where(a, r, i, column, output);
        const float v = feed_value(a, r, r.start + i, column, output);
        if (i < r.stop) a.fed[r.start + i] = v;
        else ahead[i - r.stop] = v;
    }
}

// Steps of a lane forwards, 32 at a time: their costs side by side, then one after the other. Returns the best state.
DEVICE u32 feed_wide_forward(const FeedArgs &a, const LevelsSearch &c, const FeedRun &r, u32 lane, u32 state, const float *ahead,
                             float *memory, u32 *decisions) {
    float *now = memory, *next = memory + 2 * TRELLIS_PLANE(FEED_WIDE_NU);
    trellis_warp_start<FEED_WIDE_NU>(now, state);
    u32 taken = 0;
    for (u32 base = 0; base < r.steps; base += 32) {
        const u32 mine = base + lane_of(), count = min(r.steps - base, 32u), position = feed_position(r, mine, lane);
        const bool within = mine < r.steps && feed_within(r, lane, position);
        float cost[4] = {0, 0, 0, 0};
        if (within) {
            const u64 at = r.start + position;
            const float v = position < r.stop ? a.fed[at] : ahead[position - r.stop];
            search_branch<LevelsF32>(c, __float_as_uint(v), levels_seek(c.map, at), cost);
        }
        const u32 present = __ballot_sync(ALL_LANES, within);
        // Any state's metric will do to keep them small, once all can be reached.
        float by = taken >= FEED_WIDE_NU ? now[0] : 0.0f;
        __syncwarp();
        for (u32 j = 0; j < count; ++j) {
            if (!(present >> j & 1)) continue;
            float all[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) all[i] = __shfl_sync(ALL_LANES, cost[i], (int)j);
            const u32 word = trellis_warp_step<FEED_WIDE_NU>(now, next, all, by);
            if (lane_of() < FEED_WIDE_WORDS) decisions[(base + j) * FEED_WIDE_WORDS + lane_of()] = word;
            by = 0.0f;
            ++taken;
            float *swap = now;
            now = next;
            next = swap;
        }
    }
    return trellis_warp_best<FEED_WIDE_NU>(now);
}

// Steps of a lane back. Returns the state where the column ends.
DEVICE u32 feed_wide_backward(const FeedRun &r, u32 lane, u32 state, float *memory, const u32 *decisions) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    u32 *chunk = (u32 *)memory, ends = state;
    u8 *path = (u8 *)r.path;
    for (u32 base = (r.steps + 31) / 32 * 32; base > 0;) {
        base -= 32;
        const u32 count = min(r.steps - base, 32u);
        __syncwarp();
        for (u32 i = lane_of(); i < count * FEED_WIDE_WORDS; i += 32) chunk[i] = decisions[base * FEED_WIDE_WORDS + i];
        __syncwarp();
        for (u32 j = count; j-- > 0;) {
            const u32 step = base + j, position = feed_position(r, step, lane);
            if (!feed_within(r, lane, position)) continue;
            const u32 odd = chunk[j * FEED_WIDE_WORDS + state / 32] >> (state & 31) & 1, q = state >> (FEED_WIDE_NU - 1);
            if (lane_of() == 0) path[(step / 4 * 32 + lane) * 4 + step % 4] = (u8)(q | odd << 1);
            state = trellis_before(state, q, odd, FEED_WIDE_NU, on_quantiser[FEED_WIDE_NU], on_parity[FEED_WIDE_NU]);
            if (position >= r.stop) ends = state;
        }
    }
    return ends;
}

DEVICE void feed_wide_all(const FeedArgs &a, u8 *memory) {
    if (levels_over(a.levels) || a.levels.plan->nu != FEED_WIDE_NU) return;
    float *ahead = (float *)(memory + SEARCH_SHARED + FEED_PATH_SHARED);
    feed_columns(a, memory, [&](const LevelsSearch &c, const FeedRun &r, u32 *states) {
        const u32 lane = warp_of();
        float *own = ahead + FEED_WIDE_AHEAD + lane * (WIDE_WARP_SHARED / 4);
        feed_wide_values(a, r, ahead);
        __syncthreads();
        if (lane < r.lanes) {
            u32 *decisions = a.decisions + (u64)lane * r.steps * FEED_WIDE_WORDS;
            const u32 best = feed_wide_forward(a, c, r, lane, states[lane], ahead, own, decisions);
            // What other lanes of this warp have written.
            __syncwarp();
            const u32 ends = feed_wide_backward(r, lane, best, own, decisions);
            if (lane_of() == 0) states[lane] = ends;
        }
        __syncthreads();
    });
}

KERNEL(FEED_THREADS, 1) feed_wide(const GRID_CONSTANT FeedArgs a) RUNS(feed_wide_all)
