// Decoded pictures of a video engine to elements, and checksums of their samples. The twin of `tenfold-video`'s
// `samples/mapping.rs` and of its `check_of`. Normative: docs/format.md, 'Pictures'.

#include "crc.cuh"
#include "dequant.cuh"
#include "floats.cuh"

#define PICTURES_WARPS (PICTURES_THREADS / 32)

// A sample of a picture; those of two bytes have their low bits empty.
DEVICE u32 picture_sample(const PictureArgs &a, u32 line, u32 column) {
    const u8 *at = a.luma + (u64)line * a.pitch;
    return a.depth > 8 ? ((const u16 *)at)[column] >> (16 - a.depth) : at[column];
}

// The part of a tensor that shares a centre and a step with value `i`.
DEVICE u64 picture_part(const PictureArgs &a, u64 i) {
    if (a.scaling == PICTURE_COLUMNS) return i >> 32 ? i % a.columns : (u32)i % a.columns;
    return i / (a.columns * a.group);
}

DEVICE double picture_value(const PictureArgs &a, u64 i, u32 sample) {
    double centre = a.base, step = a.unit;
    if (a.scaling != PICTURE_TENSOR) {
        // Two numbers of bf16: a centre and a step.
        const u32 pair = a.parts[picture_part(a, i)];
        centre *= (double)__uint_as_float(pair << 16);
        step *= (double)__uint_as_float(pair & 0xffff0000u);
    }
    return centre + step * ((double)sample - (double)(1u << (a.depth - 1)));
}

// Values of a picture from its sample `skip` on: value `first` of the tensor and `count` − 1 that follow it.
KERNEL(PICTURES_THREADS) pictures_values(const PictureArgs a) {
    const u32 stride = gridDim.x * PICTURES_THREADS, size = size_of(a.dtype);
    for (u32 i = blockIdx.x * PICTURES_THREADS + threadIdx.x; i < a.count; i += stride) {
        const u32 at = a.skip + i, line = at / a.width;
        const u32 sample = picture_sample(a, line, at - line * a.width);
        if (a.scaling == PICTURE_BYTES) {
            ((u8 *)a.to)[i] = (u8)sample;
            continue;
        }
        const double v = picture_value(a, a.first + i, sample);
        if (size == 8) {
            ((u64 *)a.to)[i] = finite_f64(v);
            continue;
        }
        const u32 bits = element_of(a.dtype, (float)v);
        switch (size) {
        case 1: ((u8 *)a.to)[i] = (u8)bits; break;
        case 2: ((u16 *)a.to)[i] = (u16)bits; break;
        default: ((u32 *)a.to)[i] = bits;
        }
    }
}

// Words of a part of the checksum; parts are counted from the end of the message.
#define PICTURES_PART (8 * CRC_PART)

// The checksum of all samples, as two bytes each, is added to a word that starts as zero. Lines have an even number of
// samples, so that none shares a word with another.
KERNEL(PICTURES_THREADS) pictures_check(const PictureArgs a) {
    __shared__ u32 tables[CRC_TABLE_WORDS];
    crc_fill(tables);
    __syncthreads();
    const Crc c = crc_open(tables);
    const u32 across = a.width / 2, words = across * a.height, lane = lane_of();
    const u32 parts = (words + PICTURES_PART - 1) / PICTURES_PART, warps = gridDim.x * PICTURES_WARPS;
    u32 sum = 0;
    for (u32 part = blockIdx.x * PICTURES_WARPS + warp_of(); part < parts; part += warps) {
        const u32 end = words - part * PICTURES_PART, begin = end > PICTURES_PART ? end - PICTURES_PART : 0;
        u32 at = begin + lane, line = at / across, column = at - line * across, acc = 0;
        for (; at < end; at += 32) {
            u32 word = picture_sample(a, line, 2 * column) | picture_sample(a, line, 2 * column + 1) << 16;
            // A message starts with its first word inverted.
            if (at == begin) word = ~word;
            acc = at < begin + 32 ? word : crc_next(c, acc, word);
            for (column += 32; column >= across; column -= across) ++line;
        }
        // The last word that this lane took is `at − 32`.
        if (begin + lane < end) acc = crc_multiply(acc, crc_powers[end - (at - 32)]);
        u32 mine = ~warp_xor(acc);
        // Eight of CRC_PART are a part here; the table has their powers up to fifteen.
        for (u32 left = part * 8; left > 0;) {
            const u32 sixteens = left >> 4 < 15 ? left >> 4 : 15;
            if (sixteens > 0) {
                mine = crc_multiply(mine, crc_sixteens[sixteens]);
                left -= sixteens << 4;
            } else {
                mine = crc_multiply(mine, crc_parts[left]);
                left = 0;
            }
        }
        sum ^= mine;
    }
    if (lane == 0 && sum != 0) atomicXor(a.check, sum);
}

// Elements that no sample holds, put where they belong.
KERNEL(PICTURES_THREADS) pictures_specials(const SpecialArgs a) {
    const u32 stride = gridDim.x * PICTURES_THREADS;
    for (u32 i = blockIdx.x * PICTURES_THREADS + threadIdx.x; i < a.count; i += stride) {
        const PictureSpecial s = a.specials[i];
        const u32 bits = a.from == DTYPE_F64 ? 0 : convert(a.from, a.dtype, (u32)s.bits);
        switch (size_of(a.dtype)) {
        case 1: ((u8 *)a.to)[s.at] = (u8)bits; break;
        case 2: ((u16 *)a.to)[s.at] = (u16)bits; break;
        case 4: ((u32 *)a.to)[s.at] = bits; break;
        default: ((u64 *)a.to)[s.at] = s.bits;
        }
    }
}
