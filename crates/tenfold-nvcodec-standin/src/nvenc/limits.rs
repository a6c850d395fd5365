//! What the engine takes: as an engine of 2022 has it.

use tenfold_nvcodec::nvenc::abi::{Guid, caps, codec};
use tenfold_video::Standard;

use crate::faults::{self, Fault};

pub(super) const CODECS: [Guid; 3] = [codec::H264, codec::HEVC, codec::AV1];

pub(super) struct Limits {
    pub standard: Standard,
    pub min: (u32, u32),
    pub max: u32,
    pub ten_bits: bool,
    pub lossless: bool,
}

pub(super) fn limits(codec: Guid) -> Option<Limits> {
    let (standard, min, max, ten_bits, lossless) = match codec {
        codec::H264 => (Standard::H264, (145, 49), 4096, false, true),
        codec::HEVC => (Standard::H265, (129, 33), 8192, true, true),
        codec::AV1 => (Standard::Av1, (192, 128), 8192, true, false),
        _ => return None,
    };
    Some(Limits { standard, min, max, ten_bits, lossless })
}

impl Limits {
    /// The value of an ability.
    pub(super) fn value(&self, which: u32) -> u32 {
        match which {
            caps::WIDTH_MIN => self.min.0,
            caps::HEIGHT_MIN => self.min.1,
            caps::WIDTH_MAX | caps::HEIGHT_MAX => self.max,
            caps::TEN_BITS => self.ten_bits.into(),
            caps::LOSSLESS => self.lossless.into(),
            caps::MONOCHROME => {
                u32::from(self.standard == Standard::H264 && faults::get(Fault::Monochrome) != 0)
            }
            caps::ENGINES => faults::get(Fault::EncodeEngines) as u32,
            _ => 0,
        }
    }
}
