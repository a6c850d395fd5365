//! 32 lanes in four AVX2 registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{
    DecodeSpec, Decoder, Escaped, LOW_COUNT, LOW_MASK, PAIR_INDEX, PAIR_MASK, PAIR_RAW, PairSpec, START,
    WordStack, highest,
};
use crate::entropy::pairs::{PAIR_LOG, PAIR_TABLES, SLOT_RAW, SLOT_SYMBOL};
use crate::entropy::table::{EncodeTable, SPAN_RAW};
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::error::Result;

/// For each mask of eight lanes: the index of the word that a set lane takes.
static EXPAND: [[u32; 8]; 256] = expand_table();
/// For each mask of eight lanes: set lanes in order at the upper end.
static PACK_UP: [[u32; 8]; 256] = pack_table();

const fn expand_table() -> [[u32; 8]; 256] {
    let mut t = [[0; 8]; 256];
    let mut m = 0;
    while m < 256 {
        let (mut lane, mut n) = (0, 0);
        while lane < 8 {
            if m >> lane & 1 == 1 {
                t[m][lane] = n;
                n += 1;
            }
            lane += 1;
        }
        m += 1;
    }
    t
}

const fn pack_table() -> [[u32; 8]; 256] {
    let mut t = [[0; 8]; 256];
    let mut m = 0usize;
    while m < 256 {
        let (mut lane, mut at) = (0, 8 - m.count_ones() as usize);
        while lane < 8 {
            if m >> lane & 1 == 1 {
                t[m][at] = lane as u32;
                at += 1;
            }
            lane += 1;
        }
        m += 1;
    }
    t
}

/// Codes whole ticks from the last to the first.
pub(super) fn encode(table: &EncodeTable, symbols: &[u16], x: &mut [u32; MAX_LANES], words: &mut WordStack) {
    assert!(words.top >= symbols.len() + 8, "a symbol pushes at most one word, and eight are stored at once");
    let n = table.span.len();
    assert!(n.is_power_of_two() && table.reciprocal.len() == n);
    // SAFETY: this path is only chosen where `Isa::available` found the features. Gather indices
    // are masked to the tables' length and there is room for the words (both asserted above).
    unsafe { encode_steps::<false>(table, symbols, x, words) }
}

/// The same for pairs.
pub(super) fn encode_pairs(
    table: &EncodeTable,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    assert!(words.top >= symbols.len() + 8, "a symbol pushes at most one word, and eight are stored at once");
    let n = table.span.len();
    assert!(n.is_power_of_two() && table.reciprocal.len() == n);
    // SAFETY: as for `encode`.
    unsafe { encode_steps::<true>(table, symbols, x, words) }
}

