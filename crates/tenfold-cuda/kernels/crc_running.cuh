// CRC-32 of what a warp writes, kept while it writes: nothing has to be read back.
//
// A section is a head word and content. Lane l writes content words l, l + 32, …, and lane 31 the head, which stands
// 32 words before that lane's first: then every lane advances its sum by 32 words from one word to the next.
#pragma once

#include "crc.cuh"

STORED u32 crc_doublings[32] = CRC_DOUBLINGS;

// A lane's sum before the first word of content.
DEVICE u32 running_start(u32 head) { return lane_of() == 31 ? head : 0; }

// x to the power of 32·n; all lanes of a warp take part, each for one bit of n.
OUTLINE u32 running_power(u32 n) {
    u32 p = n >> lane_of() & 1 ? crc_doublings[lane_of()] : 1u << 31;
    for (u32 by = 16; by > 0; by >>= 1) p = crc_multiply(p, __shfl_xor_sync(ALL_LANES, p, (int)by));
    return p;
}

// The checksum after a section of `words` words of content, from that before it and the lanes' sums. Starts at ~0;
// the complement of the last is the CRC. All lanes of a warp take part and get it.
OUTLINE u32 running_end(u32 before, u32 sum, u32 words) {
    const u32 lane = lane_of();
    // Words from the last that the lane took to the section's end; more than 32 where it took none.
    const u32 left = words > lane ? words - (lane + (words - 1 - lane) / 32 * 32) : words + 32 - lane;
    const u32 mine = crc_multiply(sum, crc_powers[left]);
    return crc_multiply(before, running_power(words + 1)) ^ warp_xor(mine);
}
