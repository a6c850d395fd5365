//! What decoders in hardware take: narrower than what their standards allow.

use crate::codec::{Abilities, Chroma, Standard};
use crate::error::{Error, Result};
use crate::frames::Sides;
use crate::options::VideoOptions;

/// Values for each picture of a tensor that is not large: so many pictures that every engine of a GPU, of which there are seven at most
/// today, has one.
const PICTURES: usize = 8;
/// Samples of a picture: fewer would cost bits, as each picture adapts anew, and more would take long to come.
const SAMPLES: std::ops::RangeInclusive<usize> = 1 << 16..=1 << 20;

/// Decoders in hardware that pictures are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hardware {
    /// NVIDIA's video decoders, of any GPU since 2016 for H.264 and H.265 (12 bits: since 2018), since 2020 for AV1.
    Nvdec,
}

/// Limits of a decoder for a standard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Sample depths.
    pub depths: &'static [u8],
    /// Sides are multiples of this, so that no stream crops its pictures: the largest block that our encoders code.
    pub block: usize,
    /// Smallest side.
    pub min_side: usize,
    /// Largest side.
    pub max_side: usize,
}

impl Hardware {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Hardware::Nvdec => "nvdec",
        }
    }

    /// What it takes of a standard.
    pub(crate) fn limits(self, standard: Standard) -> Limits {
        let Hardware::Nvdec = self;
        // 144: of H.265 and AV1 at least 128 and 144 are said, by GPU; H.264 begins lower.
        match standard {
            Standard::H264 => Limits { depths: &[8], block: 16, min_side: 144, max_side: 4096 },
            Standard::H265 => Limits { depths: &[8, 10, 12], block: 32, min_side: 144, max_side: 8192 },
            Standard::Av1 => Limits { depths: &[8, 10], block: 64, min_side: 144, max_side: 8192 },
        }
    }

    /// Refuses options that contradict it.
    pub(crate) fn check(self, options: &VideoOptions) -> Result<()> {
        let refuse = |reason: String| Err(Error::Refused { name: self.name().to_string(), reason });
        if options.chroma == Some(Chroma::None) {
            return refuse("pictures of luma alone; leave the chroma out, or the hardware".into());
        }
        let depths = self.limits(options.standard).depths;
        match options.depth {
            Some(depth) if !depths.contains(&depth) => {
                refuse(format!("{depth}-bit samples of {}; it takes {depths:?}", options.standard))
            }
            _ => Ok(()),
        }
    }
}

impl Limits {
    /// Takes from an encoder what the decoder does not know: lossless H.264, and x264's quantiser of 0 means that too, has a
    /// profile of its own.
    pub(crate) fn tame(&self, standard: Standard, abilities: &mut Abilities) {
        if standard == Standard::H264 {
            abilities.lossless = false;
            abilities.qp = 1.max(*abilities.qp.start())..=*abilities.qp.end();
        }
    }

    /// The sides that both an encoder and the decoder take, for a tensor of so many values.
    pub(crate) fn narrow(&self, sides: Sides, values: usize) -> Sides {
        let target = (values / PICTURES).clamp(*SAMPLES.start(), *SAMPLES.end());
        Sides {
            min: sides.min.max(self.min_side).next_multiple_of(self.block),
            max: sides.max.min(self.max_side) / self.block * self.block,
            step: self.block,
            target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Layout;

    #[test]
    fn pictures_are_what_the_engines_like() {
        let shapes = [
            (1, 1),
            (64, 64),
            (2048, 384),
            (7, 100_000),
            (4097, 4099),
            (4096, 4096),
            (128_256, 4096),
            (1, 1 << 20),
        ];
        for standard in [Standard::H264, Standard::H265, Standard::Av1] {
            let limits = Hardware::Nvdec.limits(standard);
            for (rows, cols) in shapes {
                let sides =
                    limits.narrow(Sides { min: 16, max: 8192, step: 2, target: 1 << 20 }, rows * cols);
                let layout = Layout::new(rows, cols, sides);
                for side in [layout.width, layout.height] {
                    assert!((limits.min_side..=limits.max_side).contains(&side), "{standard} {layout:?}");
                    assert_eq!(side % limits.block, 0, "{standard} {layout:?}");
                }
                assert!(layout.picture() <= 5 << 18, "{standard} {layout:?}");
                let values = rows * cols;
                // Of large tensors every engine has a share, and little is padding.
                assert!(values < 1 << 20 || layout.count >= 7, "{standard} {rows}×{cols}: {layout:?}");
                assert!(
                    values < 1 << 20 || layout.padding(values) < 0.05,
                    "{standard} {rows}×{cols}: {layout:?} {}",
                    layout.padding(values)
                );
            }
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let options = |standard| VideoOptions::new(standard).with_hardware(Hardware::Nvdec);
        let refused = |options: VideoOptions| Hardware::Nvdec.check(&options).is_err();
        assert!(!refused(options(Standard::H265).with_depth(12).with_chroma(Chroma::Constant)));
        assert!(refused(options(Standard::H265).with_chroma(Chroma::None)));
        assert!(
            refused(options(Standard::H264).with_depth(10)) && refused(options(Standard::Av1).with_depth(12))
        );
    }
}
