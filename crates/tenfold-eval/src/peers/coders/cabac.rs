//! An adaptive binary arithmetic coder in the manner of CABAC: a symbol is a path of bits from the
//! highest, each node of the tree has a probability of its own, learnt while coding.
//!
//! A probability is the mean of a fast and a slow estimate, as in later video standards: the fast one
//! follows changes, the slow one is exact where nothing changes. The interval is carried in 32 bits and
//! written a byte at a time with a delayed carry.

use crate::peers::PeerError;
use crate::peers::plain::corrupt;

/// Shifts of the two estimates.
const FAST: u32 = 4;
const SLOW: u32 = 7;

/// The interval is widened when it falls below this.
const NARROW: u32 = 1 << 24;

/// Bytes that the decoder holds before it needs them.
const AHEAD: usize = 4;

/// Symbols that a bit can stand for at most: a bit of a symbol costs no less than log2(2^16 / (2^16 − 32)).
const SYMBOLS_A_BIT: usize = 1500;

/// Probability of a zero bit, in 2^−16.
#[derive(Clone, Copy)]
struct Model {
    fast: u16,
    slow: u16,
}

impl Model {
    const EVEN: Model = Model { fast: 1 << 15, slow: 1 << 15 };

    fn zero(self) -> u32 {
        let mean = (u32::from(self.fast) + u32::from(self.slow)) / 2;
        mean.clamp(32, (1 << 16) - 32)
    }

    fn learn(&mut self, bit: bool) {
        for (p, shift) in [(&mut self.fast, FAST), (&mut self.slow, SLOW)] {
            *p = if bit { *p - (*p >> shift) } else { *p + ((u16::MAX - *p) >> shift) };
        }
    }
}

/// Codes symbols of `width` bits.
pub(super) fn encode(symbols: &[u8], width: u8) -> Vec<u8> {
    let mut models = vec![Model::EVEN; 1 << width];
    let mut writer = Writer { low: 0, range: u32::MAX, held: None, ones: 0, out: Vec::new() };
    for &symbol in symbols {
        let mut node = 1;
        for i in (0..width).rev() {
            let bit = symbol >> i & 1 == 1;
            writer.bit(bit, &mut models[node]);
            node = node << 1 | usize::from(bit);
        }
    }
    if symbols.is_empty() { Vec::new() } else { writer.finish() }
}

/// Decodes `n` symbols of `width` bits.
pub(super) fn decode(bytes: &[u8], n: usize, width: u8) -> Result<Vec<u8>, PeerError> {
    if n == 0 {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(corrupt("codes for no symbols")) };
    }
    if n > bytes.len().saturating_mul(8 * SYMBOLS_A_BIT) {
        return Err(corrupt("truncated"));
    }
    let mut models = vec![Model::EVEN; 1 << width];
    let mut reader = Reader { code: 0, range: u32::MAX, bytes, short: false };
    (0..AHEAD).for_each(|_| reader.shift());
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let mut node = 1usize;
        for _ in 0..width {
            let bit = reader.bit(&mut models[node]);
            node = node << 1 | usize::from(bit);
        }
        if reader.short {
            return Err(corrupt("truncated"));
        }
        out.push(node as u8); // the leading one falls off at eight bits
    }
    let leading = 1u32 << width;
    if leading < 256 {
        out.iter_mut().for_each(|s| *s &= (leading - 1) as u8);
    }
    if reader.bytes.is_empty() { Ok(out) } else { Err(corrupt("bytes left over")) }
}

struct Writer {
    /// Bottom of the interval; bit 32 is a carry.
    low: u64,
    range: u32,
    /// The last byte, which a carry may still raise, and the bytes 255 after it.
    held: Option<u8>,
    ones: usize,
    out: Vec<u8>,
}

impl Writer {
    fn bit(&mut self, bit: bool, model: &mut Model) {
        let zero = (self.range >> 16) * model.zero();
        if bit {
            self.low += u64::from(zero);
            self.range -= zero;
        } else {
            self.range = zero;
        }
        model.learn(bit);
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
    }

    /// Moves the top byte of the interval out, or keeps it back while a carry may change it.
    fn shift(&mut self) {
        let (carry, top) = ((self.low >> 32) as u8, (self.low >> 24) as u8);
        if top == u8::MAX && carry == 0 {
            self.ones += 1;
        } else {
            if let Some(held) = self.held {
                self.out.push(held.wrapping_add(carry));
            }
            self.out.extend(std::iter::repeat_n(u8::MAX.wrapping_add(carry), self.ones));
            (self.held, self.ones) = (Some(top), 0);
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    fn finish(mut self) -> Vec<u8> {
        // All four bytes of the interval's bottom and the one held back. A shorter number in the interval
        // would do, but then a decoder could not tell that bytes are missing.
        (0..=AHEAD).for_each(|_| self.shift());
        self.out
    }
}

struct Reader<'a> {
    code: u32,
    range: u32,
    bytes: &'a [u8],
    /// Whether bytes were missing.
    short: bool,
}

impl Reader<'_> {
    fn bit(&mut self, model: &mut Model) -> bool {
        let zero = (self.range >> 16) * model.zero();
        let bit = self.code >= zero;
        if bit {
            self.code -= zero;
            self.range -= zero;
        } else {
            self.range = zero;
        }
        model.learn(bit);
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn shift(&mut self) {
        let byte = match self.bytes.split_first() {
            Some((&first, rest)) => {
                self.bytes = rest;
                first
            }
            None => {
                self.short = true;
                0
            }
        };
        self.code = self.code << 8 | u32::from(byte);
    }
}
