//! Which video engines a GPU has, and what they can do: what `tenfold engines` shows.

use tenfold_cuda::Device;

use crate::cuvid::{Cuvid, abi};
use crate::error::{Error, Result};
use crate::nvdec::Caps;

/// One kind of pictures that the engines decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decodes {
    /// The codec: H.264, H.265, VP9, AV1, JPEG.
    pub codec: &'static str,
    /// The chroma layout: 4:0:0, 4:2:0, 4:2:2, 4:4:4.
    pub chroma: &'static str,
    /// Bits of a sample.
    pub depth: u8,
    /// Engines that can do it.
    pub engines: u32,
    /// Smallest width and height.
    pub min: (u32, u32),
    /// Largest width and height.
    pub max: (u32, u32),
    /// The most blocks of 16 × 16 samples.
    pub max_blocks: u32,
    /// Whether tenfold has blobs of such pictures.
    pub used: bool,
}

const CODECS: [(&str, i32); 5] = [
    ("H.264", abi::CODEC_H264),
    ("H.265", abi::CODEC_HEVC),
    ("VP9", abi::CODEC_VP9),
    ("AV1", abi::CODEC_AV1),
    ("JPEG", abi::CODEC_JPEG),
];

/// In the order of NVIDIA's numbers.
const LAYOUTS: [&str; 4] = ["4:0:0", "4:2:0", "4:2:2", "4:4:4"];

/// Everything that the engines of a device decode. Fails where the driver's library is missing; a device without an engine gives
/// an empty list.
pub fn decodes(device: &Device) -> Result<Vec<Decodes>> {
    let api = Cuvid::get()?;
    let mut found = Vec::new();
    for (codec, number) in CODECS {
        for (layout, chroma) in LAYOUTS.iter().zip(0..) {
            for depth in [8, 10, 12] {
                let answer = Caps::ask(api, device, (number, chroma, depth));
                let caps = match answer {
                    Ok(Some(caps)) => caps,
                    // Some drivers answer with an error to what they have never heard of.
                    Ok(None) | Err(Error::Call { .. }) => continue,
                    Err(error) => return Err(error),
                };
                let used = codec != "VP9" && codec != "JPEG" && chroma <= abi::CHROMA_420;
                let Caps { engines, min, max, max_blocks, .. } = caps;
                found.push(Decodes { codec, chroma: layout, depth, engines, min, max, max_blocks, used });
            }
        }
    }
    Ok(found)
}
