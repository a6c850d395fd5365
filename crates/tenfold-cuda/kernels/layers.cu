// Layers: what is left of a tensor beside a sum of layers, and the sum itself, to the same bits as on the CPU. The twin of
// `engine/sum.rs`. Normative: docs/format.md, 'Layers'.

#include "floats.cuh"

// Calls `f` with the index of every value.
template <class F> DEVICE void layers_each(const LayersArgs &a, const F &f) {
    const u64 stride = (u64)gridDim.x * LAYERS_THREADS;
    for (u64 i = (u64)blockIdx.x * LAYERS_THREADS + threadIdx.x; i < a.count; i += stride) f(i);
}

// What is not finite has all bits of its exponent. The largest number and minus that bound a sum.
DEVICE bool layers_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }
DEVICE bool layers_finite(double v) { return ((u64)__double_as_longlong(v) >> 52 & 0x7ff) != 0x7ff; }
DEVICE float layers_bounded(float v) {
    const float most = __uint_as_float(0x7f7fffffu);
    return v > most ? most : v < -most ? -most : v;
}
DEVICE double layers_bounded(double v) {
    const double most = __longlong_as_double(0x7fefffffffffffffll);
    return v > most ? most : v < -most ? -most : v;
}

template <class R> DEVICE void layers_add(const LayersArgs &a) {
    const R *first = (const R *)a.first, *second = (const R *)a.second;
    layers_each(a, [&](u64 i) {
        const R sum = first[i], next = second[i];
        if (layers_finite(sum)) ((R *)a.to)[i] = layers_finite(next) ? layers_bounded(sum + next) : next;
    });
}

template <class R> DEVICE void layers_subtract(const LayersArgs &a) {
    const R *first = (const R *)a.first, *second = (const R *)a.second;
    layers_each(a, [&](u64 i) {
        const R whole = first[i], sum = second[i];
        ((R *)a.to)[i] = layers_finite(whole) && layers_finite(sum) ? layers_bounded(whole - sum) : (R)0;
    });
}

DEVICE u32 layers_element(const LayersArgs &a, u64 i) {
    return size_of(a.dtype) == 1 ? ((const u8 *)a.first)[i] : ((const u16 *)a.first)[i];
}

// Bits of the mantissa of a dtype narrower than f32.
DEVICE u32 layers_mantissa(u32 dtype) {
    return dtype == DTYPE_F8_E4M3 ? 3 : dtype == DTYPE_F8_E5M2 ? 2 : dtype == DTYPE_F16 ? 10 : 7;
}

KERNEL(LAYERS_THREADS) layers_add_4(const LayersArgs a) { layers_add<float>(a); }
KERNEL(LAYERS_THREADS) layers_add_8(const LayersArgs a) { layers_add<double>(a); }
KERNEL(LAYERS_THREADS) layers_subtract_4(const LayersArgs a) { layers_subtract<float>(a); }
KERNEL(LAYERS_THREADS) layers_subtract_8(const LayersArgs a) { layers_subtract<double>(a); }

// Elements narrower than f32 as f32. What is not finite keeps its sign and its mantissa, so that it comes back by its bits.
KERNEL(LAYERS_THREADS) layers_widen(const LayersArgs a) {
    const u32 mantissa = layers_mantissa(a.dtype), top = 8 * size_of(a.dtype) - 1;
    layers_each(a, [&](u64 i) {
        const u32 v = layers_element(a, i);
        u32 bits = f32_of(a.dtype, v);
        if ((bits & 0x7f800000u) == 0x7f800000u) {
            bits = v >> top << 31 | 0x7f800000u | (v & ((1u << mantissa) - 1)) << (23 - mantissa);
        }
        ((u32 *)a.to)[i] = bits;
    });
}

// Sums to elements narrower than f32.
KERNEL(LAYERS_THREADS) layers_round(const LayersArgs a) {
    const u32 size = size_of(a.dtype), mantissa = layers_mantissa(a.dtype), top = 8 * size - 1;
    // The exponent of what is not finite, in its place.
    const u32 special = ((1u << (top - mantissa)) - 1) << mantissa;
    layers_each(a, [&](u64 i) {
        const u32 bits = ((const u32 *)a.first)[i], sign = bits >> 31 << top, low = bits & 0x7fffffu;
        u32 element;
        if ((bits & 0x7f800000u) != 0x7f800000u) {
            element = element_of(a.dtype, __uint_as_float(bits));
        } else if (a.dtype == DTYPE_F8_E4M3) {
            // It has no infinities: its largest numbers stand for them.
            element = sign | (low ? 0x7f : 0x7e);
        } else {
            const u32 rest = low >> (23 - mantissa);
            element = special | sign | (low && !rest ? 1u << (mantissa - 1) : rest);
        }
        if (size == 1) {
            ((u8 *)a.to)[i] = (u8)element;
        } else {
            ((u16 *)a.to)[i] = (u16)element;
        }
    });
}

// The largest finite magnitude among elements of any float dtype, as the bits of a working value: `to` starts as 0.
KERNEL(LAYERS_THREADS) layers_largest(const LayersArgs a) {
    u64 most = 0;
    layers_each(a, [&](u64 i) {
        const bool wide = a.dtype == DTYPE_F64;
        u64 bits;
        if (wide) {
            bits = ((const u64 *)a.first)[i] & 0x7fffffffffffffffull;
        } else {
            const u32 v = a.dtype == DTYPE_F32 ? ((const u32 *)a.first)[i] : layers_element(a, i);
            bits = f32_of(a.dtype, v) & 0x7fffffffu;
        }
        // Magnitudes are in the order of their bits.
        if (bits < (wide ? 0x7ff0000000000000ull : 0x7f800000ull) && bits > most) most = bits;
    });
    for (int by = 16; by > 0; by >>= 1) {
        const u64 other = __shfl_xor_sync(ALL_LANES, most, by);
        most = other > most ? other : most;
    }
    if (lane_of() == 0 && most > 0) atomicMax((u64 *)a.to, most);
}
