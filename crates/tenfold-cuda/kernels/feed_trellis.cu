// Feedback with a trellis of 8 states: a warp searches, a thread a lane, while the others work out the costs of what it takes next.
// A column is 128 steps or so, one after the other, so that this is what a pass takes its time for.

#include "feed.cuh"

#define FEED_NU 3u

// Costs of a chunk's branches, by step and lane. Threads from `skipped` on take part. Values of this column are kept with what was fed
// to them.
DEVICE void feed_costs(const FeedArgs &a, const LevelsSearch &c, const FeedRun &r, u32 chunk, float4 *costs, u32 skipped) {
    const u32 first = chunk * FEED_CHUNK * r.lanes, count = min(FEED_CHUNK, r.steps - chunk * FEED_CHUNK) * r.lanes;
    for (u32 i = threadIdx.x - skipped; i < count; i += FEED_THREADS - skipped) {
        const u32 position = r.first * r.lanes + first + i;
        if (position < r.from || position >= r.seen) continue;
        const u64 at = r.start + position;
        u32 column, output, step, lane;
        feed_where(a, r, position, column, output);
        const float v = feed_value(a, r, at, column, output);
        if (position < r.stop) a.fed[at] = v;
        float cost[4];
        search_branch<LevelsF32>(c, __float_as_uint(v), feed_seek(a, c.map, at, column, output), cost);
        feed_place(r, i, step, lane);
        costs[step * 32 + lane] = make_float4(cost[0], cost[1], cost[2], cost[3]);
    }
}

DEVICE u32 feed_step(float (&metric)[1 << FEED_NU], const float4 &of, u32 word) {
    const float cost[4] = {of.x, of.y, of.z, of.w};
    return trellis_step<FEED_NU>(metric, cost, word);
}

// Steps of a chunk forwards. Decisions of four steps share a word, the first step's on top.
DEVICE void feed_forward(const FeedRun &r, u32 chunk, const float4 *costs, float (&metric)[1 << FEED_NU]) {
    const u32 lane = lane_of(), first = chunk * FEED_CHUNK, steps = min(FEED_CHUNK, r.steps - first);
    u32 *words = r.path + first / 4 * 32 + lane;
    const bool whole = steps == FEED_CHUNK && r.lanes == 32 && feed_position(r, first, 0) >= r.from &&
                       feed_position(r, first + steps - 1, 31) < r.seen;
    if (whole) {
        for (u32 step = 0; step < FEED_CHUNK; step += 4) {
            u32 word = 0;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) word = feed_step(metric, costs[(step + j) * 32 + lane], word);
            words[step / 4 * 32] = word;
        }
    } else {
        u32 word = 0;
        for (u32 step = 0; step < steps; ++step) {
            // Lanes start and end with a step more or less than others.
            if (feed_within(r, lane, feed_position(r, first + step, lane))) word = feed_step(metric, costs[step * 32 + lane], word);
            else word <<= 1 << FEED_NU;
            if (step % 4 == 3 || step + 1 == steps) {
                words[step / 4 * 32] = word << (3 - step % 4) * (1 << FEED_NU);
                word = 0;
            }
        }
    }
    // Every state can be reached by now, unless there are few steps and nothing follows.
    if (first + steps < r.steps) trellis_settle<FEED_NU>(metric);
}

// All steps back: quantisers and parities take the place of decisions. Returns the state where the column ends.
DEVICE u32 feed_backward(const FeedRun &r, u32 state) {
    constexpr u32 on_quantiser[] = TRELLIS_QUANTISER, on_parity[] = TRELLIS_PARITY;
    const u32 lane = lane_of();
    u32 ends = state;
    for (u32 group = (r.steps + 3) / 4; group-- > 0;) {
        const u32 word = r.path[group * 32 + lane];
        u32 ways = 0;
#pragma unroll
        for (u32 j = 4; j-- > 0;) {
            const u32 position = feed_position(r, group * 4 + j, lane);
            if (!feed_within(r, lane, position)) continue;
            const u32 odd = word >> ((3 - j) * (1 << FEED_NU) + state) & 1, q = state >> (FEED_NU - 1);
            state = trellis_before(state, q, odd, FEED_NU, on_quantiser[FEED_NU], on_parity[FEED_NU]);
            ways |= (q | odd << 1) << (8 * j);
            if (position >= r.stop) ends = state;
        }
        r.path[group * 32 + lane] = ways;
    }
    return ends;
}

static_assert(FEED_TRELLIS_SHARED == FEED_PATH_SHARED + 2 * FEED_CHUNK * 32 * sizeof(float4), "as the launch code reckons");

DEVICE void feed_all(const FeedArgs &a, u8 *memory) {
    if (levels_over(a.levels) || a.levels.plan->nu != FEED_NU) return;
    float4 *costs = (float4 *)(memory + SEARCH_SHARED + FEED_PATH_SHARED);
    feed_columns(a, memory, [&](const LevelsSearch &c, const FeedRun &r, u32 *states) {
        const u32 chunks = (r.steps + FEED_CHUNK - 1) / FEED_CHUNK;
        feed_costs(a, c, r, 0, costs, 0);
        __syncthreads();
        float metric[1 << FEED_NU];
        trellis_start<FEED_NU>(metric, states[lane_of()]);
        for (u32 chunk = 0; chunk < chunks; ++chunk) {
            float4 *now = costs + chunk % 2 * FEED_CHUNK * 32, *next = costs + (chunk + 1) % 2 * FEED_CHUNK * 32;
            if (threadIdx.x < 32) feed_forward(r, chunk, now, metric);
            else if (chunk + 1 < chunks) feed_costs(a, c, r, chunk + 1, next, 32);
            __syncthreads();
        }
        if (threadIdx.x < 32) states[threadIdx.x] = feed_backward(r, trellis_best<FEED_NU>(metric));
        __syncthreads();
    });
}

KERNEL(FEED_THREADS, 1) feed_trellis(const GRID_CONSTANT FeedArgs a) RUNS(feed_all)
