// Root finding for a quantity that falls as the step grows. The twin of `engine/search/{bracket,slope}.rs`.
#pragma once

#include "sample.cuh"

// Notes what a step gave.
DEVICE void bracket_note(Bracket &b, double step, double got, double want) {
    const double x = log2(step), y = log(fmax(got, 2.3e-308));
    b.last[1][0] = b.last[0][0];
    b.last[1][1] = b.last[0][1];
    b.last[0][0] = x;
    b.last[0][1] = y;
    b.trials += b.trials < 2;
    // The largest step that gave too much, the smallest that gave too little.
    if (got > want) {
        if (!b.has_over || b.over[0] <= x) b.over[0] = x, b.over[1] = y;
        b.has_over = 1;
    } else {
        if (!b.has_under || b.under[0] >= x) b.under[0] = x, b.under[1] = y;
        b.has_under = 1;
    }
}

DEVICE bool bracket_finite(double v) { return v - v == 0.0; }

// What to try next: between the two; with one of them known, a little beyond where the last two trials point; after
// the first trial, by `guess` (a factor).
DEVICE double bracket_next(const Bracket &b, double step, double want, double guess) {
    const double goal = log(want);
    if (!b.has_over || !b.has_under) {
        const double least = log2(guess);
        if (b.trials < 2) return step * exp2(fmin(fmax(least, -MOVE_FARTHEST), MOVE_FARTHEST));
        double ahead =
            MOVE_BEYOND * (goal - b.last[0][1]) * (b.last[0][0] - b.last[1][0]) / (b.last[0][1] - b.last[1][1]);
        if (!bracket_finite(ahead)) ahead = 0.0;
        // At least as far as the guess, and in its direction.
        const double by = least > 0.0 ? fmax(ahead, MOVE_LEAST * least) : fmin(ahead, MOVE_LEAST * least);
        return step * exp2(fmin(fmax(by, -MOVE_FARTHEST), MOVE_FARTHEST));
    }
    const double at = (goal - b.over[1]) / (b.under[1] - b.over[1]);
    // Stay away from the ends: a trial that moves only one of them for ever would not end.
    const double part = bracket_finite(at) ? fmin(fmax(at, MOVE_CLEAR), 1.0 - MOVE_CLEAR) : 0.5;
    return exp2(b.over[0] + (b.under[0] - b.over[0]) * part);
}

// Whether the two steps that enclose the target leave no room for another: rates of coarse dtypes move in jumps.
DEVICE bool bracket_closed(const Bracket &b) {
    return b.has_over && b.has_under && fabs(b.under[0] - b.over[0]) < PASS_CLOSED;
}

// Factor to change the step by. A rate falls by a bit for each doubling, faster below two bits, where zeros take over;
// `damping` says how much faster.
DEVICE double bracket_nudge(const Encoding &encoding, double got, double want, double damping) {
    if (encoding.goal == GOAL_MSE || encoding.goal == GOAL_NMSE) return fmin(fmax(sqrt(got / want), exp2(-SLOPE_FARTHEST)), exp2(SLOPE_FARTHEST));
    const double bits = 8.0 / (double)encoding.values;
    const double slope = fmin(fmax(SLOPE_KNEE * damping / (want * bits), 1.0), SLOPE_STEEPEST * damping);
    return exp2(fmin(fmax((got - want) * bits / slope, -SLOPE_FARTHEST), SLOPE_FARTHEST));
}
