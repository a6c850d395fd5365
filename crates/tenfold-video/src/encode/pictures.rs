//! One tensor at one sample depth: the search for a quantiser and a scale, and what is kept of its trials.
//!
//! First the coarsest quantiser that is fine enough, then a factor on the sample step: one is a ladder, the other continuous.

use rayon::prelude::*;
use tenfold::Effort;
use tenfold::engine::search::{Point, Rung, Search, last_rung};

use super::plan::Plan;
use super::subject::Subject;
use super::target::{Target, fineness};
use crate::catalog;
use crate::codec::{Decoder, Format, Quality, Settings};
use crate::decode::check_of;
use crate::error::{Error, Result};
use crate::frames::Layout;
use crate::samples::Mapping;

/// Up to this many samples a trial codes all pictures; beyond, the first trials take a few.
const SMALL: usize = 1 << 21;

/// Coded pictures, ready for the blob.
#[derive(Debug, Clone)]
pub(super) struct Tiles {
    pub parameter_sets: Vec<u8>,
    /// Checksum of the samples, then the coded picture.
    pub pictures: Vec<Vec<u8>>,
}

pub(super) struct PictureSearch<'a> {
    pub plan: &'a Plan,
    pub subject: &'a Subject<'a>,
    pub depth: u8,
    pub effort: Effort,
}

/// What a search came to.
pub(super) enum Found {
    /// Mapping and coded pictures that meet the target.
    Reached {
        /// How values became samples.
        mapping: Mapping,
        /// The quantiser.
        quality: Quality,
        /// The pictures.
        tiles: Tiles,
    },
    /// Even the finest quantiser stays below the target.
    TooCoarse {
        /// What it reached.
        reached: f64,
    },
}

/// What a trial found of the pictures it coded.
struct Trial {
    tiles: Tiles,
    squared: f64,
    largest: f64,
    values: usize,
}

/// One picture, coded.
struct One {
    parameter_sets: Vec<u8>,
    tile: Vec<u8>,
    squared: f64,
    largest: f64,
    values: usize,
}

