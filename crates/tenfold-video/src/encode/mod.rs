//! From a tensor to a blob: prepare, lay out, map to samples, find the quantiser, write.

mod cost;
mod pictures;
mod plan;
mod subject;
mod target;

use tenfold::engine::threads;
use tenfold::format::carry::Parcel;
use tenfold::prepare::{Preparation, Transform};
use tenfold::{EncodeOptions, TensorView};

use self::pictures::{Found, PictureSearch, Tiles};
use self::plan::Plan;
use self::subject::Subject;
use self::target::Target;
use crate::codec::{Format, Quality};
use crate::error::Result;
use crate::options::VideoOptions;
use crate::params::{Meaning, PictureParams};
use crate::samples::Mapping;

/// Encodes a tensor as pictures into a new blob.
///
/// Goals are those of [`tenfold::encode`]: bits (within 2 %), ratio, mean squared error and the like. Kept
/// exactly are tensors of one-byte elements; of others only the samples, with
/// [`VideoOptions::with_quality`].
///
/// Transforms that the options state ([`EncodeOptions::with_transforms`]) are done before samples are made: Hadamard, weights, means, DCT,
/// rotary positions and a basis, whose coordinates the pictures then hold.
pub fn encode(view: &TensorView<'_>, options: &EncodeOptions, video: &VideoOptions) -> Result<Vec<u8>> {
    encode_with_report(view, options, video).map(|encoded| encoded.blob)
}

/// A blob, and what the search for it settled on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Encoded {
    /// The blob.
    pub blob: Vec<u8>,
    /// The quantiser.
    pub quality: Quality,
    /// Samples that hold no value, over the number of those that do.
    pub padding: f64,
    /// What constant chroma takes, in bits a value of the tensor: one picture is coded without as well, by the same encoder with the
    /// same quantiser. Nothing where no hardware is asked for, or the encoder cannot leave chroma out.
    pub chroma_bits: Option<f64>,
}

/// Encodes as [`encode`] does, and tells what was found.
pub fn encode_with_report(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    video: &VideoOptions,
) -> Result<Encoded> {
    options.validate()?;
    if !options.residual.is_empty() {
        return Err(tenfold::Error::InvalidArgument(
            "pictures take no residuals; use the native codec".into(),
        )
        .into());
    }
    let transforms = transforms(view, options, video)?;
    if video.sample_step.is_some_and(|s| !s.is_normal() || s < 0.0) {
        return Err(
            tenfold::Error::InvalidArgument("a sample step must be positive and finite".into()).into()
        );
    }
    let cols = transforms.iter().fold(view.cols(), |cols, transform| transform.width(cols));
    let plan = Plan::new((view.rows(), cols), video)?;
    threads::install(options.threads, || {
        let subject = Subject::new(view, transforms, video)?;
        encode_planned(&plan, &subject, options, video)
    })?
}

/// The transforms that are asked for, those of pictures last.
fn transforms(
    view: &TensorView<'_>,
    options: &EncodeOptions,
    video: &VideoOptions,
) -> Result<Vec<Transform>, tenfold::Error> {
    let refuse = |why: String| Err(tenfold::Error::InvalidArgument(why));
    if options.curvature.is_some() {
        return refuse("pictures take no curvature; use the native codec".into());
    }
    let mut found = match &options.prepare {
        Preparation::Auto => return refuse("pictures take stated transforms only, not `auto`".into()),
        prepare if prepare.is_asked() => options.transforms(view)?,
        _ => Vec::new(),
    };
    if let Some(odd) = found.iter().find(|transform| !transform.may_be_carried()) {
        return refuse(format!("pictures do not take the transform {:?}; use the native codec", odd.name()));
    }
    if !found.is_empty() && options.minor < 3 {
        return refuse("readers before version 1.3 of the bitstream know no transforms before pictures but a Hadamard rotation".into());
    }
    // Bytes are kept as they are.
    if view.dtype().is_float() {
        found.extend(video.hadamard.map(Transform::Hadamard));
    }
    Ok(found)
}

fn encode_planned(
    plan: &Plan,
    subject: &Subject<'_>,
    options: &EncodeOptions,
    video: &VideoOptions,
) -> Result<Encoded> {
    let target = Target::from_goal(subject, options.goal, video.quality)?;
    if target == Target::Fixed(Quality::Lossless) && !plan.abilities.lossless {
        return Err(plan.refuse("lossless coding".into()));
    }
    let mut closest = None;
    for &depth in &plan.depths {
        let search = PictureSearch { plan, subject, depth, effort: options.effort };
        match search.reach(&target)? {
            Found::Reached { mapping, quality, tiles } => {
                let padding = plan.layout.padding(subject.values.len().max(1));
                let chroma_bits = match video.hardware {
                    Some(_) => cost::of_chroma(&search, &mapping, quality, &tiles)?,
                    None => None,
                };
                let blob = write(&search, &mapping, tiles)?;
                return Ok(Encoded { blob, quality, padding, chroma_bits });
            }
            Found::TooCoarse { reached, .. } => closest = Some((depth, reached)),
        }
    }
    let (depth, reached) = closest.unwrap_or((0, 0.0));
    Err(plan.refuse(format!("{}: {depth}-bit samples reach {}", target.text(), target.describe(reached))))
}

/// The pictures that a tensor becomes before any codec sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pictures {
    /// Size and kind of each.
    pub format: Format,
    /// Samples of each, in row order.
    pub samples: Vec<Vec<u16>>,
}

/// Makes the pictures of a tensor, clipped by squared error, for the encoder that the options choose.
pub fn pictures(view: &TensorView<'_>, video: &VideoOptions) -> Result<Pictures> {
    let plan = Plan::new((view.rows(), view.cols()), video)?;
    let rotation = video.hadamard.filter(|_| view.dtype().is_float()).map(Transform::Hadamard);
    let subject = Subject::new(view, rotation.into_iter().collect(), video)?;
    let depth = plan.depths[0];
    let search = PictureSearch { plan: &plan, subject: &subject, depth, effort: Default::default() };
    let mapping = search.mapping(true);
    let samples = (0..plan.layout.count).map(|i| search.picture(&mapping, i)).collect();
    Ok(Pictures { format: search.format(), samples })
}

/// Puts the blob together.
fn write(search: &PictureSearch<'_>, mapping: &Mapping, tiles: Tiles) -> Result<Vec<u8>> {
    let subject = search.subject;
    let params = PictureParams {
        format: search.format(),
        meaning: if subject.bytes { Meaning::Bytes } else { Meaning::Mapped(mapping.clone()) },
        specials: subject.specials.clone(),
        parameter_sets: tiles.parameter_sets,
    };
    let parcel = Parcel {
        codec: search.plan.encoder.standard().codec(),
        dtype: subject.view.dtype(),
        shape: subject.view.shape().to_vec(),
        transforms: subject.transforms.clone(),
        tile_values: search.plan.layout.picture(),
        params: params.write(),
    };
    Ok(parcel.write(tiles.pictures)?)
}