#[target_feature(enable = "avx2,popcnt")]
unsafe fn encode_steps<const PAIRS: bool>(
    table: &EncodeTable,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    let log = _mm_cvtsi32_si128(table.log as i32);
    let spill = _mm_cvtsi32_si128(32 - table.log as i32);
    let half = _mm256_set1_epi32(0xffff);
    let one = _mm256_sll_epi32(_mm256_set1_epi32(1), log);
    let within = _mm256_set1_epi32(table.span.len() as i32 - 1);
    // SAFETY: see `encode`; loads and stores of `x` cover exactly its 32 entries.
    unsafe {
        let mut lanes = [_mm256_setzero_si256(); 4];
        for g in 0..4 {
            lanes[g] = _mm256_loadu_si256(x.as_ptr().add(8 * g).cast());
        }
        let mut top = words.buffer.as_mut_ptr().add(words.top);
        for step in symbols.chunks_exact(MAX_LANES).rev() {
            for g in [3, 2, 1, 0] {
                let whole = _mm256_cvtepu16_epi32(_mm_loadu_si128(step.as_ptr().add(8 * g).cast()));
                let mut i = _mm256_and_si256(whole, within);
                if PAIRS {
                    i = _mm256_and_si256(i, _mm256_set1_epi32(PAIR_INDEX as i32));
                }
                let span = _mm256_i32gather_epi32::<4>(table.span.as_ptr().cast(), i);
                let rcp = _mm256_i32gather_ps::<4>(table.reciprocal.as_ptr(), i);
                let f = _mm256_and_si256(span, half);
                let mut start = _mm256_srli_epi32::<16>(span);
                let x = lanes[g];
                let raw = _mm256_srli_epi32::<{ SPAN_RAW as i32 }>(span);
                let over = if PAIRS {
                    start = _mm256_and_si256(start, _mm256_set1_epi32(0xfff));
                    _mm256_srlv_epi32(x, _mm256_sub_epi32(_mm256_set1_epi32(32 - PAIR_LOG as i32), raw))
                } else {
                    _mm256_srl_epi32(x, spill)
                };
                // Both sides are below 2^15, so the signed comparison is the unsigned one.
                let keep = _mm256_cmpgt_epi32(f, over);
                let full = !_mm256_movemask_ps(_mm256_castsi256_ps(keep)) as usize & 0xff;
                let order = _mm256_loadu_si256(PACK_UP[full].as_ptr().cast());
                let sorted = _mm256_permutevar8x32_epi32(_mm256_and_si256(x, half), order);
                let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(sorted, sorted));
                _mm_storeu_si128(top.sub(8).cast(), _mm256_castsi256_si128(packed));
                top = top.sub(full.count_ones() as usize);
                let mut x = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(x), x, keep);
                if PAIRS {
                    x = _mm256_or_si256(
                        _mm256_sllv_epi32(x, raw),
                        _mm256_srli_epi32::<{ PAIR_RAW as i32 }>(whole),
                    );
                }
                // AVX2 converts signed integers only: halves are exact, their sum rounds once.
                let high = _mm256_cvtepi32_ps(_mm256_srli_epi32::<16>(x));
                let low = _mm256_cvtepi32_ps(_mm256_and_si256(x, half));
                let real = _mm256_add_ps(_mm256_mul_ps(high, _mm256_set1_ps(65536.0)), low);
                // The estimate is at most two too small (see `SHRINK`); two corrections make it exact.
                let q = _mm256_cvttps_epi32(_mm256_mul_ps(real, rcp));
                let mut rem = _mm256_sub_epi32(x, _mm256_mullo_epi32(q, f));
                let mut base = _mm256_sll_epi32(q, log);
                for _ in 0..2 {
                    let less = _mm256_cmpgt_epi32(f, rem);
                    rem = _mm256_sub_epi32(rem, _mm256_andnot_si256(less, f));
                    base = _mm256_add_epi32(base, _mm256_andnot_si256(less, one));
                }
                lanes[g] = _mm256_add_epi32(_mm256_add_epi32(base, rem), start);
            }
        }
        words.top = top.offset_from(words.buffer.as_ptr()) as usize;
        for g in 0..4 {
            _mm256_storeu_si256(x.as_mut_ptr().add(8 * g).cast(), lanes[g]);
        }
    }
}

/// Decodes whole ticks while a full tick's words are left; returns the values done.
pub(super) fn decode_levels(
    d: &mut Decoder<'_>,
    spec: &DecodeSpec<'_>,
    class: &[u8],
    low: &[u32],
    out: &mut [i32],
) -> Result<usize> {
    let ticks = out.len() / MAX_LANES;
    let most = highest(class);
    assert!(spec.slots.len() >= ((most + 1) * 2) << spec.log);
    assert!(class.is_empty() || class.len() >= ticks * MAX_LANES);
    assert!(low.is_empty() || low.len() >= ticks * MAX_LANES);
    // SAFETY: this path is only chosen where `Isa::available` found the features; slot indices are
    // (class · 2 + quantiser) · 2^log + (x mod 2^log), below the length asserted above.
    unsafe { level_ticks(d, spec, class, low, out) }
}

