// What a trial tells: costs from counts, whether pairs pay, the step to try next. The twins of `quant/cost.rs` and
// `rate/refine.rs`.
#pragma once

#include "bracket.cuh"
#include "pairs.cuh"

#define COSTS_SETS (2 * MAX_CLASSES)
// As `rate/pairing.rs` and `rate/classes.rs` have them: bits a value that pairs may cost, the share of them that may escape, values of a row that has classes; and log2
// of the frequencies that this is reckoned with.
#define PAIR_MOST_BITS 0.01f
#define PAIR_MOST_ESCAPED 0.004f
#define PAIR_LEAST_WIDTH 256
#define PAIR_FIT_LOG 12
// Bits of the rarest level that the search reckons with.
#define COSTS_MOST 28.0f

// What a set's counts say.
struct SetBits {
    float bits, table;
    u32 total;
};

DEVICE u32 gamma_bits(u32 v) { return 2 * (31 - (u32)__clz((int)(v + 1))) + 1; }

// Entropy of a set's symbols, and the bits of its table in the header. A warp takes part.
DEVICE SetBits set_bits(const u32 *counts, u32 log) {
    u32 n = 0;
    for (u32 s = lane_of(); s < 256; s += 32) n += counts[s];
    n = warp_sum(n);
    SetBits out = {0.0f, 0.0f, n};
    if (n == 0) return out;
    const float total = (float)n, slots = (float)(1u << log) / total;
    u32 low = 255, high = 0, gamma = 0;
    for (u32 s = lane_of(); s < 256; s += 32) {
        const u32 c = counts[s];
        out.bits += entropy_bits((float)c, total);
        if (c == 0 || s == ESCAPE) continue;
        low = min(low, s ^ 0x80);
        high = max(high, s ^ 0x80);
        gamma += gamma_bits(max((u32)((float)c * slots), 1u)) - 1;
    }
    for (int by = 16; by > 0; by >>= 1) {
        low = min(low, __shfl_xor_sync(ALL_LANES, low, by));
        high = max(high, __shfl_xor_sync(ALL_LANES, high, by));
    }
    out.bits = warp_sum(out.bits);
    // A kind, the range of symbols, the escape, and at least a bit for each symbol of the range.
    out.table = 20.0f + (float)warp_sum(gamma) + (high >= low ? (float)(high - low + 1) : 0.0f);
    return out;
}

// Bits by which levels of either sign differ from the mean of both, where they plainly do.
DEVICE float2 sign_bits(const u32 *counts) {
    u32 plus = 0, minus = 0;
    for (u32 s = lane_of(); s < 256; s += 32) {
        if (s >= 1 && s < 128) plus += counts[s];
        if (s > 128) minus += counts[s];
    }
    const float above = (float)warp_sum(plus), below = (float)warp_sum(minus), sum = above + below;
    if (fabsf(above - below) < 6.0f * sqrtf(sum)) return make_float2(0.0f, 0.0f);
    return make_float2(fminf(fmaxf(log2f(sum * 0.5f / (above + 1.0f)), -1.0f), 12.0f),
                       fminf(fmaxf(log2f(sum * 0.5f / (below + 1.0f)), -1.0f), 12.0f));
}

