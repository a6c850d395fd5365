//! A blob in pinned host memory to a tensor on the device, copy and decoding side by side.

use anyhow::Result;
use tenfold::Dtype;

use super::decode::{self, Subject};
use super::rig::{Pipeline, Rig};
use super::show::{Figure, Figures};

/// Share of the slower of link and decoder that must be reached.
const SHARE: f64 = 0.85;

/// Sends a blob. `link` is the speed of a plain copy in GB/s.
pub(super) fn measure(rig: &Rig, subject: &Subject, link: f64, figures: &mut Figures<'_>) -> Result<()> {
    let alone = decode::measure(rig, subject)?;
    let rate = subject.bytes() as f64 / 1e6 / alone.median();
    let pipeline = Pipeline::new(rig, &subject.blob, Dtype::Bf16, subject.bytes())?;
    let times = pipeline.time()?;
    pipeline.check(&subject.once)?;

    let what = "decode from pinned host memory";
    let gb_s = figures.keep(Figure { what, subject: subject.into(), times, least: None })?;
    let bar = SHARE * (link * subject.ratio()).min(rate);
    figures.at_least(
        format!("{what}, GB/s of bf16; bar is {SHARE} of the slower of link × ratio and decoding"),
        gb_s,
        bar,
    );
    Ok(())
}