/// Takes a slot off each state and refills from the words at `words`; returns how many were taken.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn pop(x: &mut __m256i, slot: __m256i, log: __m128i, words: *const u8) -> usize {
    let mask = _mm256_set1_epi32(0xfff);
    let f = _mm256_add_epi32(_mm256_and_si256(slot, mask), _mm256_set1_epi32(1));
    let offset = _mm256_and_si256(_mm256_srli_epi32::<12>(slot), mask);
    let v = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srl_epi32(*x, log)), offset);
    // SAFETY: as the caller has made sure.
    unsafe { fill(x, v, words) }
}

/// Refills states that run low from the words at `words`; returns how many were taken.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn fill(x: &mut __m256i, v: __m256i, words: *const u8) -> usize {
    let low = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(v), _mm256_setzero_si256());
    let lanes = _mm256_movemask_ps(_mm256_castsi256_ps(low)) as usize & 0xff;
    // SAFETY: the caller has made sure that 16 bytes can be read; the table has 256 rows.
    let fresh = unsafe {
        let next = _mm256_cvtepu16_epi32(_mm_loadu_si128(words.cast()));
        _mm256_permutevar8x32_epi32(next, _mm256_loadu_si256(EXPAND[lanes].as_ptr().cast()))
    };
    *x = _mm256_blendv_epi8(v, _mm256_or_si256(_mm256_slli_epi32::<16>(v), fresh), low);
    const { assert!(START == 1 << 16) };
    lanes.count_ones() as usize
}

#[target_feature(enable = "avx2,popcnt")]
unsafe fn level_ticks(
    d: &mut Decoder<'_>,
    spec: &DecodeSpec<'_>,
    class: &[u8],
    low: &[u32],
    out: &mut [i32],
) -> Result<usize> {
    let log = _mm_cvtsi32_si128(spec.log as i32);
    let low_mask = _mm256_set1_epi32(LOW_MASK as i32);
    let mask = _mm256_set1_epi32((1 << spec.log) - 1);
    let one = _mm256_set1_epi32(1);
    let zero = _mm256_setzero_si256();
    let on_q = _mm256_set1_epi32(spec.machine.on_quantiser as i32);
    let on_odd = _mm256_set1_epi32(spec.machine.on_parity as i32);
    let escape = _mm256_set1_epi32(ESCAPE as i8 as i32);
    let mut done = 0;
    // SAFETY: loads and stores stay within the slices: `done` + 32 never exceeds a multiple of 32 below
    // `out.len()`, `class` and `low` are as long where they are used, and words are read only while 64
    // bytes of them are left (four reads of 16 bytes, each at most 16 further on than the last).
    unsafe {
        let mut x = [zero; 4];
        let mut state = [zero; 4];
        for g in 0..4 {
            x[g] = _mm256_loadu_si256(d.x.as_ptr().add(8 * g).cast());
            state[g] = _mm256_loadu_si256(d.state.as_ptr().add(8 * g).cast());
        }
        let mut failed = None;
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let (mut k, mut slot) = ([zero; 4], [zero; 4]);
            let mut taken = 0;
            let mut rare = zero;
            for g in 0..4 {
                let mut set = _mm256_and_si256(state[g], one);
                if !class.is_empty() {
                    let c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(class.as_ptr().add(done + 8 * g).cast()));
                    set = _mm256_or_si256(set, _mm256_slli_epi32::<1>(c));
                }
                let i = _mm256_or_si256(_mm256_sll_epi32(set, log), _mm256_and_si256(x[g], mask));
                slot[g] = _mm256_i32gather_epi32::<4>(spec.slots.as_ptr().cast(), i);
                k[g] = _mm256_srai_epi32::<24>(slot[g]);
                rare = _mm256_or_si256(rare, _mm256_cmpeq_epi32(k[g], escape));
            }
            for g in 0..4 {
                taken += pop(&mut x[g], slot[g], log, d.words.as_ptr().add(2 * taken));
            }
            d.words = &d.words[2 * taken..];
            if _mm256_testz_si256(rare, rare) == 0 {
                let mut all = [0i32; MAX_LANES];
                for g in 0..4 {
                    _mm256_storeu_si256(all.as_mut_ptr().add(8 * g).cast(), k[g]);
                }
                for (l, v) in all.iter_mut().enumerate().filter(|(_, v)| **v == ESCAPE as i8 as i32) {
                    match d.escapes.next(low.get(done + l).map_or(0, |w| w >> LOW_COUNT)) {
                        Ok(high) => *v = high,
                        Err(e) => failed = Some(e),
                    }
                }
                for g in 0..4 {
                    k[g] = _mm256_loadu_si256(all.as_ptr().add(8 * g).cast());
                }
                if failed.is_some() {
                    break;
                }
            }
            for g in 0..4 {
                if !low.is_empty() {
                    let l = _mm256_loadu_si256(low.as_ptr().add(done + 8 * g).cast());
                    let shifted = _mm256_sllv_epi32(k[g], _mm256_srli_epi32::<{ LOW_COUNT as i32 }>(l));
                    k[g] = _mm256_or_si256(shifted, _mm256_and_si256(l, low_mask));
                }
                let q = _mm256_sub_epi32(zero, _mm256_and_si256(state[g], one));
                let odd = _mm256_sub_epi32(zero, _mm256_and_si256(k[g], one));
                let fed = _mm256_xor_si256(_mm256_srli_epi32::<1>(state[g]), _mm256_and_si256(q, on_q));
                state[g] = _mm256_xor_si256(fed, _mm256_and_si256(odd, on_odd));
                let sign = _mm256_sign_epi32(_mm256_and_si256(q, one), k[g]);
                let m = _mm256_sub_epi32(_mm256_slli_epi32::<1>(k[g]), sign);
                _mm256_storeu_si256(out.as_mut_ptr().add(done + 8 * g).cast(), m);
            }
            done += MAX_LANES;
        }
        for g in 0..4 {
            _mm256_storeu_si256(d.x.as_mut_ptr().add(8 * g).cast(), x[g]);
            _mm256_storeu_si256(d.state.as_mut_ptr().add(8 * g).cast(), state[g]);
        }
        failed.map_or(Ok(done), Err)
    }
}