// Costs of a set from its counts: magnitudes of both signs together, since a sample says little about rare levels.
// Levels with raw low bits cost what their symbol and those bits cost. A warp takes part.
DEVICE void set_costs(const u32 *counts, u32 total, u32 low, float lambda, float *plus, float *minus) {
    const float2 sign = sign_bits(counts);
    const float all = (float)total + 1.0f;
    // Magnitudes 2·lane and 2·lane + 1. A small count says little: never cheaper than its neighbour towards zero, which
    // makes this a running maximum that starts anew wherever a count is large.
    float own[2];
    bool sure[2];
#pragma unroll
    for (u32 j = 0; j < 2; ++j) {
        const i32 k = (i32)(2 * lane_of() + j);
        const float both = 0.5f * ((float)counts[(k >> low) & 255] + (float)counts[(-k >> low) & 255]);
        own[j] = fminf(log2f(all / (both + 0.25f)) + (float)low, COSTS_MOST);
        sure[j] = both >= 8.0f;
    }
    float last = sure[1] ? own[1] : fmaxf(own[0], own[1]);
    u32 anew = sure[0] || sure[1];
    for (u32 by = 1; by < 32; by <<= 1) {
        const float other = __shfl_up_sync(ALL_LANES, last, by);
        const u32 before = __shfl_up_sync(ALL_LANES, anew, by);
        if (lane_of() >= by && !anew) {
            last = fmaxf(last, other);
            anew = before;
        }
    }
    const float preceding = __shfl_up_sync(ALL_LANES, last, 1);
    if (!sure[0] && lane_of() > 0) own[0] = fmaxf(own[0], preceding);
    if (!sure[1]) own[1] = fmaxf(own[0], own[1]);
#pragma unroll
    for (u32 j = 0; j < 2; ++j) {
        const u32 k = 2 * lane_of() + j;
        plus[k] = lambda * fmaxf(own[j] + (k ? sign.x : 0.0f), 0.0f);
        minus[k] = lambda * fmaxf(own[j] + (k ? sign.y : 0.0f), 0.0f);
    }
}

DEVICE u32 varint_len(u64 v) {
    u32 n = 1;
    while (v >>= 7) ++n;
    return n;
}

// What the whole tensor would take or be off by, as `Rate.want` counts it; so many of its values were counted.
DEVICE double trial_got(const RateArgs &a, double symbols, double tables, double counted) {
    const Plan *p = a.plan;
    const Tally &t = a.rate->tally;
    if (a.encoding.goal == GOAL_MSE || a.encoding.goal == GOAL_NMSE) {
        const double step = p->step / a.rate->unit;
        // The first values of a lane are bound by the state that it starts in, which weighs more in a window than in a
        // tile: by about two thirds of a value's error for each bit of the state.
        const double bound = 0.67 * p->nu * (1.0 / SAMPLE_TICKS - 1.0 / a.encoding.ticks);
        const double sum = (double)t.error / (double)ERROR_ONE * step * step * (1.0 - bound);
        return 1.0 / fmax(sum / (double)(t.finite ? t.finite : 1), 2.3e-308);
    }
    const double share = (double)a.encoding.values / fmax(counted, 1.0);
    double bytes = (symbols + (double)t.escape_bits) / 8.0 * share + (double)t.exact_bytes * share;
    if (p->paired) bytes += (double)p->pair_bits * (double)a.encoding.values / 8.0;
    if (p->classes > 1)
        bytes += (varint_len(p->width) + p->classes) * rate_headers(a) + (double)((p->rows * p->row_bits + 7) / 8)
                 + (double)((p->width * listed_bits(p->col_bits) + 7) / 8);
    return bytes + rate_overhead(a) + tables / 8.0 * rate_headers(a);
}

// Levels of a set in shares of all: magnitudes that pairs have symbols for, odd levels, and the entropy.
struct PairShares {
    float of[16], odd, entropy;
};

// What pairs of a class cost that begin in a state with the bits `low`: bits beyond single levels, and the share of those that escape.
// `start` is room for a table. A warp takes part. The twin of `Price` in `entropy/pairs.rs`.
DEVICE float2 pair_price(const PairFold *of, const PairShares *shares, u32 both, u16 *start, u32 low, const Plan *p) {
    pair_table(start, of, both, PAIR_FIT_LOG, low, p->on_quantiser, p->on_parity);
    __syncwarp();
    const u32 lane = lane_of(), a = lane / 2;
    const auto second = [&](u32 odd) -> const PairShares & {
        return shares[pair_second(low, odd, p->on_quantiser, p->on_parity) & both];
    };
    const PairShares &first = shares[low & both];
    float bits = 0.0f, own = 0.0f;
    for (u32 i = 0; i < 8; ++i) {
        const u32 b = lane % 2 * 8 + i, symbol = a << 4 | b, f = pair_start(start, symbol + 1) - start[symbol];
        if (f == 0 || pair_escapes(symbol)) continue;
        const float w = first.of[a] * second(a).of[b];
        own += w;
        bits += w * ((float)PAIR_LOG - log2f((float)f) + (float)pair_raw(symbol));
    }
    // An escape takes its symbol, raw bits and mostly a byte. There are four, of which each has its share of slots.
    float slots = 0.0f;
    for (u32 i = 0; i < 4; ++i) {
        const u32 symbol = PAIR_ESCAPE | (i >> 1) << 4 | (i & 1);
        slots += (float)(pair_start(start, symbol + 1) - start[symbol]);
    }
    const float escaped = fmaxf(1.0f - warp_sum(own), 0.0f);
    bits = warp_sum(bits) + escaped * ((float)PAIR_LOG - log2f(slots) + 2.0f + PAIR_ESCAPE_BITS + 8.0f);
    return make_float2(bits - first.entropy - (1.0f - first.odd) * second(0).entropy - first.odd * second(1).entropy, escaped);
}

