//! What a way of coding costs and saves, and what is sent.

use serde::Serialize;

use crate::error::{Error, Result};

/// Bytes that are coded and sent at once, if nothing else is stated.
const CHUNK: u64 = 4 << 20;

/// Seconds of one worker for a chunk: some for the call, some for each byte of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Seconds a call.
    pub fixed: f64,
    /// Seconds a byte of the uncoded tensor.
    pub per_byte: f64,
}

impl Cost {
    /// Seconds for a chunk of so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.fixed + self.per_byte * bytes
    }

    /// The line through two measurements, each bytes and seconds; neither part of it is negative.
    pub fn fit(small: (f64, f64), large: (f64, f64)) -> Cost {
        let run = large.0 - small.0;
        if run <= 0.0 || large.1 <= small.1 {
            return Cost { fixed: 0.0, per_byte: large.1 / large.0.max(1.0) };
        }
        let slope = (large.1 - small.1) / run;
        let fixed = small.1 - slope * small.0;
        if fixed < 0.0 {
            return Cost { fixed: 0.0, per_byte: large.1 / large.0 };
        }
        Cost { fixed, per_byte: slope }
    }
}

/// Bytes of a coded chunk: a header, and a share of the tensor's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Size {
    /// Bytes of a blob that do not depend on the tensor's.
    pub fixed: f64,
    /// Bytes for each byte of the tensor.
    pub per_byte: f64,
}

impl Size {
    /// Bytes of a coded chunk.
    pub fn bytes(&self, bytes: f64) -> f64 {
        self.fixed + self.per_byte * bytes
    }
}

/// A way of coding, on a sender and a receiver that work like the machine on which it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// Name for people.
    pub name: String,
    /// Seconds of one worker to encode.
    pub encode: Cost,
    /// Seconds of one worker to decode.
    pub decode: Cost,
    /// Bytes on the link.
    pub size: Size,
    /// Chunks that are encoded, and chunks that are decoded, at the same time. 0, the default, is one for each core of that
    /// end.
    pub workers: usize,
    /// Cores that a worker keeps busy: 1, the default, on the CPU; 0 for a device.
    pub cores: f64,
    /// Mean squared error over the variance; 0 is exact. Default: unknown.
    pub nmse: Option<f64>,
}

impl Rates {
    /// A way whose numbers are known: bytes of the tensor a second that one thread encodes and decodes, and how many times
    /// smaller it gets.
    pub fn stated(name: &str, encode: f64, decode: f64, ratio: f64) -> Result<Rates> {
        for (what, value) in [("encode rate", encode), ("decode rate", decode), ("ratio", ratio)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::InvalidArgument(format!(
                    "the {what} must be positive and finite, not {value}"
                )));
            }
        }
        Ok(Rates {
            name: name.to_owned(),
            encode: Cost { fixed: 0.0, per_byte: encode.recip() },
            decode: Cost { fixed: 0.0, per_byte: decode.recip() },
            size: Size { fixed: 0.0, per_byte: ratio.recip() },
            workers: 0,
            cores: 1.0,
            nmse: None,
        })
    }

    /// Sets the number of chunks that are coded at the same time, and the cores that each keeps busy.
    pub fn with_workers(mut self, workers: usize, cores: f64) -> Rates {
        (self.workers, self.cores) = (workers, cores.max(0.0));
        self
    }

    /// Sets the error.
    pub fn with_nmse(mut self, nmse: f64) -> Rates {
        self.nmse = Some(nmse);
        self
    }

    /// How many times smaller a chunk of so many bytes gets.
    pub fn ratio(&self, bytes: f64) -> f64 {
        bytes / self.size.bytes(bytes).max(1.0)
    }
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Payload {
    /// Bytes, uncoded.
    pub bytes: u64,
    /// Bytes that are coded and sent at once. Default: 4 MiB.
    pub chunk: u64,
    /// Whether some chunks may be sent raw while others are coded. Default: no, one way goes for all.
    pub lanes: bool,
}

impl Payload {
    /// So many bytes, in chunks of the default size.
    pub fn new(bytes: u64) -> Payload {
        Payload { bytes, chunk: CHUNK, lanes: false }
    }

    /// Sets the bytes that are coded and sent at once.
    pub fn with_chunk(mut self, bytes: u64) -> Payload {
        self.chunk = bytes.max(1);
        self
    }

    /// Sets whether some chunks may be sent raw while others are coded.
    pub fn with_lanes(mut self, lanes: bool) -> Payload {
        self.lanes = lanes;
        self
    }

    /// Number of chunks and bytes of each.
    pub fn chunks(&self) -> (f64, f64) {
        let count = self.bytes.div_ceil(self.chunk.max(1)).max(1) as f64;
        (count, self.bytes as f64 / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_goes_through_both_measurements() {
        let cost = Cost::fit((1000.0, 2e-5), (1e6, 1e-3 + 1.9e-5));
        assert!((cost.seconds(1000.0) - 2e-5).abs() < 1e-9);
        assert!((cost.seconds(1e6) - 1.019e-3).abs() < 1e-9);
        // Noise that would make a call cost less than nothing.
        let cost = Cost::fit((1000.0, 1e-9), (1e6, 1e-3));
        assert_eq!(cost.fixed, 0.0);
        assert!((cost.seconds(1e6) - 1e-3).abs() < 1e-12);
        assert_eq!(Cost::fit((1e6, 2e-3), (1e6, 1e-3)).fixed, 0.0);
    }

    #[test]
    fn chunks_are_equal_and_add_up() {
        let (count, bytes) = Payload::new(10 << 20).chunks();
        assert_eq!((count, count * bytes), (3.0, f64::from(10 << 20)));
        assert_eq!(Payload::new(1152).chunks(), (1.0, 1152.0));
    }
}