impl PictureSearch<'_> {
    pub(super) fn format(&self) -> Format {
        let Layout { width, height, .. } = self.plan.layout;
        Format { width, height, depth: self.depth, chroma: self.plan.chroma }
    }

    fn cols(&self) -> usize {
        self.subject.cols
    }

    /// How values become samples before any search.
    pub(super) fn mapping(&self, clips: bool) -> Mapping {
        let Subject { values, scaling, sample_step, .. } = self.subject;
        let mapping = Mapping::choose(values, self.cols(), *scaling, self.depth, clips);
        match sample_step {
            Some(step) => mapping.with_step(*step),
            None => mapping,
        }
    }

    /// Values of picture `i`.
    fn part(&self, i: usize) -> &[f64] {
        let (start, values) = (i * self.plan.layout.picture(), &self.subject.values);
        &values[start.min(values.len())..values.len().min(start + self.plan.layout.picture())]
    }

    /// Samples of picture `i`.
    pub(super) fn picture(&self, mapping: &Mapping, i: usize) -> Vec<u16> {
        let samples = self.to_samples(mapping, self.part(i), i * self.plan.layout.picture());
        self.plan.layout.cut(&samples, 0, 1 << (self.depth - 1))
    }

    /// Finds a quantiser and a scale that meet the target.
    pub(super) fn reach(&self, target: &Target) -> Result<Found> {
        let mapping = self.mapping(!matches!(target, Target::MaxError(_)));
        if self.subject.values.is_empty() {
            let tiles = Tiles { parameter_sets: Vec::new(), pictures: Vec::new() };
            return Ok(Found::Reached { mapping, quality: Quality::Lossless, tiles });
        }
        let all: Vec<usize> = (0..self.plan.layout.count).collect();
        if let Target::Fixed(quality) = *target {
            let trial = self.code(quality, &mapping, &all)?;
            return Ok(Found::Reached { mapping, quality, tiles: trial.tiles });
        }
        let few: Vec<usize> = if self.plan.layout.samples() <= SMALL {
            all.clone()
        } else {
            vec![self.plan.layout.count / 4, self.plan.layout.count * 3 / 4]
        };
        let wanted = target.want();
        let number = |qp: u32, factor: f64, pictures: &[usize]| -> Result<(f64, Trial)> {
            let mapping = mapping.coarsen(factor);
            let trial = self.code(Quality::Qp(qp), &mapping, pictures)?;
            Ok((self.measure(target, &mapping, &trial)?, trial))
        };
        let qps = self.plan.abilities.qp.clone();
        let (finest, coarsest) = (*qps.start(), *qps.end());
        // About eight bits lie between the ends of any codec's range.
        let octave = f64::from(coarsest.saturating_sub(finest).max(1)) / 8.0;
        let middle = finest + coarsest.saturating_sub(finest) / 2;
        let found = last_rung(qps, middle, octave, wanted, |qp| number(qp, 1.0, &few).map(|t| t.0))?;
        let (qp, first) = match found {
            Rung::Last(qp, number) => (qp, number),
            Rung::None(reached) => return Ok(Found::TooCoarse { reached }),
        };
        let search = || Search::new(target.quantity(wanted), target.slope(), target.tolerance());
        let point = |knob, y| Some(Point { knob, got: target.quantity(y) });
        // A bit more than wanted is about an octave of the step.
        let mut start = (first - wanted).max(0.0).exp2();
        let mut whole = search();
        let known = Point { knob: 1.0, got: target.quantity(first) };
        if few.len() < all.len() {
            let trial = |x| number(qp, x, &few).map(|(y, _)| point(x, y));
            start = search().with_known(known).run(start, trial)?;
        } else {
            whole = whole.with_known(known);
        }
        let mut kept: Vec<(f64, f64, Tiles)> = Vec::new();
        whole.run(start, |x| {
            let (y, trial) = number(qp, x, &all)?;
            kept.push((x, y, trial.tiles));
            Ok::<_, Error>(point(x, y))
        })?;
        self.pick(target, qp, &mapping, kept)
    }

    /// The best of the whole trials.
    fn pick(
        &self,
        target: &Target,
        qp: u32,
        mapping: &Mapping,
        kept: Vec<(f64, f64, Tiles)>,
    ) -> Result<Found> {
        let wanted = target.want();
        let fits = |y: f64| match target {
            Target::Cap(_) => y <= wanted,
            _ => !target.is_error() || y >= wanted,
        };
        let smallest = kept.iter().map(|k| k.1).fold(f64::INFINITY, f64::min);
        let best = kept
            .into_iter()
            .filter(|k| fits(k.1))
            .min_by(|a, b| (a.1 - wanted).abs().total_cmp(&(b.1 - wanted).abs()));
        let found = |mapping, tiles| Found::Reached { mapping, quality: Quality::Qp(qp), tiles };
        match (best, target) {
            (Some((x, _, tiles)), _) => Ok(found(mapping.coarsen(x), tiles)),
            (None, Target::Cap(bits)) => {
                let bytes = |bits: f64| (bits * self.subject.len() / 8.0) as u64;
                Err(tenfold::Error::DoesNotFit { cap: bytes(*bits), need: bytes(smallest) }.into())
            }
            // The quantiser alone was fine enough on the pictures that the first trials took.
            (None, _) => {
                let all: Vec<usize> = (0..self.plan.layout.count).collect();
                let trial = self.code(Quality::Qp(qp), mapping, &all)?;
                match self.measure(target, mapping, &trial)? {
                    y if fits(y) => Ok(found(mapping.clone(), trial.tiles)),
                    reached => Ok(Found::TooCoarse { reached }),
                }
            }
        }
    }

    /// What a trial reached, in the target's terms.
    fn measure(&self, target: &Target, mapping: &Mapping, trial: &Trial) -> Result<f64> {
        Ok(match target {
            Target::Mse(_) => fineness((trial.squared / trial.values.max(1) as f64).sqrt()),
            Target::MaxError(_) => fineness(trial.largest),
            _ => {
                let (n, part) = (self.subject.values.len() as f64, trial.values as f64);
                let whole = trial.values == self.subject.values.len();
                let bytes = if whole {
                    super::write(self, mapping, trial.tiles.clone())?.len() as f64
                } else {
                    // Directory, length and padding of a tile take about 14 bytes.
                    let pictures: usize = trial.tiles.pictures.iter().map(|p| p.len() + 14).sum();
                    let header = 64 + trial.tiles.parameter_sets.len() + self.subject.side_bytes();
                    header as f64 + pictures as f64 * n / part
                };
                bytes * 8.0 / self.subject.len()
            }
        })
    }

    /// Codes some of the pictures, in parallel, and decodes them again: the error counts from what a decoder
    /// gives, and the checksum is of that.
    fn code(&self, quality: Quality, mapping: &Mapping, pictures: &[usize]) -> Result<Trial> {
        let format = self.format();
        let settings = Settings { format, quality, effort: self.effort, inter: false };
        let decoder = catalog::decoder(self.plan.encoder.standard(), None)?;
        let one = |&i: &usize| self.code_one(i, &settings, mapping, decoder);
        let coded: Vec<One> = pictures.par_iter().map(one).collect::<Result<_>>()?;
        let parameter_sets = coded.first().map(|c| c.parameter_sets.clone()).unwrap_or_default();
        if coded.iter().any(|c| c.parameter_sets != parameter_sets) {
            return Err(self.failed("parameter sets differ between pictures".into()));
        }
        Ok(Trial {
            squared: coded.iter().map(|c| c.squared).sum(),
            largest: coded.iter().map(|c| c.largest).fold(0.0, f64::max),
            values: coded.iter().map(|c| c.values).sum(),
            tiles: Tiles { parameter_sets, pictures: coded.into_iter().map(|c| c.tile).collect() },
        })
    }

    fn code_one(
        &self,
        i: usize,
        settings: &Settings,
        mapping: &Mapping,
        decoder: &dyn Decoder,
    ) -> Result<One> {
        let (start, values) = (i * self.plan.layout.picture(), self.part(i));
        let picture = self.picture(mapping, i);
        let coded = self.plan.encoder.encode(settings, &[&picture])?;
        let [stream] = &coded.pictures[..] else {
            return Err(self.failed("it gave another number of pictures".into()));
        };
        let mut back = vec![0; settings.format.samples()];
        decoder.decode(&settings.format, &coded.parameter_sets, &[stream], &mut back)?;
        if settings.quality == Quality::Lossless && back != picture {
            return Err(self.failed("samples changed in lossless mode".into()));
        }
        let mut decoded = vec![0.0; values.len()];
        self.to_values(mapping, &back[..values.len()], start, &mut decoded);
        let errors = || values.iter().zip(&decoded).map(|(a, b)| (a - b).abs());
        let mut tile = check_of(&back).to_le_bytes().to_vec();
        tile.extend_from_slice(stream);
        Ok(One {
            squared: errors().map(|e| e * e).sum(),
            largest: errors().fold(0.0, f64::max),
            values: values.len(),
            parameter_sets: coded.parameter_sets,
            tile,
        })
    }

    fn to_samples(&self, mapping: &Mapping, values: &[f64], first: usize) -> Vec<u16> {
        if self.subject.bytes {
            return values.iter().map(|&v| v as u16).collect();
        }
        mapping.to_samples(values, first, self.cols(), self.depth)
    }

    fn to_values(&self, mapping: &Mapping, samples: &[u16], first: usize, out: &mut [f64]) {
        if self.subject.bytes {
            out.iter_mut().zip(samples).for_each(|(o, &s)| *o = f64::from(s));
        } else {
            mapping.to_values(samples, first, self.cols(), self.depth, out);
        }
    }

    fn failed(&self, reason: String) -> Error {
        Error::Codec { name: self.plan.encoder.name().to_string(), reason }
    }
}