// What costs and tables are made of a trial with.
struct JudgeShared {
    float bits[COSTS_SETS], tables[COSTS_SETS];
    u32 totals[COSTS_SETS];
    float2 prices[4 * PAIR_CLASSES];
    PairFold folds[COSTS_SETS];
    PairShares shares[COSTS_SETS];
    u16 starts[TRIAL_NARROW][256];
};

// Whether levels are coded in pairs: where that costs little, and readers find their classes at once.
DEVICE void pairs_judge(const RateArgs &a, JudgeShared &j) {
    Plan *p = a.plan;
    PairFold *folds = j.folds;
    PairShares *shares = j.shares;
    float2 *prices = j.prices;
    const u32 warp = warp_of(), lane = lane_of(), warps = blockDim.x / 32;
    const u32 both = p->nu ? 1 : 0, sets = p->classes * (both + 1), lows = both ? 4 : 1;
    const bool may = a.encoding.may_pair && !p->any_low && !p->common && p->classes <= PAIR_CLASSES && !p->bounded &&
                     (p->classes == 1 || (p->col_bits == 0 && p->width % 2 == 0 && p->width >= PAIR_LEAST_WIDTH));
    __syncthreads();
    if (threadIdx.x == 0) p->paired = 0;
    if (!may) return;
    for (u32 i = warp; i < sets; i += warps) {
        const u32 *counts = a.rate->tally.counts + (both ? i : 2 * i) * 256;
        const SetBits s = set_bits(counts, p->log);
        u32 odd = 0;
        for (u32 k = lane; k < 256; k += 32) odd += k & 1 ? counts[k] : 0;
        odd = warp_sum(odd);
        const float each = 1.0f / (float)max(s.total, 1u), slots = (float)(1u << PAIR_FIT_LOG);
        if (lane < 16) {
            const float share = (float)(counts[lane] + (lane ? counts[256 - lane] : 0)) * each;
            shares[i].of[lane] = share;
            folds[i].of[lane] = (u16)(share * slots);
        }
        if (lane == 0) {
            shares[i].odd = (float)odd * each;
            shares[i].entropy = (s.bits + 8.0f * (float)counts[ESCAPE]) * each;
            // No less than its parts, which are rounded down.
            folds[i].parity[1] = (u16)ceilf((float)odd * each * slots);
            folds[i].parity[0] = (u16)((1u << PAIR_FIT_LOG) - folds[i].parity[1]);
        }
    }
    __syncthreads();
    for (u32 t = warp; t < p->classes * lows; t += warps) {
        const u32 set = t / lows * (both + 1);
        const float2 price = pair_price(folds + set, shares + set, both, j.starts[warp], t % lows, p);
        if (lane == 0) prices[t] = price;
    }
    __syncthreads();
    if (warp != 0) return;
    float bits = 0.0f, escaped = 0.0f, all = 0.0f;
    for (u32 c = 0; c < p->classes; ++c) {
        u32 n = 0;
        for (u32 k = lane; k < 512; k += 32) n += a.rate->tally.counts[2 * c * 256 + k];
        const float pairs = 0.5f * (float)warp_sum(n) / (float)lows;
        for (u32 t = 0; t < lows; ++t) {
            bits += pairs * prices[c * lows + t].x;
            escaped += pairs * prices[c * lows + t].y;
            all += pairs;
        }
    }
    if (lane) return;
    p->pair_bits = 0.5f * bits / fmaxf(all, 1.0f);
    p->paired = all > 0.0f && p->pair_bits <= PAIR_MOST_BITS && escaped <= PAIR_MOST_ESCAPED * all;
}

