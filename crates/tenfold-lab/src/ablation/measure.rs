//! The bits that a combination of stages needs for an error.

use anyhow::{Context, Result, ensure};

use super::args::AblationArgs;
use super::cases::Case;
use super::samples::Mapping;
use super::source::Subject;
use crate::intra::{self, Settings, Stages};
use crate::metrics;

/// Encodings to find the step. The error is nearly a power of the step, so three or four are usual.
const TRIES: usize = 16;

/// The error at which all are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    /// Squared error over variance, at most.
    pub nmse: f64,
    /// The part of it that may be left unused.
    pub slack: f64,
}

impl Goal {
    /// Of the arguments: half a percent of the error are 0.004 bits, 2 % are 0.015.
    pub fn new(args: &AblationArgs) -> Self {
        Goal { nmse: args.nmse, slack: if args.quick { 0.02 } else { 0.005 } }
    }
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Quantiser step in samples.
    pub step: f64,
    pub bytes: usize,
    /// Mean over the parts of squared error over variance.
    pub nmse: f64,
}

impl Point {
    /// Bits a value.
    pub fn bits(&self, subject: &Subject) -> f64 {
        self.bytes as f64 * 8.0 / subject.values() as f64
    }
}

/// The coarsest step whose error is within the goal; `None` if none is.
pub(super) fn measure(subject: &Subject, case: Case, goal: Goal) -> Result<Option<Point>> {
    if case.exact {
        return attempt(subject, case.stages, 1.0).map(Some);
    }
    let finest = 1.0 / 256.0;
    let (mut low, mut high) = (finest, f64::from(1u32 << subject.pictures[0].depth()));
    let mut best: Option<Point> = None;
    let mut step = first_step(subject, goal.nmse);
    // Error goes as the square of the step, or less where the dead zone tells.
    let (mut exponent, mut before) = (1.8, None);
    for _ in 0..TRIES {
        let point = attempt(subject, case.stages, step)?;
        if point.nmse <= goal.nmse {
            best = Some(best.filter(|b| b.bytes < point.bytes).unwrap_or(point));
            low = step;
            if point.nmse >= goal.nmse * (1.0 - goal.slack) {
                break;
            }
        } else {
            high = step;
            if best.is_none() && step <= 2.0 * finest {
                break;
            }
        }
        if let Some((step_before, nmse_before)) = before.replace((step, point.nmse)) {
            let slope = (point.nmse / nmse_before).ln() / (step / step_before).ln();
            exponent = if slope > 1.0 && slope < 2.5 { slope } else { exponent };
        }
        let aim = step * (goal.nmse * (1.0 - goal.slack / 2.0) / point.nmse.max(1e-12)).powf(1.0 / exponent);
        // Outside the bracket, or with no end in sight: halve it.
        step = if aim > low && aim < high { aim } else { (low * high).sqrt() };
        if high / low < 1.0 + 1e-4 {
            break;
        }
    }
    Ok(best)
}

/// A uniform quantiser errs by step²/12.
fn first_step(subject: &Subject, goal: f64) -> f64 {
    let samples = || subject.pictures.iter().flat_map(|p| p.samples()).map(|&s| f64::from(s));
    let n = samples().count().max(1) as f64;
    let mean = samples().sum::<f64>() / n;
    let variance = samples().map(|s| (s - mean).powi(2)).sum::<f64>() / n;
    (12.0 * goal * variance).sqrt().clamp(0.1, 200.0)
}

/// Codes a subject, decodes the bytes, and compares the values.
fn attempt(subject: &Subject, stages: Stages, step: f64) -> Result<Point> {
    let encoded = intra::encode(&subject.pictures, &Settings::new(stages, step))?;
    let mut bytes = u16::try_from(subject.parts.len())?.to_le_bytes().to_vec();
    subject.parts.iter().for_each(|p| bytes.extend(p.mapping.to_bytes()));
    bytes.extend(&encoded.bytes);
    let decoded = values_of(&bytes)?;
    ensure!(decoded.len() == subject.values(), "{} values became {}", subject.values(), decoded.len());
    let mut rest = &decoded[..];
    let mut sum = 0.0;
    for part in &subject.parts {
        let (these, after) = rest.split_at(part.values.len());
        sum += metrics::nmse(&part.values, these);
        rest = after;
    }
    Ok(Point { step, bytes: bytes.len(), nmse: sum / subject.parts.len() as f64 })
}

/// Values out of the bytes of [`attempt`]: number of mappings, mappings, stream.
fn values_of(bytes: &[u8]) -> Result<Vec<f64>> {
    let (count, rest) = bytes.split_first_chunk::<2>().context("no mappings")?;
    let count = usize::from(u16::from_le_bytes(*count));
    let (mappings, stream) = rest.split_at_checked(count * Mapping::BYTES).context("mappings are cut off")?;
    let pictures = intra::decode(stream)?;
    let depth = pictures.first().context("no picture")?.depth();
    let (chunks, _) = mappings.as_chunks::<{ Mapping::BYTES }>();
    let mappings: Vec<Mapping> = chunks.iter().map(|&b| Mapping::from_bytes(b, depth)).collect();
    let of = |i: usize| mappings.get(i).or(mappings.first()).context("no mapping");
    let mut out = Vec::new();
    for (i, picture) in pictures.iter().enumerate() {
        let mapping = of(i)?;
        out.extend(picture.samples().iter().map(|&s| mapping.value(s)));
    }
    Ok(out)
}
