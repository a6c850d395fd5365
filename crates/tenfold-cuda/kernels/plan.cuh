// What a lossy encoder knows and decides of one tensor, on the device. The twin of `levels::Plan` and `rate::Job`.
//
// `rate_*` kernels decide (step, classes, low bits, costs, offsets); `levels_*` kernels quantise and write what was
// decided. They meet here alone: the host queues them in a fixed order and never looks.
#pragma once

#include "base.cuh"

// What must be reached.
#define GOAL_BYTES 0
#define GOAL_CAP 1
#define GOAL_MSE 2
#define GOAL_NMSE 3
#define GOAL_STEP 4
#define GOAL_BOUND 5

// Magnitudes with a cost of their own; larger ones cost as much as the last.
#define COST_LEVELS 64
// Entries of one sign: class, quantiser, magnitude.
#define COST_SIGN (MAX_CLASSES * 2 * COST_LEVELS)

// The tensor and the goal, given by the host.
struct Job {
    Each<const u8> data;
    // Elements, in row-major order; values of a row of the tensor.
    u64 values, cols;
    u32 dtype;
    u32 goal;
    // Bytes, mean squared error, step or bound, as the goal says.
    double target;
    // log2 of the trellis's states; 0 for a scalar quantiser.
    u32 nu;
    u32 lanes, ticks;
    u64 tile_values, tiles;
    // Where the blob goes.
    Each<u8> out;
    u32 dims;
    u64 shape[16];
    // What the header says of a tensor that steps have made of another: its dtype, and the steps with their number; no bytes
    // for none.
    u32 header_dtype, transforms_len;
    const u8 *header_transforms;
    // Scales of the columns that the last step knows, a byte each; none for no such step.
    const u8 *scales;
    // Where each tensor has a position of its own among the steps, of which there are few bytes then: it, where in the header
    // it goes in place of a byte, and where the length of its step is. None for no such step.
    Each<const u64> positions;
    u32 position_at, length_at;
};

// What is decided. `rate_*` writes it, `levels_*` reads it.
struct Plan {
    // Machine in use: `job.nu`, or 0 where the trellis cannot hold the values or the goal is a bound.
    u32 nu, on_quantiser, on_parity;
    // Value of 1/64 step as the header stores it (an f32 unless the dtype is f64), and the step.
    double scale, step;
    // 1/step, by which values are multiplied (f64: divided by the step).
    float factor;
    // Values beyond this many steps are stored exactly.
    float max_u;
    // Weight of a bit.
    float lambda;
    // 1: to the nearest level, every value checked against `bound`, misses stored exactly.
    u32 bounded;
    double bound;
    i32 offsets[16];
    // Class map; `width` is 1 and `classes` 1 where there is none. Scales are one byte each.
    u32 classes, row_bits, col_bits, any_low;
    u64 width, rows;
    u64 row_scale, col_scale;
    u8 thresholds[MAX_CLASSES];
    u8 class_of_sum[2 << MAX_SCALE_BITS];
    u8 low[MAX_CLASSES];
    // log2 of the sum of a table's frequencies.
    u32 log;
    // λ·bits by sign (positive first), class, quantiser and magnitude.
    float cost[2 * COST_SIGN];
    // Nothing to quantise: zeros and what is stored exactly.
    u32 trivial;
    // 1 once a full pass has met the goal or no further one will: later passes do nothing.
    u32 done;
    // What the last pass over the whole tensor gave: `levels_*` writes it, `rate_*` judges it.
    u64 bytes;
    // In squared steps.
    double squared_error;
    u64 finite;
    // Of a plan that pages have together: 1, and where the header has the scale, in bytes.
    u32 common, scale_at;
};

// Bits that a scale takes in a header's list; those that a basis knows have no list.
DEVICE u32 listed_bits(u32 bits) { return bits == SCALES_OF_BASIS ? 0 : bits; }
