//! What the engines of a device encode.

use tenfold_video::Standard;

use super::abi::{Guid, caps, codec};
use super::handle::Handle;
use crate::error::{Error, Result};

/// NVIDIA's number of a standard.
pub(super) fn codec_of(standard: Standard) -> Guid {
    match standard {
        Standard::H264 => codec::H264,
        Standard::H265 => codec::HEVC,
        Standard::Av1 => codec::AV1,
    }
}

/// What a device encodes of a standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encodes {
    /// The standard.
    pub standard: Standard,
    /// Smallest width and height.
    pub min: (u32, u32),
    /// Largest width and height.
    pub max: (u32, u32),
    /// Whether samples of 10 bits can be encoded beside those of 8.
    pub ten_bits: bool,
    /// Whether samples can be kept exactly.
    pub lossless: bool,
    /// Whether luma alone (4:0:0) can be encoded.
    pub monochrome: bool,
    /// Engines.
    pub engines: u32,
}

impl Encodes {
    /// Asks an open session.
    pub(super) fn ask(handle: &Handle, standard: Standard) -> Result<Encodes> {
        let codec = codec_of(standard);
        if !handle.codecs()?.contains(&codec) {
            let name = &handle.device.properties().name;
            return Err(Error::NoEngine(format!("the NVENC engine of {name} does not encode {standard}")));
        }
        let ask = |ability| handle.ask(codec, ability);
        Ok(Encodes {
            standard,
            min: (ask(caps::WIDTH_MIN)?, ask(caps::HEIGHT_MIN)?),
            max: (ask(caps::WIDTH_MAX)?, ask(caps::HEIGHT_MAX)?),
            // H.264 of 10 bits is of the newest engines alone, and no NVDEC before them reads it.
            ten_bits: standard != Standard::H264 && ask(caps::TEN_BITS)? != 0,
            lossless: ask(caps::LOSSLESS)? != 0,
            monochrome: ask(caps::MONOCHROME)? != 0,
            // Drivers that do not count their engines have one.
            engines: ask(caps::ENGINES)?.max(1),
        })
    }
}