/// Decodes whole ticks of pairs while a full tick's words are left; returns the pairs done.
pub(super) fn decode_pairs(
    d: &mut Decoder<'_>,
    spec: &PairSpec<'_>,
    class: &[u8],
    out: &mut [u32],
    escaped: &mut Vec<Escaped>,
) -> Result<usize> {
    let most = highest(class);
    assert!(spec.slots.len() >= ((most + 1) * PAIR_TABLES) << PAIR_LOG);
    assert!(class.is_empty() || class.len() >= out.len() / MAX_LANES * MAX_LANES * 2);
    // SAFETY: this path is only chosen where `Isa::available` found the features; slot indices are (class · 4 + two bits) · 2^11 +
    // (x mod 2^11), below the length asserted above, and values are indexed by twelve bits.
    unsafe { pair_ticks(d, spec, class, out, escaped) }
}

#[target_feature(enable = "avx2,popcnt")]
unsafe fn pair_ticks(
    d: &mut Decoder<'_>,
    spec: &PairSpec<'_>,
    class: &[u8],
    out: &mut [u32],
    escaped: &mut Vec<Escaped>,
) -> Result<usize> {
    const LOG: i32 = PAIR_LOG as i32;
    const RAW: i32 = SLOT_RAW as i32;
    const SYMBOL: i32 = SLOT_SYMBOL as i32;
    let mask = _mm256_set1_epi32(PAIR_MASK as i32);
    let three = _mm256_set1_epi32(3);
    let zero = _mm256_setzero_si256();
    let mut done = 0;
    // SAFETY: loads and stores stay within the slices: `done` + 32 never exceeds a multiple of 32 below `out.len()`, `class` is twice
    // as long where it is used, and words are read only while 64 bytes of them are left (four reads of 16 bytes, each at most 16
    // further on than the last).
    unsafe {
        // What the low bits of a state add to the next, and what parities do.
        let by_low: [u32; 8] = std::array::from_fn(|i| spec.next[i & 3]);
        let by_parity: [u32; 8] = std::array::from_fn(|i| spec.next[(i & 3) << 2]);
        let by_low = _mm256_loadu_si256(by_low.as_ptr().cast());
        let by_parity = _mm256_loadu_si256(by_parity.as_ptr().cast());
        let (mut x, mut state) = ([zero; 4], [zero; 4]);
        for g in 0..4 {
            x[g] = _mm256_loadu_si256(d.x.as_ptr().add(8 * g).cast());
            state[g] = _mm256_loadu_si256(d.state.as_ptr().add(8 * g).cast());
        }
        let mut failed = None;
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let (mut slot, mut low, mut y) = ([zero; 4], [zero; 4], [zero; 4]);
            let mut rare = 0u32;
            for g in 0..4 {
                low[g] = _mm256_and_si256(state[g], three);
                let mut set = low[g];
                if !class.is_empty() {
                    // Classes of two neighbours are the same: the first of each is taken.
                    let two = _mm_loadu_si128(class.as_ptr().add(2 * (done + 8 * g)).cast());
                    let c = _mm256_cvtepu16_epi32(_mm_and_si128(two, _mm_set1_epi16(0xff)));
                    set = _mm256_or_si256(set, _mm256_slli_epi32::<2>(c));
                }
                let i = _mm256_or_si256(_mm256_slli_epi32::<LOG>(set), _mm256_and_si256(x[g], mask));
                slot[g] = _mm256_i32gather_epi32::<4>(spec.slots.as_ptr().cast(), i);
                let escapes = _mm256_cmpeq_epi32(_mm256_srli_epi32::<RAW>(slot[g]), three);
                rare |= (_mm256_movemask_ps(_mm256_castsi256_ps(escapes)) as u32 & 0xff) << (8 * g);
            }
            let mut taken = 0;
            for g in 0..4 {
                let f = _mm256_and_si256(slot[g], mask);
                let offset = _mm256_and_si256(_mm256_srli_epi32::<LOG>(slot[g]), mask);
                y[g] = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32::<LOG>(x[g])), offset);
                let v = _mm256_srlv_epi32(y[g], _mm256_srli_epi32::<RAW>(slot[g]));
                taken += fill(&mut x[g], v, d.words.as_ptr().add(2 * taken));
            }
            d.words = &d.words[2 * taken..];
            if rare != 0 {
                let (mut slots, mut ys, mut states) =
                    ([0u32; MAX_LANES], [0u32; MAX_LANES], [0u32; MAX_LANES]);
                for g in 0..4 {
                    _mm256_storeu_si256(slots.as_mut_ptr().add(8 * g).cast(), slot[g]);
                    _mm256_storeu_si256(ys.as_mut_ptr().add(8 * g).cast(), y[g]);
                    _mm256_storeu_si256(states.as_mut_ptr().add(8 * g).cast(), state[g]);
                }
                failed = d.take_escapes(done, rare, [&slots, &ys, &states], spec.machine, escaped).err();
                if failed.is_some() {
                    break;
                }
            }
            for g in 0..4 {
                let symbol = _mm256_srli_epi32::<{ SYMBOL - 2 }>(slot[g]);
                let i = _mm256_or_si256(
                    _mm256_or_si256(_mm256_slli_epi32::<10>(low[g]), _mm256_and_si256(y[g], three)),
                    _mm256_and_si256(symbol, _mm256_set1_epi32(0x3fc)),
                );
                let v = _mm256_i32gather_epi32::<4>(spec.values.as_ptr().cast(), i);
                _mm256_storeu_si256(out.as_mut_ptr().add(done + 8 * g).cast(), v);
                // Bit 4 of the symbol to bit 0, bit 0 to bit 1.
                let first =
                    _mm256_and_si256(_mm256_srli_epi32::<{ SYMBOL + 4 }>(slot[g]), _mm256_set1_epi32(1));
                let second =
                    _mm256_and_si256(_mm256_srli_epi32::<{ SYMBOL - 1 }>(slot[g]), _mm256_set1_epi32(2));
                let fed = _mm256_xor_si256(
                    _mm256_permutevar8x32_epi32(by_low, low[g]),
                    _mm256_permutevar8x32_epi32(by_parity, _mm256_or_si256(first, second)),
                );
                state[g] = _mm256_xor_si256(_mm256_srli_epi32::<2>(state[g]), fed);
            }
            done += MAX_LANES;
        }
        for g in 0..4 {
            _mm256_storeu_si256(d.x.as_mut_ptr().add(8 * g).cast(), x[g]);
            _mm256_storeu_si256(d.state.as_mut_ptr().add(8 * g).cast(), state[g]);
        }
        failed.map_or(Ok(done), Err)
    }
}

