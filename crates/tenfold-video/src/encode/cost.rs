//! What decoders in hardware cost: bits that pictures would not need for others.

use super::pictures::{PictureSearch, Tiles};
use crate::codec::{Chroma, Format, Quality, Settings};
use crate::error::Result;
use crate::samples::Mapping;

/// Bits of constant chroma a value of the tensor: those of the middle picture with it, less those without. Nothing if there is no
/// picture, or none without chroma.
pub(super) fn of_chroma(
    search: &PictureSearch<'_>,
    mapping: &Mapping,
    quality: Quality,
    tiles: &Tiles,
) -> Result<Option<f64>> {
    let plan = search.plan;
    let middle = tiles.pictures.len() / 2;
    let Some(tile) = tiles.pictures.get(middle).filter(|_| plan.abilities.chroma.contains(&Chroma::None))
    else {
        return Ok(None);
    };
    let format = Format { chroma: Chroma::None, ..search.format() };
    let settings = Settings { format, quality, effort: search.effort, inter: false };
    let alone = plan.encoder.encode(&settings, &[&search.picture(mapping, middle)])?;
    let bits = |bytes: usize| bytes as f64 * 8.0;
    // A tile starts with a checksum.
    let more = bits(tile.len().saturating_sub(4)) - bits(alone.pictures.iter().map(Vec::len).sum());
    let sets = bits(tiles.parameter_sets.len()) - bits(alone.parameter_sets.len());
    let samples = search.subject.values.len() as f64 / plan.layout.picture() as f64;
    Ok(Some((more * samples + sets) / search.subject.len()))
}
