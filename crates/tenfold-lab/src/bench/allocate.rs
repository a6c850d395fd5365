//! Sharing a file's bits among its tensors, always with real encodings.

use anyhow::{Context, Result};
use tenfold::engine::Engine;
use tenfold::{DecodeOptions, EncodeOptions, Goal};

use crate::load::Named;
use crate::metrics::Fidelity;

/// Share of the rate by which one step may miss from below.
const CLOSE: f64 = 0.001;
/// Encodings of the whole file after which the closest rate below stands.
const TRIALS: usize = 12;

/// How bits are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocation {
    /// The same rate for each tensor.
    Equal,
    /// The same quantiser step for each tensor: least squared error over the file.
    Step,
}

/// A tensor's bytes and what came back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coded {
    pub bytes: usize,
    pub fidelity: Fidelity,
}

impl Allocation {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Allocation::Equal => "equal",
            Allocation::Step => "step",
        }
    }

    /// Codes all tensors at a rate over the file and decodes them again.
    pub fn encode(
        self,
        engine: &dyn Engine,
        tensors: &[Named],
        options: &EncodeOptions,
        bits: f64,
    ) -> Result<Vec<Coded>> {
        let blobs = match self {
            Allocation::Equal => blobs(engine, tensors, options, Goal::Bits(bits))?,
            Allocation::Step => one_step(engine, tensors, options, bits)?,
        };
        let decoding = DecodeOptions::default().with_threads(options.threads);
        let measure = |(named, blob): (&Named, &Vec<u8>)| {
            let back = engine.decode(blob, &decoding)?;
            let fidelity = Fidelity::between(&named.tensor.view()?, &back.view()?);
            Ok(Coded { bytes: blob.len(), fidelity: fidelity.context("shapes differ")? })
        };
        tensors.iter().zip(&blobs).map(measure).collect()
    }
}

fn blobs(
    engine: &dyn Engine,
    tensors: &[Named],
    options: &EncodeOptions,
    goal: Goal,
) -> Result<Vec<Vec<u8>>> {
    let mut options = options.clone();
    options.goal = goal;
    let one = |t: &Named| {
        engine.encode(&t.tensor.view()?, &options).with_context(|| format!("cannot encode {}", t.name))
    };
    tensors.iter().map(one).collect()
}

/// Regula falsi and bisection over log2(step), along which bits fall about one to one; never above the rate.
fn one_step(
    engine: &dyn Engine,
    tensors: &[Named],
    options: &EncodeOptions,
    bits: f64,
) -> Result<Vec<Vec<u8>>> {
    let values: usize = tensors.iter().map(|t| t.tensor.data.len() / t.tensor.dtype.size()).sum();
    let mut at = start(tensors)? - bits;
    // Nearest points on both sides: log2(step), bits.
    let mut above: Option<(f64, f64)> = None;
    let mut below: Option<(f64, f64)> = None;
    let mut best: Option<Vec<Vec<u8>>> = None;
    for trial in 0..TRIALS {
        let coded = blobs(engine, tensors, options, Goal::Step(at.exp2()))?;
        let got = coded.iter().map(Vec::len).sum::<usize>() as f64 * 8.0 / values.max(1) as f64;
        if got > bits {
            above = Some((at, got));
        } else {
            let done = got > bits * (1.0 - CLOSE);
            if below.is_none_or(|b| got > b.1) {
                below = Some((at, got));
                best = Some(coded);
            }
            if done {
                break;
            }
        }
        // Aim a little below the rate: what lies above it is of no use.
        let aim = bits * (1.0 - CLOSE / 2.0);
        at = match (above, below) {
            // Bits jump a little where a tensor's statistics change shape; halving gets past that.
            (Some(a), Some(b)) if trial % 3 == 2 => (a.0 + b.0) / 2.0,
            (Some(a), Some(b)) => a.0 + (a.1 - aim) / (a.1 - b.1).max(1e-9) * (b.0 - a.0),
            _ => at + (got - aim).clamp(-4.0, 4.0) * if got > bits { 1.05 } else { 1.2 },
        };
    }
    best.with_context(|| format!("no step brings the file to {bits} bits a value"))
}

/// log2 of the root mean square deviation over the file, about where a step of zero bits lies.
fn start(tensors: &[Named]) -> Result<f64> {
    let mut total = Fidelity::default();
    for t in tensors {
        let view = t.tensor.view()?;
        total.add_tensor(Fidelity::between(&view, &view).context("not a float")?);
    }
    Ok(0.5 * total.variance().max(f64::MIN_POSITIVE).log2())
}
