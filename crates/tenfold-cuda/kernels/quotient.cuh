// Division by a frequency, as a product and a shift.
#pragma once

#include "base.cuh"

// x / f is x·factor / 2^(32 + shift).
struct Quotient {
    u32 factor, shift;
};

// The factor is rounded up, and has 32 bits. Frequencies from 2 on.
DEVICE Quotient quotient_of(u32 f) {
    const u32 bits = 32 - (u32)__clz((int)(f - 1));
    return Quotient{(u32)(((1ull << (31 + bits)) + f - 1) / f), bits - 1};
}
