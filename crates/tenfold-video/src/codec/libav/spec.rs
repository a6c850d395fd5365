//! Which encoders and decoders there are, and under which names.

use super::super::Standard;
use super::device::Device;

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
    static ALL: [LibavEncoder; 16] = [
        software("x264", H264, "libx264", 51, true),
        software("x265", H265, "libx265", 51, true),
        software("aom", Av1, "libaom-av1", 63, true),
        software("svt-av1", Av1, "libsvtav1", 63, false),
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
    static ALL: [LibavDecoder; 14] = [
        decoder("libav", H264, "h264", None),
        decoder("libav", H265, "hevc", None),
        decoder("dav1d", Av1, "libdav1d", None),
        decoder("aom", Av1, "libaom-av1", None),
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
}

impl LibavDecoder {
    /// Whether it runs on an engine of its own rather than on the CPU.
    pub fn is_hardware(&self) -> bool {
        self.device.is_some() || self.name == "qsv"
    }
}

/// What a hardware codec needs of a machine.
pub(super) fn needs(name: &str) -> &'static str {
    match name {
        "cuda" => "it needs an NVIDIA GPU and its driver",
        "qsv" => "it needs an Intel GPU and its media driver",
        "amf" => "it needs an AMD GPU and the AMF runtime",
        "vaapi" => "it needs a GPU with a VAAPI driver and access to /dev/dri",
        _ => "it needs a GPU whose Vulkan driver has video queues",
    }
}
