//! 32 lanes in two AVX-512 registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{
    DecodeSpec, Decoder, Escaped, LOW_COUNT, LOW_MASK, PAIR_INDEX, PAIR_MASK, PAIR_RAW, PairSpec, WordStack,
    highest,
};
use crate::entropy::pairs::{PAIR_ESCAPE_BITS, PAIR_LOG, PAIR_TABLES, SLOT_RAW, SLOT_SYMBOL};
use crate::entropy::table::{EncodeTable, SPAN_RAW};
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::error::Result;

/// Codes whole ticks from the last to the first.
pub(super) fn encode(table: &EncodeTable, symbols: &[u16], x: &mut [u32; MAX_LANES], words: &mut WordStack) {
    assert!(words.top >= symbols.len(), "a symbol pushes at most one word");
    let n = table.span.len();
    assert!(n.is_power_of_two() && table.reciprocal.len() == n);
    // SAFETY: this path is only chosen where `Isa::available` found the features. Gather indices
    // are masked to the tables' length and there is room for one word a symbol (both asserted above).
    unsafe { encode_steps::<false>(table, symbols, x, words) }
}

/// The same for pairs.
pub(super) fn encode_pairs(
    table: &EncodeTable,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    assert!(words.top >= symbols.len(), "a symbol pushes at most one word");
    let n = table.span.len();
    assert!(n.is_power_of_two() && table.reciprocal.len() == n);
    // SAFETY: as for `encode`.
    unsafe { encode_steps::<true>(table, symbols, x, words) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
unsafe fn encode_steps<const PAIRS: bool>(
    table: &EncodeTable,
    symbols: &[u16],
    x: &mut [u32; MAX_LANES],
    words: &mut WordStack,
) {
    let log = _mm_cvtsi32_si128(table.log as i32);
    let spill = _mm_cvtsi32_si128(32 - table.log as i32);
    let half = _mm512_set1_epi32(0xffff);
    let within = _mm512_set1_epi32(table.span.len() as i32 - 1);
    // SAFETY: see `encode`; loads and stores of `x` cover exactly its 32 entries.
    unsafe {
        let mut lanes =
            [_mm512_loadu_si512(x.as_ptr().cast()), _mm512_loadu_si512(x.as_ptr().add(16).cast())];
        let mut top = words.buffer.as_mut_ptr().add(words.top);
        let near = if PAIRS { None } else { Near::new(table) };
        for step in symbols.chunks_exact(MAX_LANES).rev() {
            for g in [1, 0] {
                let whole = _mm512_cvtepu16_epi32(_mm256_loadu_si256(step.as_ptr().add(16 * g).cast()));
                let i =
                    if PAIRS { _mm512_and_si512(whole, _mm512_set1_epi32(PAIR_INDEX as i32)) } else { whole };
                let (span, rcp) = match near.as_ref().and_then(|near| near.look_up(i)) {
                    Some(found) => found,
                    None => {
                        let i = _mm512_and_si512(i, within);
                        let span = _mm512_i32gather_epi32::<4>(i, table.span.as_ptr().cast());
                        (span, _mm512_i32gather_ps::<4>(i, table.reciprocal.as_ptr()))
                    }
                };
                let f = _mm512_and_si512(span, half);
                let mut start = _mm512_srli_epi32::<16>(span);
                let x = lanes[g];
                let raw = _mm512_srli_epi32::<SPAN_RAW>(span);
                let over = if PAIRS {
                    start = _mm512_and_si512(start, _mm512_set1_epi32(0xfff));
                    _mm512_srlv_epi32(x, _mm512_sub_epi32(_mm512_set1_epi32(32 - PAIR_LOG as i32), raw))
                } else {
                    _mm512_srl_epi32(x, spill)
                };
                let full = _mm512_cmpge_epu32_mask(over, f);
                let out = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(full, x));
                let n = full.count_ones();
                top = top.sub(n as usize);
                _mm256_mask_storeu_epi16(top.cast(), ((1u32 << n) - 1) as __mmask16, out);
                let mut x = _mm512_mask_srli_epi32::<16>(x, full, x);
                if PAIRS {
                    x = _mm512_or_si512(_mm512_sllv_epi32(x, raw), _mm512_srli_epi32::<PAIR_RAW>(whole));
                }
                // The estimate is at most two too small (see `SHRINK`); two corrections make it exact.
                let q = _mm512_cvttps_epu32(_mm512_mul_ps(_mm512_cvtepu32_ps(x), rcp));
                let mut rem = _mm512_sub_epi32(x, _mm512_mullo_epi32(q, f));
                let mut base = _mm512_sll_epi32(q, log);
                let one = _mm512_sll_epi32(_mm512_set1_epi32(1), log);
                for _ in 0..2 {
                    let more = _mm512_cmpge_epu32_mask(rem, f);
                    rem = _mm512_mask_sub_epi32(rem, more, rem, f);
                    base = _mm512_mask_add_epi32(base, more, base, one);
                }
                lanes[g] = _mm512_add_epi32(_mm512_add_epi32(base, rem), start);
            }
        }
        words.top = top.offset_from(words.buffer.as_ptr()) as usize;
        _mm512_storeu_si512(x.as_mut_ptr().cast(), lanes[0]);
        _mm512_storeu_si512(x.as_mut_ptr().add(16).cast(), lanes[1]);
    }
}

/// Levels −16 … 15 of two tables (the quantisers of a single class), held in registers: most symbols are
/// found there, and a gather takes far longer.
struct Near {
    span: [[__m512i; 2]; 2],
    rcp: [[__m512; 2]; 2],
}

impl Near {
    /// `None` where there are more tables, or bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
    fn new(table: &EncodeTable) -> Option<Near> {
        if table.span.len() != 512 || table.reciprocal.len() != 512 {
            return None;
        }
        let span = |set: usize, half: usize| {
            let at: [u32; 16] = std::array::from_fn(|i| table.span[set * 256 + slot_of(16 * half + i)]);
            // SAFETY: the array has the bytes of a register.
            unsafe { _mm512_loadu_si512(at.as_ptr().cast()) }
        };
        let rcp = |set: usize, half: usize| {
            let at: [f32; 16] = std::array::from_fn(|i| table.reciprocal[set * 256 + slot_of(16 * half + i)]);
            // SAFETY: as above.
            unsafe { _mm512_loadu_ps(at.as_ptr()) }
        };
        Some(Near {
            span: [[span(0, 0), span(0, 1)], [span(1, 0), span(1, 1)]],
            rcp: [[rcp(0, 0), rcp(0, 1)], [rcp(1, 0), rcp(1, 1)]],
        })
    }

    /// Span and reciprocal of sixteen symbols, if all are near.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
    fn look_up(&self, i: __m512i) -> Option<(__m512i, __m512)> {
        let shifted = _mm512_add_epi32(i, _mm512_set1_epi32(16));
        if _mm512_test_epi32_mask(shifted, _mm512_set1_epi32(0xe0)) != 0 {
            return None;
        }
        // A permutation of two registers looks at the low five bits of the index only.
        let second = _mm512_test_epi32_mask(i, _mm512_set1_epi32(0x100));
        let span = |s: &[__m512i; 2]| _mm512_permutex2var_epi32(s[0], i, s[1]);
        let rcp = |r: &[__m512; 2]| _mm512_permutex2var_ps(r[0], i, r[1]);
        if second == 0 {
            return Some((span(&self.span[0]), rcp(&self.rcp[0])));
        }
        Some((
            _mm512_mask_blend_epi32(second, span(&self.span[0]), span(&self.span[1])),
            _mm512_mask_blend_ps(second, rcp(&self.rcp[0]), rcp(&self.rcp[1])),
        ))
    }
}

/// Symbol whose low five bits are `five` among levels −16 … 15.
fn slot_of(five: usize) -> usize {
    if five < 16 { five } else { five + 224 }
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
    unsafe {
        match (class.is_empty(), low.is_empty()) {
            (true, true) => level_ticks::<false, false>(d, spec, class, low, out),
            (false, true) => level_ticks::<true, false>(d, spec, class, low, out),
            (true, false) => level_ticks::<false, true>(d, spec, class, low, out),
            (false, false) => level_ticks::<true, true>(d, spec, class, low, out),
        }
    }
}

/// Takes a slot off each state and refills from the words at `words`; returns how many were taken.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
unsafe fn pop(x: &mut __m512i, slot: __m512i, log: __m128i, words: *const u8) -> usize {
    let mask = _mm512_set1_epi32(0xfff);
    let f = _mm512_add_epi32(_mm512_and_si512(slot, mask), _mm512_set1_epi32(1));
    let offset = _mm512_and_si512(_mm512_srli_epi32::<12>(slot), mask);
    let v = _mm512_add_epi32(_mm512_mullo_epi32(f, _mm512_srl_epi32(*x, log)), offset);
    let low = _mm512_cmplt_epu32_mask(v, _mm512_set1_epi32(super::START as i32));
    // SAFETY: the caller has made sure that 32 bytes can be read.
    let next = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(words.cast()) });
    let fresh = _mm512_maskz_expand_epi32(low, next);
    *x = _mm512_mask_or_epi32(v, low, _mm512_slli_epi32::<16>(v), fresh);
    low.count_ones() as usize
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
unsafe fn level_ticks<const CLASS: bool, const LOW: bool>(
    d: &mut Decoder<'_>,
    spec: &DecodeSpec<'_>,
    class: &[u8],
    low: &[u32],
    out: &mut [i32],
) -> Result<usize> {
    let log = _mm_cvtsi32_si128(spec.log as i32);
    let low_mask = _mm512_set1_epi32(LOW_MASK as i32);
    let mask = _mm512_set1_epi32((1 << spec.log) - 1);
    let one = _mm512_set1_epi32(1);
    let zero = _mm512_setzero_si512();
    let on_q = _mm512_set1_epi32(spec.machine.on_quantiser as i32);
    let on_odd = _mm512_set1_epi32(spec.machine.on_parity as i32);
    let escape = _mm512_set1_epi32(ESCAPE as i8 as i32);
    let mut done = 0;
    // SAFETY: loads and stores stay within the slices: `done` + 32 never exceeds a multiple of 32 below
    // `out.len()`, `class` and `low` are as long where they are used, and words are read only while 64
    // bytes of them are left (each of the two registers reads 32, the second at most 32 further on).
    unsafe {
        let mut x =
            [_mm512_loadu_si512(d.x.as_ptr().cast()), _mm512_loadu_si512(d.x.as_ptr().add(16).cast())];
        let mut state = [
            _mm512_loadu_si512(d.state.as_ptr().cast()),
            _mm512_loadu_si512(d.state.as_ptr().add(16).cast()),
        ];
        let mut failed = None;
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let mut k = [zero; 2];
            let mut taken = 0;
            let mut slot = [zero; 2];
            for g in 0..2 {
                let mut set = _mm512_and_si512(state[g], one);
                if CLASS {
                    let c = _mm512_cvtepu8_epi32(_mm_loadu_si128(class.as_ptr().add(done + 16 * g).cast()));
                    set = _mm512_or_si512(set, _mm512_slli_epi32::<1>(c));
                }
                let i = _mm512_or_si512(_mm512_sll_epi32(set, log), _mm512_and_si512(x[g], mask));
                slot[g] = _mm512_i32gather_epi32::<4>(i, spec.slots.as_ptr().cast());
                k[g] = _mm512_srai_epi32::<24>(slot[g]);
            }
            for g in 0..2 {
                taken += pop(&mut x[g], slot[g], log, d.words.as_ptr().add(2 * taken));
            }
            d.words = &d.words[2 * taken..];
            if _mm512_cmpeq_epi32_mask(k[0], escape) | _mm512_cmpeq_epi32_mask(k[1], escape) != 0 {
                let mut all = [0i32; MAX_LANES];
                _mm512_storeu_si512(all.as_mut_ptr().cast(), k[0]);
                _mm512_storeu_si512(all.as_mut_ptr().add(16).cast(), k[1]);
                for (l, v) in all.iter_mut().enumerate().filter(|(_, v)| **v == ESCAPE as i8 as i32) {
                    match d.escapes.next(low.get(done + l).map_or(0, |w| w >> LOW_COUNT)) {
                        Ok(high) => *v = high,
                        Err(e) => failed = Some(e),
                    }
                }
                k[0] = _mm512_loadu_si512(all.as_ptr().cast());
                k[1] = _mm512_loadu_si512(all.as_ptr().add(16).cast());
                if failed.is_some() {
                    break;
                }
            }
            for g in 0..2 {
                if LOW {
                    let l = _mm512_loadu_si512(low.as_ptr().add(done + 16 * g).cast());
                    let shifted = _mm512_sllv_epi32(k[g], _mm512_srli_epi32::<LOW_COUNT>(l));
                    k[g] = _mm512_or_si512(shifted, _mm512_and_si512(l, low_mask));
                }
                let q = _mm512_test_epi32_mask(state[g], one);
                let odd = _mm512_test_epi32_mask(k[g], one);
                let shifted = _mm512_srli_epi32::<1>(state[g]);
                let fed = _mm512_mask_xor_epi32(shifted, q, shifted, on_q);
                state[g] = _mm512_mask_xor_epi32(fed, odd, fed, on_odd);
                let mut m = _mm512_slli_epi32::<1>(k[g]);
                m = _mm512_mask_sub_epi32(m, _mm512_mask_cmpgt_epi32_mask(q, k[g], zero), m, one);
                m = _mm512_mask_add_epi32(m, _mm512_mask_cmplt_epi32_mask(q, k[g], zero), m, one);
                _mm512_storeu_si512(out.as_mut_ptr().add(done + 16 * g).cast(), m);
            }
            done += MAX_LANES;
        }
        for g in 0..2 {
            _mm512_storeu_si512(d.x.as_mut_ptr().add(16 * g).cast(), x[g]);
            _mm512_storeu_si512(d.state.as_mut_ptr().add(16 * g).cast(), state[g]);
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
    unsafe {
        match class.is_empty() {
            true => pair_ticks::<false>(d, spec, class, out, escaped),
            false => pair_ticks::<true>(d, spec, class, out, escaped),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
unsafe fn pair_ticks<const CLASS: bool>(
    d: &mut Decoder<'_>,
    spec: &PairSpec<'_>,
    class: &[u8],
    out: &mut [u32],
    escaped: &mut Vec<Escaped>,
) -> Result<usize> {
    let mask = _mm512_set1_epi32(PAIR_MASK as i32);
    let three = _mm512_set1_epi32(3);
    let zero = _mm512_setzero_si512();
    let mut done = 0;
    // SAFETY: loads and stores stay within the slices: `done` + 32 never exceeds a multiple of 32 below `out.len()`, `class` is twice
    // as long where it is used, and words are read only while 64 bytes of them are left (each of the two registers reads 32, the
    // second at most 32 further on).
    unsafe {
        let next = _mm512_loadu_si512(spec.next.as_ptr().cast());
        let mut x =
            [_mm512_loadu_si512(d.x.as_ptr().cast()), _mm512_loadu_si512(d.x.as_ptr().add(16).cast())];
        let mut state = [
            _mm512_loadu_si512(d.state.as_ptr().cast()),
            _mm512_loadu_si512(d.state.as_ptr().add(16).cast()),
        ];
        let mut failed = None;
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let (mut slot, mut low, mut y) = ([zero; 2], [zero; 2], [zero; 2]);
            for g in 0..2 {
                low[g] = _mm512_and_si512(state[g], three);
                let mut set = low[g];
                if CLASS {
                    // Classes of two neighbours are the same: the first of each is taken.
                    let two = _mm256_loadu_si256(class.as_ptr().add(2 * (done + 16 * g)).cast());
                    let c = _mm512_cvtepu16_epi32(_mm256_and_si256(two, _mm256_set1_epi16(0xff)));
                    set = _mm512_or_si512(set, _mm512_slli_epi32::<2>(c));
                }
                let i = _mm512_or_si512(_mm512_slli_epi32::<PAIR_LOG>(set), _mm512_and_si512(x[g], mask));
                slot[g] = _mm512_i32gather_epi32::<4>(i, spec.slots.as_ptr().cast());
            }
            let mut taken = 0;
            for g in 0..2 {
                let f = _mm512_and_si512(slot[g], mask);
                let offset = _mm512_and_si512(_mm512_srli_epi32::<PAIR_LOG>(slot[g]), mask);
                y[g] = _mm512_add_epi32(_mm512_mullo_epi32(f, _mm512_srli_epi32::<PAIR_LOG>(x[g])), offset);
                let v = _mm512_srlv_epi32(y[g], _mm512_srli_epi32::<SLOT_RAW>(slot[g]));
                let lanes = _mm512_cmplt_epu32_mask(v, _mm512_set1_epi32(super::START as i32));
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(d.words.as_ptr().add(2 * taken).cast()));
                let fresh = _mm512_maskz_expand_epi32(lanes, words);
                x[g] = _mm512_mask_or_epi32(v, lanes, _mm512_slli_epi32::<16>(v), fresh);
                taken += lanes.count_ones() as usize;
            }
            d.words = &d.words[2 * taken..];
            let rare = |g: usize| {
                _mm512_cmpge_epu32_mask(slot[g], _mm512_set1_epi32((PAIR_ESCAPE_BITS << SLOT_RAW) as i32))
            };
            if rare(0) | rare(1) != 0 {
                let lanes = rare(0) as u32 | (rare(1) as u32) << 16;
                let (mut slots, mut ys, mut states) =
                    ([0u32; MAX_LANES], [0u32; MAX_LANES], [0u32; MAX_LANES]);
                for g in 0..2 {
                    _mm512_storeu_si512(slots.as_mut_ptr().add(16 * g).cast(), slot[g]);
                    _mm512_storeu_si512(ys.as_mut_ptr().add(16 * g).cast(), y[g]);
                    _mm512_storeu_si512(states.as_mut_ptr().add(16 * g).cast(), state[g]);
                }
                failed = d.take_escapes(done, lanes, [&slots, &ys, &states], spec.machine, escaped).err();
                if failed.is_some() {
                    break;
                }
            }
            for g in 0..2 {
                let symbol = _mm512_srli_epi32::<{ SLOT_SYMBOL - 2 }>(slot[g]);
                let i = _mm512_or_si512(
                    _mm512_or_si512(_mm512_slli_epi32::<10>(low[g]), _mm512_and_si512(y[g], three)),
                    _mm512_and_si512(symbol, _mm512_set1_epi32(0x3fc)),
                );
                let v = _mm512_i32gather_epi32::<4>(i, spec.values.as_ptr().cast());
                _mm512_storeu_si512(out.as_mut_ptr().add(done + 16 * g).cast(), v);
                // Bit 4 of the symbol to bit 2, bit 0 to bit 3.
                let first =
                    _mm512_and_si512(_mm512_srli_epi32::<{ SLOT_SYMBOL + 2 }>(slot[g]), _mm512_set1_epi32(4));
                let second =
                    _mm512_and_si512(_mm512_srli_epi32::<{ SLOT_SYMBOL - 3 }>(slot[g]), _mm512_set1_epi32(8));
                let at = _mm512_or_si512(_mm512_or_si512(first, second), low[g]);
                state[g] =
                    _mm512_xor_si512(_mm512_srli_epi32::<2>(state[g]), _mm512_permutexvar_epi32(at, next));
            }
            done += MAX_LANES;
        }
        for g in 0..2 {
            _mm512_storeu_si512(d.x.as_mut_ptr().add(16 * g).cast(), x[g]);
            _mm512_storeu_si512(d.state.as_mut_ptr().add(16 * g).cast(), state[g]);
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")]
unsafe fn byte_steps<const CLASSES: bool>(
    d: &mut Decoder<'_>,
    slots: &[u32],
    log: u32,
    class: &[u8],
    out: &mut [u8],
) -> usize {
    let mask = _mm512_set1_epi32((1 << log) - 1);
    let log = _mm_cvtsi32_si128(log as i32);
    let mut done = 0;
    // SAFETY: as in `level_ticks`.
    unsafe {
        let mut x =
            [_mm512_loadu_si512(d.x.as_ptr().cast()), _mm512_loadu_si512(d.x.as_ptr().add(16).cast())];
        while done + MAX_LANES <= out.len() && d.words.len() >= 64 {
            let mut taken = 0;
            let mut slot = [_mm512_setzero_si512(); 2];
            for g in 0..2 {
                let mut i = _mm512_and_si512(x[g], mask);
                if CLASSES {
                    let c = _mm512_cvtepu8_epi32(_mm_loadu_si128(class.as_ptr().add(done + 16 * g).cast()));
                    i = _mm512_or_si512(i, _mm512_sll_epi32(c, log));
                }
                slot[g] = _mm512_i32gather_epi32::<4>(i, slots.as_ptr().cast());
                let symbol = _mm512_cvtepi32_epi8(_mm512_srli_epi32::<24>(slot[g]));
                _mm_storeu_si128(out.as_mut_ptr().add(done + 16 * g).cast(), symbol);
            }
            for g in 0..2 {
                taken += pop(&mut x[g], slot[g], log, d.words.as_ptr().add(2 * taken));
            }
            d.words = &d.words[2 * taken..];
            done += MAX_LANES;
        }
        for g in 0..2 {
            _mm512_storeu_si512(d.x.as_mut_ptr().add(16 * g).cast(), x[g]);
        }
    }
    done
}
