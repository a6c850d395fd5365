// After a pass over the whole tensor: done, or the step for the next. The twin of the loop in `rate/finish.rs`.

#include "bracket.cuh"

DEVICE void pass_fail(const RateArgs &a) {
    a.plan->done = 1;
    report(a.status, STATUS_DOES_NOT_FIT, 0, a.rate->smallest);
}

// The last resort under a cap: without classes, and with coarser steps, further apart each time until all is zero. A plan
// of many pages has its classes in a header that is made: there the steps alone grow, and at once.
DEVICE bool pass_coarsen(const RateArgs &a) {
    Rate *r = a.rate;
    Plan *p = a.plan;
    const u32 times = r->coarsened++;
    if (p->classes > 1 && !p->common) {
        p->classes = 1;
        p->width = 1;
        p->rows = 0;
        p->row_bits = p->col_bits = p->any_low = 0;
        p->low[0] = 0;
        p->log = 12;
        for (u32 i = 0; i < SCALE_SUMS; ++i) p->class_of_sum[i] = 0;
    }
    const double next = p->step * exp2(PASS_RETREAT * (double)(1u << min(times, 4u)));
    return set_step(a.encoding, p, times < (p->common ? 1 : 3) ? next : fmax(next, r->max * r->unit * 4.0));
}

KERNEL(32) rate_judge_pass(const RateArgs a) {
    Rate *r = a.rate;
    Plan *p = a.plan;
    if (threadIdx.x != 0 || p->done) return;
    const u32 goal = a.encoding.goal;
    const bool by_error = goal == GOAL_MSE || goal == GOAL_NMSE, cap = goal == GOAL_CAP;
    if (a.status->code) {
        p->done = 1;
        return;
    }
    const u64 bytes = p->bytes;
    if (r->smallest == 0 || bytes < r->smallest) r->smallest = bytes;
    const bool last = a.pass + 1 >= a.passes;
    if (p->trivial || r->fixed || r->want == 0.0) {
        p->done = 1;
        if (cap && (double)bytes > a.encoding.target) pass_fail(a);
        return;
    }
    double got = (double)bytes;
    bool kept = cap ? got <= a.encoding.target : true;
    if (by_error) {
        if (p->squared_error == 0.0) {
            p->done = 1;
            return;
        }
        // Squares of numbers far from one leave the range of f64: they are taken in the unit of the sample.
        const double unit = r->unit, step = p->step / unit;
        const double mse = p->squared_error * step * step / (double)(p->finite ? p->finite : 1);
        got = 1.0 / fmax(mse, 2.3e-308);
        kept = goal == GOAL_MSE ? mse <= a.encoding.target / unit / unit : mse <= a.encoding.target * r->variance;
    }
    const double want = r->want, off = got / want - 1.0, step = p->step;
    const bool stuck = bracket_closed(r->full), finest = off < 0.0 && step <= r->finest * AT_FINEST;
    const bool near = cap ? got > a.encoding.target * CAP_NEAR : by_error ? off < ERROR_NEAR : fabs(off) <= BYTES_NEAR;
    const bool enough = near || (finest && !by_error);
    if (kept && (enough || last || ((cap || by_error) && (stuck || a.pass + 1 >= a.search_passes)))) {
        p->done = 1;
        return;
    }
    if (last) {
        pass_fail(a);
        return;
    }
    if (kept && (cap || by_error)) {
        const bool better = r->kept_step == 0.0 || (cap ? step < r->kept_step : step > r->kept_step);
        if (better) r->kept_step = step;
    }
    const double miss = off > 0.0 ? 2.0 * off : -off;
    if (r->nearest_step == 0.0 || miss < r->nearest_miss) {
        r->nearest_miss = miss;
        r->nearest_step = step;
    }
    bracket_note(r->full, step, got, want);
    const bool final = a.pass + 2 >= a.passes || ((cap || by_error) && a.pass + 1 >= a.search_passes);
    // Under a cap, each pass aims a little lower than the one before: single bytes decide in a small blob.
    const double lower = cap ? exp2((double)a.pass) * PASS_LOWER - PASS_LOWER : 0.0;
    const double aim = want * (1.0 - fmin(lower, PASS_LOWEST));
    const double next = bracket_next(r->full, step, aim, bracket_nudge(a.encoding, got, aim, PASS_DAMPING));
    bool set;
    if (goal == GOAL_BYTES && final) {
        // A size that three steps have not met moves in jumps: the nearest miss is the answer.
        if (step == r->nearest_step) {
            p->done = 1;
            return;
        }
        set = set_step(a.encoding, p, r->nearest_step);
    } else if ((cap || by_error) && final && r->kept_step > 0.0) {
        // A limit that was kept to is kept to again by the same step.
        set = set_step(a.encoding, p, r->kept_step);
    } else if (cap && a.pass > a.search_passes) {
        set = pass_coarsen(a);
    } else {
        // With no pass left to correct it, a step for an error goes a little further than it points.
        set = set_step(a.encoding, p, fmax(by_error && final ? next * PASS_FURTHER : next, r->finest));
    }
    if (!set) {
        if (cap || by_error) pass_fail(a);
        p->done = 1;
    }
}
