//! Which encoders and decoders there are, and under which names.

use super::super::{Abilities, Coded, Decoder, Encoder, Format, Quality, Settings, Standard};
use super::device::Device;
use super::{decode, encode, formats};
use crate::error::{Error, Result};

/// An encoder of libavcodec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibavEncoder {
    pub(super) name: &'static str,
    pub(super) standard: Standard,
    /// libavcodec's name.
    pub(super) library: &'static str,
    pub(super) device: Option<Device>,
    pub(super) max_qp: u32,
    pub(super) min_side: usize,
    pub(super) max_side: usize,
    pub(super) lossless: bool,
}

/// A decoder of libavcodec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibavDecoder {
    pub(super) name: &'static str,
    pub(super) standard: Standard,
    /// libavcodec's name.
    pub(super) library: &'static str,
    pub(super) device: Option<Device>,
}

use Standard::{Av1, H264, H265};

const fn software(
    name: &'static str,
    standard: Standard,
    library: &'static str,
    max_qp: u32,
    lossless: bool,
) -> LibavEncoder {
    // x265 wants a whole coding unit, SVT-AV1 a whole superblock; the others are content with less.
    let min_side = match (standard, lossless) {
        (Standard::H265, _) => 32,
        (Standard::Av1, false) => 64,
        _ => 16,
    };
    LibavEncoder { name, standard, library, device: None, max_qp, min_side, max_side: 8192, lossless }
}

const fn hardware(
    name: &'static str,
    standard: Standard,
    library: &'static str,
    device: Option<Device>,
) -> LibavEncoder {
    let max_qp = if matches!(standard, Standard::Av1) { 255 } else { 51 };
    let max_side = if matches!(standard, Standard::H264) { 4096 } else { 8192 };
    // The largest minimum of today's engines.
    LibavEncoder { name, standard, library, device, max_qp, min_side: 160, max_side, lossless: false }
}

/// Every encoder, whether or not this machine has it; software first.
pub fn encoders() -> &'static [LibavEncoder] {
    static ALL: [LibavEncoder; 19] = [
        software("x264", H264, "libx264", 51, true),
        software("x265", H265, "libx265", 51, true),
        software("aom", Av1, "libaom-av1", 63, true),
        software("svt-av1", Av1, "libsvtav1", 63, false),
        hardware("nvenc", H264, "h264_nvenc", None),
        hardware("nvenc", H265, "hevc_nvenc", None),
        hardware("nvenc", Av1, "av1_nvenc", None),
        hardware("qsv", H264, "h264_qsv", None),
        hardware("qsv", H265, "hevc_qsv", None),
        hardware("qsv", Av1, "av1_qsv", None),
        hardware("amf", H264, "h264_amf", None),
        hardware("amf", H265, "hevc_amf", None),
        hardware("amf", Av1, "av1_amf", None),
        hardware("vaapi", H264, "h264_vaapi", Some(Device::Vaapi)),
        hardware("vaapi", H265, "hevc_vaapi", Some(Device::Vaapi)),
        hardware("vaapi", Av1, "av1_vaapi", Some(Device::Vaapi)),
        hardware("vulkan", H264, "h264_vulkan", Some(Device::Vulkan)),
        hardware("vulkan", H265, "hevc_vulkan", Some(Device::Vulkan)),
        hardware("vulkan", Av1, "av1_vulkan", Some(Device::Vulkan)),
    ];
    &ALL
}

/// Every decoder, whether or not this machine has it; software first.
pub fn decoders() -> &'static [LibavDecoder] {
    const fn decoder(
        name: &'static str,
        standard: Standard,
        library: &'static str,
        device: Option<Device>,
    ) -> LibavDecoder {
        LibavDecoder { name, standard, library, device }
    }
    static ALL: [LibavDecoder; 17] = [
        decoder("libav", H264, "h264", None),
        decoder("libav", H265, "hevc", None),
        decoder("dav1d", Av1, "libdav1d", None),
        decoder("aom", Av1, "libaom-av1", None),
        decoder("nvdec", H264, "h264_cuvid", None),
        decoder("nvdec", H265, "hevc_cuvid", None),
        decoder("nvdec", Av1, "av1_cuvid", None),
        decoder("qsv", H264, "h264_qsv", None),
        decoder("qsv", H265, "hevc_qsv", None),
        decoder("qsv", Av1, "av1_qsv", None),
        decoder("vaapi", H264, "h264", Some(Device::Vaapi)),
        decoder("vaapi", H265, "hevc", Some(Device::Vaapi)),
        decoder("vaapi", Av1, "av1", Some(Device::Vaapi)),
        decoder("vulkan", H264, "h264", Some(Device::Vulkan)),
        decoder("vulkan", H265, "hevc", Some(Device::Vulkan)),
        decoder("vulkan", Av1, "av1", Some(Device::Vulkan)),
        decoder("cuda", H265, "hevc", Some(Device::Cuda)),
    ];
    &ALL
}

impl LibavEncoder {
    /// Whether it runs on an engine of its own rather than on the CPU.
    pub fn is_hardware(&self) -> bool {
        self.min_side > 64
    }

    fn refuse<T>(&self, reason: String) -> Result<T> {
        Err(Error::Refused { name: self.name.to_string(), reason })
    }

    fn check(&self, settings: &Settings) -> Result<()> {
        let Format { width, height, .. } = settings.format;
        let range = self.min_side..=self.max_side;
        if !range.contains(&width) || !range.contains(&height) {
            return self.refuse(format!(
                "pictures of {width}×{height}; sides go from {} to {}",
                self.min_side, self.max_side
            ));
        }
        match settings.quality {
            Quality::Qp(qp) if qp > self.max_qp => {
                self.refuse(format!("a quantiser of {qp}; the coarsest is {}", self.max_qp))
            }
            Quality::Lossless if !self.lossless => self.refuse("lossless coding".to_string()),
            _ => Ok(()),
        }
    }
}

impl Encoder for LibavEncoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn standard(&self) -> Standard {
        self.standard
    }

    fn abilities(&self) -> Result<Abilities> {
        let (depths, chroma) = formats::of_encoder(self)?;
        if self.is_hardware() {
            // A library that lists the encoder says nothing of the machine: try it.
            encode::probe(self, depths[0], chroma[0])?;
        }
        Ok(Abilities {
            depths,
            chroma,
            qp: 0..=self.max_qp,
            lossless: self.lossless,
            min_side: self.min_side,
            max_side: self.max_side,
        })
    }

    fn encode(&self, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
        self.check(settings)?;
        encode::run(self, settings, pictures)
    }
}

impl LibavDecoder {
    /// Whether it runs on an engine of its own rather than on the CPU.
    pub fn is_hardware(&self) -> bool {
        self.device.is_some() || matches!(self.name, "nvdec" | "qsv")
    }
}

impl Decoder for LibavDecoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn standard(&self) -> Standard {
        self.standard
    }

    fn probe(&self) -> Result<()> {
        decode::probe(self)
    }

    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()> {
        decode::run(self, format, parameter_sets, pictures, out)
    }
}