/// Decodes whole ticks of bytes, each with the table of its class, or all with the first; returns the values done.
pub(super) fn decode_bytes(
    d: &mut Decoder<'_>,
    slots: &[u32],
    log: u32,
    class: &[u8],
    out: &mut [u8],
) -> usize {
    let most = highest(class);
    assert!(slots.len() >= (most + 1) << log);
    assert!(class.is_empty() || class.len() >= out.len() / MAX_LANES * MAX_LANES);
    // SAFETY: as for `decode_levels`; the slot index is class · 2^log + (x mod 2^log), below the length asserted above.
    unsafe {
        match class.is_empty() {
            true => byte_steps::<false>(d, slots, log, class, out),
            false => byte_steps::<true>(d, slots, log, class, out),
        }
    }
}

#[target_feature(enable = "avx2,popcnt")]
unsafe fn byte_steps<const CLASSES: bool>(
    d: &mut Decoder<'_>,
    slots: &[u32],
    log: u32,
    class: &[u8],
    out: &mut [u8],
) -> usize {
    let mask = _mm256_set1_epi32((1 << log) - 1);
    let log = _mm_cvtsi32_si128(log as i32);
    let zero = _mm256_setzero_si256();
    let mut done = 0;
    // SAFETY: as in `level_ticks`.
    unsafe {
        let mut x = [zero; 4];
        for g in 0..4 {
            x[g] = _mm256_loadu_si256(d.x.as_ptr().add(8 * g).cast());
        }
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let mut taken = 0;
            let mut slot = [zero; 4];
            for g in 0..4 {
                let mut i = _mm256_and_si256(x[g], mask);
                if CLASSES {
                    let c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(class.as_ptr().add(done + 8 * g).cast()));
                    i = _mm256_or_si256(i, _mm256_sll_epi32(c, log));
                }
                slot[g] = _mm256_i32gather_epi32::<4>(slots.as_ptr().cast(), i);
            }
            let pair = |a: usize| {
                _mm256_packus_epi32(_mm256_srli_epi32::<24>(slot[a]), _mm256_srli_epi32::<24>(slot[a + 1]))
            };
            // The packs work within 128-bit halves: put the eight groups of four back in order.
            let packed = _mm256_packus_epi16(pair(0), pair(2));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_si256(
                out.as_mut_ptr().add(done).cast(),
                _mm256_permutevar8x32_epi32(packed, order),
            );
            for g in 0..4 {
                taken += pop(&mut x[g], slot[g], log, d.words.as_ptr().add(2 * taken));
            }
            d.words = &d.words[2 * taken..];
            done += MAX_LANES;
        }
        for g in 0..4 {
            _mm256_storeu_si256(d.x.as_mut_ptr().add(8 * g).cast(), x[g]);
        }
    }
    done
}
