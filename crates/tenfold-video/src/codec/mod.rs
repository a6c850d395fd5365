//! What a codec library is to this crate: gray pictures in, a coded picture each out, and back.
//!
//! One file or folder an implementation; [`Encoder`] and [`Decoder`] are all the rest knows of them.

#[cfg(feature = "av1")]
pub mod av1;
#[cfg(feature = "video")]
pub mod libav;
#[doc(hidden)] // for crates that bring a decoder
pub mod stream;

use std::fmt;
use std::ops::RangeInclusive;

use crate::error::Result;

/// What a stream conforms to. Never who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standard {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    H265,
    /// AV1.
    Av1,
}

impl Standard {
    /// The codec of blobs that hold such streams.
    pub fn codec(self) -> tenfold::format::Codec {
        match self {
            Standard::H264 => tenfold::format::Codec::H264,
            Standard::H265 => tenfold::format::Codec::H265,
            Standard::Av1 => tenfold::format::Codec::Av1,
        }
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standard::H264 => "H.264",
            Standard::H265 => "H.265",
            Standard::Av1 => "AV1",
        })
    }
}

/// What stands in the place of colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// Nothing: the picture is luma alone (4:0:0).
    None,
    /// Two planes of half the width and height, all samples at the middle value (4:2:0), for decoders
    /// that know no other.
    Constant,
}

/// Size and kind of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Samples of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bits of a sample: 8, 10 or 12.
    pub depth: u8,
    /// What stands in the place of colour.
    pub chroma: Chroma,
}

impl Format {
    /// Luma samples of a picture.
    pub fn samples(&self) -> usize {
        self.width * self.height
    }
}

/// How exactly samples are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// The codec's own quantiser parameter, within [`Abilities::qp`].
    Qp(u32),
    /// Every sample comes back.
    Lossless,
}

/// What an encoder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The pictures.
    pub format: Format,
    /// How exactly samples are kept.
    pub quality: Quality,
    /// How hard to search; each codec maps it to its presets.
    pub effort: tenfold::Effort,
    /// Whether pictures may be predicted from the one before. Always off in blobs, where a picture must
    /// decode alone; on to measure what it would do.
    pub inter: bool,
}

/// Pictures as coded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coded {
    /// What every picture needs and is stored once: VPS/SPS/PPS with start codes, or the AV1 sequence
    /// header as an open bitstream unit.
    pub parameter_sets: Vec<u8>,
    /// One access unit (Annex B) or temporal unit (AV1 low-overhead format, temporal delimiter
    /// dropped) a picture, without parameter sets.
    pub pictures: Vec<Vec<u8>>,
}

/// What an encoder can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// Sample depths.
    pub depths: Vec<u8>,
    /// Kinds of pictures, the preferred first.
    pub chroma: Vec<Chroma>,
    /// Quantiser parameters; larger is coarser.
    pub qp: RangeInclusive<u32>,
    /// Whether samples can be kept exactly.
    pub lossless: bool,
    /// Smallest side of a picture.
    pub min_side: usize,
    /// Largest side of a picture.
    pub max_side: usize,
}

/// An encoder.
pub trait Encoder: Send + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// What it writes.
    fn standard(&self) -> Standard;

    /// What it can do here. Also the probe: an error says what is missing on this machine.
    fn abilities(&self) -> Result<Abilities>;

    /// Codes pictures, each `format.samples()` samples in row order. One thread; callers split the
    /// pictures among threads.
    fn encode(&self, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded>;
}

/// A decoder.
pub trait Decoder: Send + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// What it reads.
    fn standard(&self) -> Standard;

    /// Whether it runs here; an error says what is missing.
    fn probe(&self) -> Result<()>;

    /// Decodes pictures one after the other into `out`, `format.samples()` samples each. One thread.
    /// Whatever the bytes are: an error if a picture is damaged, missing, or not of the format, and
    /// never more memory than a few pictures of the format take.
    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()>;
}
