//! The interval of a binary arithmetic coder: 32 bits, narrowed by each decision, moved out and in a byte at a time.
//!
//! What a decision's probability is, and how a stream ends, is for the coders that use it.

/// The interval is widened by a byte when it falls below this.
const NARROW: u32 = 1 << 24;

/// Bytes that a reader holds before it needs them.
pub(crate) const AHEAD: usize = 4;

/// Narrows the interval and writes its bytes, with carries resolved late.
pub(crate) struct Writer {
    /// Bottom of the interval; bit 32 is a carry.
    pub low: u64,
    pub range: u32,
    /// The last byte, which a carry may still raise, and the bytes 255 after it.
    held: Option<u8>,
    full: usize,
    pub bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Writer { low: 0, range: u32::MAX, held: None, full: 0, bytes: Vec::new() }
    }
}

impl Writer {
    /// Keeps the part of the interval below `bound`, or the part from there on.
    pub fn keep(&mut self, below: bool, bound: u32) {
        if below {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        self.widen();
    }

    /// Keeps one half.
    pub fn half(&mut self, upper: bool) {
        self.range >>= 1;
        if upper {
            self.low += u64::from(self.range);
        }
        self.widen();
    }

    fn widen(&mut self) {
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
    }

    /// Moves the top byte of the interval out, or keeps it back while a carry may change it.
    pub fn shift(&mut self) {
        let (carry, top) = ((self.low >> 32) as u8, (self.low >> 24) as u8);
        if top == u8::MAX && carry == 0 {
            self.full += 1;
        } else {
            // With nothing held no carry can come: the bottom starts at zero and stays below one.
            self.bytes.extend(self.held.map(|held| held.wrapping_add(carry)));
            self.bytes.extend(std::iter::repeat_n(u8::MAX.wrapping_add(carry), self.full));
            (self.held, self.full) = (Some(top), 0);
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }
}

/// Follows the interval of a [`Writer`]. Past the end it reads zeros and counts them.
pub(crate) struct Reader<'a> {
    code: u32,
    pub range: u32,
    bytes: &'a [u8],
    /// Zeros read in the place of bytes that are not there.
    pub missing: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Reader { code: 0, range: u32::MAX, bytes, missing: 0 };
        (0..AHEAD).for_each(|_| reader.shift());
        reader
    }

    /// Whether the part below `bound` was kept.
    pub fn decode_below(&mut self, bound: u32) -> bool {
        let below = self.code < bound;
        if below {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        self.widen();
        below
    }

    /// Whether the upper half was kept.
    pub fn decode_upper(&mut self) -> bool {
        self.range >>= 1;
        let upper = self.code >= self.range;
        if upper {
            self.code -= self.range;
        }
        self.widen();
        upper
    }

    /// Whether every byte was taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn widen(&mut self) {
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
    }

    fn shift(&mut self) {
        let byte = match self.bytes.split_first() {
            Some((&first, rest)) => {
                self.bytes = rest;
                first
            }
            None => {
                self.missing += 1;
                0
            }
        };
        self.code = self.code << 8 | u32::from(byte);
    }
}
