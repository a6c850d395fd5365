//! Who encodes, and what the pictures are: settled before a single value is looked at.

use crate::catalog;
use crate::codec::{Abilities, Chroma, Encoder};
use crate::error::{Error, Result};
use crate::frames::{Layout, Sides};
use crate::options::VideoOptions;
use crate::params;

pub(super) struct Plan {
    pub encoder: &'static dyn Encoder,
    pub abilities: Abilities,
    pub chroma: Chroma,
    /// Depths to try, in this order; never empty.
    pub depths: Vec<u8>,
    pub layout: Layout,
}

impl Plan {
    /// For a table of so many rows and columns, which are those behind the transforms.
    pub(super) fn new((rows, cols): (usize, usize), video: &VideoOptions) -> Result<Plan> {
        let encoder = catalog::encoder(video.standard, video.encoder.as_deref())?;
        let mut abilities = encoder.abilities()?;
        let refuse = |reason: String| Error::Refused { name: encoder.name().to_string(), reason };
        let limits = match video.hardware {
            Some(hardware) => {
                hardware.check(video)?;
                Some(hardware.limits(video.standard))
            }
            None => None,
        };
        let wanted = if limits.is_some() { Some(Chroma::Constant) } else { video.chroma };
        let chroma = wanted.or(abilities.chroma.first().copied());
        let chroma = chroma.filter(|c| abilities.chroma.contains(c));
        let chroma = chroma.ok_or_else(|| refuse("pictures with this chroma".into()))?;
        let mut sides = Sides::from_abilities(&abilities, chroma);
        if let Some(limits) = &limits {
            abilities.depths.retain(|depth| limits.depths.contains(depth));
            limits.tame(video.standard, &mut abilities);
            sides = limits.narrow(sides, rows.saturating_mul(cols));
        }
        if sides.min > sides.max {
            return Err(refuse("pictures of a size that the hardware takes".into()));
        }
        let depths: Vec<u8> = match video.depth {
            Some(depth) => vec![depth],
            None => abilities.depths.clone(),
        };
        match depths.first() {
            Some(depth) if abilities.depths.contains(depth) => {}
            depth => {
                let asked = depth.map_or_else(|| "any".to_string(), u8::to_string);
                return Err(refuse(format!("{asked}-bit samples; it has {:?}", abilities.depths)));
            }
        }
        let layout = match video.side {
            None => Layout::new(rows, cols, sides),
            Some(side) => {
                let values = rows.saturating_mul(cols).max(1);
                let square =
                    side.checked_mul(side).filter(|&n| sides.fits(side) && params::may_hold(n, values));
                let count = square.map(|square| values.div_ceil(square));
                let count =
                    count.ok_or_else(|| refuse(format!("{values} values in pictures of side {side}")))?;
                Layout { width: side, height: side, count }
            }
        };
        Ok(Plan { encoder, abilities, chroma, depths, layout })
    }

    pub(super) fn refuse(&self, reason: String) -> Error {
        Error::Refused { name: self.encoder.name().to_string(), reason }
    }
}