// Reconstruction points at the mean of what quantises to them, where enough does.
DEVICE void set_points(Plan *p, const Tally &t) {
    for (u32 i = 1; i <= OFFSETS; ++i) {
        if (t.points[i] < 64) continue;
        const double by = rint((double)t.beyond[i] / (double)t.points[i] * (UNITS / (double)POINT_ONE));
        p->offsets[i] = (i32)fmin(fmax(by, -64.0), 64.0);
    }
}

// After a trial: costs, the next step. All threads of the block that ends it take part.
DEVICE void judge_trial(const RateArgs &a, JudgeShared &j) {
    Rate *r = a.rate;
    Plan *p = a.plan;
    const u32 tid = threadIdx.x, sets = 2 * p->classes, mode = a.mode, threads = blockDim.x;
    if (tid == 0) {
        u32 any = 0;
        for (u32 c = 0; c < p->classes; ++c) any |= p->low[c];
        p->any_low = any != 0;
        if (any) p->paired = 0;
        r->low_changed = 0;
    }
    __syncthreads();
    if (mode == TRIAL_COSTS || (mode <= TRIAL_LOW && a.encoding.nu == 0)) pairs_judge(a, j);
    for (u32 set = warp_of(); set < sets; set += threads / 32) {
        const u32 *counts = r->tally.counts + set * 256;
        const u32 low = p->low[set / 2];
        const SetBits s = set_bits(counts, p->log);
        if (lane_of() == 0) {
            j.bits[set] = s.bits + (float)s.total * (float)low;
            j.tables[set] = s.table;
            j.totals[set] = s.total;
        }
        if (mode <= TRIAL_COSTS) {
            float *plus = p->cost + set * COST_LEVELS;
            set_costs(counts, s.total, low, p->lambda, plus, plus + COST_SIGN);
        }
    }
    __syncthreads();
    if (tid == 0) {
        double symbols = 0.0, table = 0.0, counted = 0.0;
        for (u32 s = 0; s < sets; ++s) {
            symbols += j.bits[s];
            table += j.tables[s];
            counted += (double)j.totals[s];
        }
        const double want = r->want, got = trial_got(a, symbols, table, counted), off = fabs(got / want - 1.0);
        if (mode == TRIAL_COARSE) {
            // Without a goal for it the step stays, and only the costs settle.
            const bool settled = want == 0.0 || off < COARSE_NEAR;
            const double next = p->step * bracket_nudge(a.encoding, got, want, COARSE_DAMPING);
            r->coarse_done = (++r->rounds >= COARSE_SETTLING && settled)
                             || (want > 0.0 && !set_step(a.encoding, p, fmax(next, r->finest)));
        } else if (mode == TRIAL_COSTS && want > 0.0) {
            set_step(a.encoding, p, fmax(p->step * bracket_nudge(a.encoding, got, want, FINE_DAMPING), r->finest));
        } else if (mode == TRIAL_STEP) {
            bracket_note(r->sample, p->step, got, want);
            const double guess = bracket_nudge(a.encoding, got, want, FINE_DAMPING);
            const double next = bracket_next(r->sample, p->step, want, guess);
            // From nearby the step is moved where it should be, and no trial need tell that it is.
            r->fine_done = want == 0.0 || off < FINE_NEAR || !set_step(a.encoding, p, fmax(next, r->finest)) || off < FINE_SURE;
        }
        if (trial_points(a)) set_points(p, r->tally);
    }
    __syncthreads();
    // Nothing for the next trial to start from.
    u32 *words = (u32 *)&r->tally;
    const u32 used = (sizeof(Tally) - sizeof(r->tally.counts)) / 4 + sets * 256;
    for (u32 i = tid; i < used; i += threads) words[i] = 0;
}
