//! Tensors on the device to blobs on the device.

use anyhow::{Context, Result, ensure};
use tenfold::engine::ErrorKind;
use tenfold::format::BlobInfo;
use tenfold::{DecodeOptions, Effort, Goal, Tensor};
use tenfold_cuda::lane_values;

use super::decode::{gaussian, options};
use super::rig::{Encoding, Rig, Times};
use super::show::{About, Figure, Figures};
use crate::metrics::Fidelity;

/// One thing to encode, and how fast it must be.
pub(super) struct Case {
    /// Values; a little more where they are no whole tiles.
    pub size: usize,
    pub goal: Goal,
    pub effort: Effort,
    /// Least GB/s, where one is stated.
    pub least: Option<f64>,
}

impl Case {
    pub fn name(&self) -> String {
        match self.goal {
            Goal::Lossless => "encode lossless".to_string(),
            _ => format!("encode {}", self.effort.name()),
        }
    }
}

/// Measures and keeps one case. What the device refuses is a note, and a missed bar where there is one.
pub(super) fn measure(rig: &Rig, case: &Case, threads: usize, figures: &mut Figures<'_>) -> Result<()> {
    let what = case.name();
    match one(rig, case, threads) {
        Ok((subject, times)) => {
            let figure = Figure { what: &what, subject, times, least: case.least };
            figures.keep(figure).map(|_| ())
        }
        Err(error) => {
            // A lost device or a blob that does not decode ends the bench.
            use ErrorKind::{Caller, Limit, Unsupported};
            if !matches!(kind(&error), Some(Caller | Limit | Unsupported)) {
                return Err(error);
            }
            figures.note(format!("{what}, {} values: {error}", case.size));
            if let Some(bar) = case.least {
                figures.at_least(format!("{what}, {} values, GB/s of bf16", case.size), 0.0, bar);
            }
            Ok(())
        }
    }
}

/// Who must act, where a codec says so.
fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    let device = error.downcast_ref::<tenfold_cuda::Error>().map(|e| e.kind());
    device.or_else(|| error.downcast_ref::<tenfold::Error>().map(|e| e.kind()))
}

fn one(rig: &Rig, case: &Case, threads: usize) -> Result<(About, Times)> {
    let tensor = gaussian(case.size, lane_values(case.size as u64))?;
    let times = case.size.div_ceil(tensor.view()?.len()).max(1);
    let options = options(case.size, case.goal, case.effort, threads);
    let encoding = Encoding::new(rig, &tensor, times, options)?;
    let measured = encoding.time()?;
    let blob = encoding.blob()?;
    let info = tenfold::inspect(&blob)?;
    let nmse = check(&blob, &info, &tensor, times, case.goal, threads)?;
    let subject = About {
        tensor: "N(0, 0.02)".to_string(),
        values: usize::try_from(info.values)?,
        states: info.states,
        classes: info.classes,
        bits: info.bits_per_value(),
        ratio: info.ratio(),
        nmse: Some(nmse),
    };
    Ok((subject, measured))
}

/// Decodes the first and the last of what the tensor repeats on the CPU; error over variance.
fn check(
    blob: &[u8],
    info: &BlobInfo,
    tensor: &Tensor,
    times: usize,
    goal: Goal,
    threads: usize,
) -> Result<f64> {
    let rows = tensor.shape[0];
    ensure!(info.shape == [rows * times, tensor.shape[1]], "the blob has another shape");
    let mut total = Fidelity::default();
    for part in [0, times - 1] {
        let options = DecodeOptions::default().with_threads(threads);
        let back = tenfold::decode_rows(blob, part * rows..(part + 1) * rows, &options)?;
        ensure!(goal != Goal::Lossless || back.data == tensor.data, "lossless came back different");
        total.add_tensor(Fidelity::between(&tensor.view()?, &back.view()?).context("shapes differ")?);
    }
    Ok(total.nmse())
}
