//! From a tensor to a blob: prepare, lay out, map to samples, find the quantiser, write.

mod job;
mod search;
mod subject;
mod target;

use tenfold::carry::Parcel;
use tenfold::prepare::Step;
use tenfold::{EncodeOptions, TensorView};

use self::job::{Job, Tiles};
use self::subject::Subject;
use self::target::Target;
use crate::catalog;
use crate::codec::{Encoder, Quality, Standard};
use crate::error::{Error, Result};
use crate::frames::{Layout, Sides};
use crate::options::VideoOptions;
use crate::params::{Meaning, Params};
use crate::samples::Mapping;
use crate::threads;

/// Encodes a tensor as pictures into a new blob.
///
/// Goals are those of [`tenfold::encode`]: bits (within 2 %), ratio, mean squared error and the like. Kept
/// exactly are tensors of one-byte elements; of others only the samples, with
/// [`VideoOptions::with_quality`].
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions, video: &VideoOptions) -> Result<Vec<u8>> {
    options.validate()?;
    let encoder = catalog::encoder(video.standard, video.encoder.as_deref())?;
    threads::within(options.threads, || encode_with(encoder, view, options, video))
}

fn encode_with(
    encoder: &dyn Encoder,
    view: &TensorView<'_>,
    options: &EncodeOptions,
    video: &VideoOptions,
) -> Result<Vec<u8>> {
    let abilities = encoder.abilities()?;
    let refuse = |reason: String| Error::Refused { name: encoder.name().to_string(), reason };
    let chroma = video.chroma.or(abilities.chroma.first().copied());
    let chroma =
        chroma.filter(|c| abilities.chroma.contains(c)).ok_or_else(|| refuse("this chroma".into()))?;
    let depths: Vec<u8> = match video.depth {
        Some(depth) if abilities.depths.contains(&depth) => vec![depth],
        Some(depth) => {
            return Err(refuse(format!("{depth}-bit samples; it has {:?}", abilities.depths)));
        }
        None => abilities.depths.clone(),
    };
    let subject = Subject::new(view, video)?;
    let target = Target::of(view, options.goal, video.quality, subject.bytes)?;
    if target == Target::Fixed(Quality::Lossless) && !abilities.lossless {
        return Err(refuse("lossless coding".into()));
    }
    let layout = Layout::of(view.rows(), view.cols(), Sides::of(&abilities, chroma));
    let mut closest = None;
    for depth in depths {
        let job = Job { encoder, subject: &subject, layout, depth, chroma, effort: options.effort };
        match job.reach(&target, &abilities)? {
            search::Found::Reached(mapping, tiles) => return write(&job, video, &mapping, tiles),
            search::Found::TooCoarse { reached, .. } => closest = Some((depth, reached)),
        }
    }
    let (depth, reached) = closest.unwrap_or((0, 0.0));
    Err(refuse(format!("{}: {depth}-bit samples reach {}", target.text(), target.text_of(reached))))
}

/// Puts the blob together.
fn write(job: &Job<'_>, video: &VideoOptions, mapping: &Mapping, tiles: Tiles) -> Result<Vec<u8>> {
    let subject = job.subject;
    let params = Params {
        format: job.format(),
        meaning: if subject.bytes { Meaning::Bytes } else { Meaning::Mapped(mapping.clone()) },
        specials: subject.specials.clone(),
        parameter_sets: tiles.parameter_sets,
    };
    let parcel = Parcel {
        codec: match video.standard {
            Standard::H264 => tenfold::Codec::H264,
            Standard::H265 => tenfold::Codec::H265,
            Standard::Av1 => tenfold::Codec::Av1,
        },
        dtype: subject.view.dtype(),
        shape: subject.view.shape().to_vec(),
        steps: subject.steps.iter().cloned().map(Step::Hadamard).collect(),
        tile_values: job.layout.picture(),
        params: params.write(),
    };
    Ok(parcel.write(tiles.pictures)?)
}
