//! Blobs in pinned host memory to tensors on the device, copies and decoding side by side: a model's layers, one
//! after the other, from where a server keeps them.

use std::time::Instant;

use anyhow::Result;
use tenfold::Dtype;
use tenfold_cuda::Pinned;

use super::decode::{self, Subject};
use super::rig::{Pipeline, Rig, Times};
use super::show::{About, Figure, Figures};

/// Streams: one copies, the others decode or are about to.
const STREAMS: usize = 3;
/// Fewer blobs than this would say more about the first copy, which nothing hides, than about the rest.
const BLOBS: usize = 16;
/// Share of the slower of link and decoder that must be reached.
const SHARE: f64 = 0.85;

/// Sends at least `values` values, in many copies of one blob. `link` is the speed of a plain copy in GB/s.
pub(super) fn measure(
    rig: &Rig,
    subject: &Subject,
    values: usize,
    link: f64,
    figures: &mut Figures<'_>,
) -> Result<()> {
    let count = values.div_ceil(subject.values).max(BLOBS);
    let alone = decode::measure(rig, subject)?;
    let rate = subject.bytes() as f64 / 1e6 / alone.median();

    // A place of its own for each blob: none comes from the host's cache.
    let room = subject.blob.len().next_multiple_of(256);
    let mut pinned = Pinned::new(&rig.device, room * count)?;
    pinned.chunks_exact_mut(room).for_each(|p| p[..subject.blob.len()].copy_from_slice(&subject.blob));
    let blobs: Vec<&[u8]> = pinned.chunks_exact(room).map(|p| &p[..subject.blob.len()]).collect();
    let pipeline = Pipeline::new(rig, STREAMS, count, subject.blob.len(), Dtype::Bf16, subject.bytes())?;
    let mut times = Vec::new();
    for round in 0..=rig.repeats {
        let start = Instant::now();
        pipeline.run(&blobs)?;
        // The first round warms up.
        if round > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    pipeline.check(&subject.once)?;

    let what = "blobs from pinned host memory";
    let mut all = About::from(subject);
    all.values = subject.values * count;
    let gb_s = figures.keep(Figure { what, subject: all, times: Times(times), least: None })?;
    figures.note(format!(
        "{what}: {count} blobs of {} values, timed by the host's clock from the first call to the last tensor",
        subject.values
    ));
    let bar = SHARE * (link * subject.ratio()).min(rate);
    figures.at_least(
        format!("{what}, GB/s of bf16; bar is {SHARE} of the slower of link × ratio and decoding"),
        gb_s,
        bar,
    );
    Ok(())
}
