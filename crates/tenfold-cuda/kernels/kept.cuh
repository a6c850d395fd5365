// Kept elements: runs of one element each that are put back when all else is done. The twin of `prepare/kept.rs`.
//
// A header has them one after the other at any address, all of the same length, so that any run can be looked at alone.
#pragma once

#include "blob.cuh"
#include "floats.cuh"

struct KeptRun {
    u64 start, bits;
    u32 len;
};

// Bytes of a run: where it starts, how long it is, its element of `size` bytes.
DEVICE u32 kept_bytes(u32 size) { return 12 + (size < 4 ? 4 : size); }

// Run `i`, whatever its bytes say.
DEVICE KeptRun kept_run(const u8 *blob, const Desc *d, u32 size, u32 i) {
    const u32 at = d->kept_at + i * kept_bytes(size);
    KeptRun run;
    run.start = header_word(blob, at) | (u64)header_word(blob, at + 4) << 32;
    run.len = header_word(blob, at + 8);
    run.bits = header_word(blob, at + 12);
    if (size == 8) run.bits |= (u64)header_word(blob, at + 16) << 32;
    return run;
}

// Whether some run is not as it must be, among every `count`th from run `first` on.
OUTLINE bool kept_odd(const u8 *blob, const Desc *d, u32 first, u32 count) {
    const u32 size = size_of(d->dtype);
    bool odd = false;
#pragma unroll 2
    for (u32 i = first; i < d->kept; i += count) {
        const KeptRun run = kept_run(blob, d, size, i);
        u64 before = 0;
        if (i > 0) {
            // What is wrong with the run before is found where its turn is.
            const KeptRun other = kept_run(blob, d, size, i - 1);
            before = other.start + other.len;
        }
        const bool inside = run.start < d->values && run.len <= d->values - run.start;
        odd |= run.len == 0 || run.start < before || !inside || (size < 8 && run.bits >> (8 * size) != 0);
    }
    return odd;
}

// The first run that ends behind value `at`. All lanes alike.
DEVICE u32 kept_from(const u8 *blob, const Desc *d, u32 size, u64 at) {
    u32 low = 0, high = d->kept;
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        const KeptRun run = kept_run(blob, d, size, middle);
        if (run.start + run.len <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Puts the elements of values `from` up to `to` where they belong. A lane takes a run; long ones it does not take alone.
template <class E> DEVICE void kept_put(const Item &item, const Desc *d, u64 from, u64 to) {
    const u8 *blob = (const u8 *)item.blob;
    const u32 size = size_of(d->dtype), lane = lane_of();
    E *out = (E *)item.out;
    bool more = from < to;
    for (u32 i = kept_from(blob, d, size, from); more; i += 32) {
        KeptRun run = {to, 0, 0};
        if (i + lane < d->kept) run = kept_run(blob, d, size, i + lane);
        const u64 start = max(run.start, from), end = min(run.start + run.len, to);
        const E v = sizeof(E) == 8 ? (E)run.bits : (E)convert(d->dtype, item.dtype, (u32)run.bits);
        const bool some = run.start < to, alone = some && end - start <= 32;
        if (alone)
            for (u64 at = start; at < end; ++at) out[at - d->first] = v;
        for (u32 left = __ballot_sync(ALL_LANES, some && !alone); left; left &= left - 1) {
            const i32 whose = __ffs((i32)left) - 1;
            const u64 its_end = __shfl_sync(ALL_LANES, end, whose);
            const E its = (E)__shfl_sync(ALL_LANES, (u64)v, whose);
            for (u64 at = __shfl_sync(ALL_LANES, start, whose) + lane; at < its_end; at += 32) out[at - d->first] = its;
        }
        more = __all_sync(ALL_LANES, some);
    }
}
