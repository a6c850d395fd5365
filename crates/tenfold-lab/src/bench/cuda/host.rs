//! A blob in pinned host memory to a tensor on the device, copy and decoding side by side.

use anyhow::Result;
use tenfold::{Dtype, Effort, Goal};

use super::decode::{self, Subject};
use super::rig::{Pipeline, Rig};
use super::show::{Figure, Figures};

/// Share of the slower of link and decoder that must be reached.
const SHARE: f64 = 0.85;
/// Values of a lane: short ones make more tiles, that is smaller pieces and a decoder with more to do at once, and
/// take more bits on the link. Which is quicker depends on the device and its link.
pub(super) const LANES: [u32; 3] = [1024, 2048, 4096];

/// Speed of one blob in GB/s of bf16, and what it must be.
struct Sent {
    lanes: u32,
    gb_s: f64,
    bar: f64,
}

/// Sends blobs of at least `size` values. `link` is the speed of a plain copy in GB/s. The fastest has a bar.
pub(super) fn measure(
    rig: &Rig,
    size: usize,
    goal: Goal,
    threads: usize,
    link: f64,
    figures: &mut Figures<'_>,
) -> Result<()> {
    let mut best: Option<Sent> = None;
    for lanes in LANES {
        let subject = Subject::in_lanes(size, lanes, goal, Effort::Balanced, threads)?;
        let sent = send(rig, &subject, lanes, link, figures)?;
        if best.as_ref().is_none_or(|b| sent.gb_s > b.gb_s) {
            best = Some(sent);
        }
    }
    if let Some(Sent { lanes, gb_s, bar }) = best {
        let what = format!(
            "{}, the fastest, GB/s of bf16; bar is {SHARE} of the slower of link × ratio and decoding",
            name(lanes)
        );
        figures.at_least(what, gb_s, bar);
    }
    Ok(())
}

fn name(lanes: u32) -> String {
    format!("decode from pinned host memory, lanes of {lanes}")
}

fn send(rig: &Rig, subject: &Subject, lanes: u32, link: f64, figures: &mut Figures<'_>) -> Result<Sent> {
    let alone = decode::measure(rig, subject, true)?;
    let rate = subject.bytes() as f64 / 1e6 / alone.median();
    let pipeline = Pipeline::new(rig, &subject.blob, Dtype::Bf16, subject.bytes())?;
    let times = pipeline.time()?;
    pipeline.check(&subject.once)?;

    let figure = Figure { what: &name(lanes), subject: subject.into(), times, least: None };
    let gb_s = figures.keep(figure)?;
    Ok(Sent { lanes, gb_s, bar: SHARE * (link * subject.ratio()).min(rate) })
}
