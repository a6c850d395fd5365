//! Pages of a cache behind a basis: thousands at once to blobs under a cap, and back.

use anyhow::{Context, Result, ensure};
use tenfold::prepare::Basis;
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

use super::rig::{Paging, Rig};
use super::show::{About, Figure, Figures};
use crate::synth;

/// Pages, and their rows and columns.
pub(super) const PAGES: usize = 4096;
const ROWS: usize = 64;
const COLUMNS: usize = 1024;
/// Pages that differ; more repeat them.
const DISTINCT: usize = 64;
/// Bits a value that a page is capped at.
const BITS: f64 = 2.0;
/// Values of a lane: four warps a page, which costs two hundredths of the bytes and halves the time.
const LANE: u32 = 512;
/// GB/s of encoding and decoding.
const BARS: (f64, f64) = (60.0, 250.0);

/// Vectors of a Hadamard matrix, whose entries are exact, and means.
fn basis(rank: usize) -> Result<Basis> {
    let entry =
        |i: usize| if ((i / COLUMNS) & (i % COLUMNS)).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let scale = 1.0 / (COLUMNS as f32).sqrt();
    let vectors: Vec<f32> = (0..rank * COLUMNS).map(|i| entry(i) * scale).collect();
    let means: Vec<f32> = (0..COLUMNS).map(|c| (c % 7) as f32 * 0.1).collect();
    Ok(Basis::orthonormal(&means, &vectors)?)
}

/// Rows whose coordinates fall by an octave each 200 vectors, to a fiftieth of the first.
fn rows(basis: &Basis, count: usize) -> Result<Vec<u8>> {
    let noise = synth::values(synth::Shape::Gaussian, 4.0, count * COLUMNS, 3);
    let mut values = Vec::with_capacity(noise.len());
    for row in noise.chunks_exact(COLUMNS) {
        let fall = |k: usize| (-(k as f32) / 200.0).exp2().max(0.02);
        let mut v: Vec<f32> =
            row.iter().enumerate().map(|(k, n)| if k < basis.rank() { n * fall(k) } else { 0.0 }).collect();
        let mut half = 1;
        while half < COLUMNS {
            for start in (0..COLUMNS).step_by(2 * half) {
                for i in start..start + half {
                    (v[i], v[i + half]) = (v[i] + v[i + half], v[i] - v[i + half]);
                }
            }
            half *= 2;
        }
        let scale = 1.0 / (COLUMNS as f32).sqrt();
        values.extend(v.iter().zip(basis.means()).map(|(v, m)| v * scale + m));
    }
    let tensor = synth::tensor(Dtype::Bf16, &[count, COLUMNS], &values);
    Ok(tensor.context("pages that are no tensor")?.data)
}

/// Measures and keeps pages of so many coordinates a row.
pub(super) fn measure(
    rig: &Rig,
    pages: usize,
    rank: usize,
    efforts: &[Effort],
    figures: &mut Figures<'_>,
) -> Result<()> {
    let basis = basis(rank)?;
    let distinct = DISTINCT.min(pages);
    let once = rows(&basis, distinct * ROWS)?;
    let cap = (ROWS * COLUMNS) as f64 * BITS / 8.0;
    for &effort in efforts.iter().filter(|&&e| e != Effort::Best) {
        let goal = Goal::MaxBytes(cap as usize);
        let options = EncodeOptions::new(goal).with_effort(effort).with_lane_values(LANE);
        let paging = Paging::new(rig, &basis, &once, pages / distinct, ROWS, options)?;
        let (encoded, sizes) = paging.encode()?;
        ensure!(sizes.iter().all(|&n| n <= cap as usize), "a page is larger than its cap");
        let decoded = paging.decode(&sizes)?;
        let (blob, found) = paging.first(sizes[0], once.len())?;
        let info = tenfold::inspect(&blob)?;
        let bytes: usize = sizes.iter().sum();
        let values = pages / distinct * distinct * ROWS * COLUMNS;
        let subject = About {
            tensor: format!("{pages} pages of {ROWS} x {COLUMNS}, basis of {rank} vectors"),
            values,
            states: info.states,
            classes: info.classes,
            bits: bytes as f64 * 8.0 / values as f64,
            ratio: (values * 2) as f64 / bytes as f64,
            nmse: Some(nmse(&once, &found)),
        };
        let stated = pages == PAGES;
        let what = format!("encode pages {}", effort.name());
        let least = stated.then_some(BARS.0);
        figures.keep(Figure { what: &what, subject: subject.clone(), times: encoded, least })?;
        let least = stated.then_some(BARS.1);
        figures.keep(Figure { what: "decode pages", subject, times: decoded, least })?;
    }
    Ok(())
}

/// Error over power, of bf16.
fn nmse(wanted: &[u8], found: &[u8]) -> f64 {
    let real = |b: &[u8]| f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16));
    let (mut error, mut power) = (0.0, 0.0);
    for (w, f) in wanted.chunks_exact(2).zip(found.chunks_exact(2)) {
        error += (real(w) - real(f)).powi(2);
        power += real(w).powi(2);
    }
    error / power
}
