//! Who encodes, and what the pictures are: settled before a single value is looked at.

use tenfold::TensorView;

use crate::catalog;
use crate::codec::{Abilities, Chroma, Encoder};
use crate::error::{Error, Result};
use crate::frames::{Layout, Sides};
use crate::options::VideoOptions;

pub(super) struct Plan {
    pub encoder: &'static dyn Encoder,
    pub abilities: Abilities,
    pub chroma: Chroma,
    /// Depths to try, in this order; never empty.
    pub depths: Vec<u8>,
    pub layout: Layout,
}

impl Plan {
    pub(super) fn new(view: &TensorView<'_>, video: &VideoOptions) -> Result<Plan> {
        let encoder = catalog::encoder(video.standard, video.encoder.as_deref())?;
        let abilities = encoder.abilities()?;
        let refuse = |reason: String| Error::Refused { name: encoder.name().to_string(), reason };
        let chroma = video.chroma.or(abilities.chroma.first().copied());
        let chroma = chroma.filter(|c| abilities.chroma.contains(c));
        let chroma = chroma.ok_or_else(|| refuse("pictures with this chroma".into()))?;
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
        let layout = Layout::new(view.rows(), view.cols(), Sides::from_abilities(&abilities, chroma));
        Ok(Plan { encoder, abilities, chroma, depths, layout })
    }

    pub(super) fn refuse(&self, reason: String) -> Error {
        Error::Refused { name: self.encoder.name().to_string(), reason }
    }
}
