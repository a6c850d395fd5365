//! Pages of a cache behind a basis: thousands at once to blobs under a cap, and back.

use anyhow::{Context, Result, ensure};
use tenfold::prepare::{Basis, Positions, Rope};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

use super::rig::{Paging, Rig};
use super::show::{About, Figure, Figures};
use crate::synth;

/// How many pages, and of what shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub pages: usize,
    pub rows: usize,
    /// A power of two.
    pub columns: usize,
}

/// Pages whose speed is stated.
const STATED: Case = Case { pages: 4096, rows: 64, columns: 1024 };
/// Values of a bench that is a test; its pages are small, and have this many bytes more.
const SMALL: usize = 1 << 20;
const MORE: usize = 512;

impl Case {
    /// About as many values as the largest tensor, but no more than are stated.
    pub fn new(values: usize) -> Case {
        match values {
            n if n < SMALL => Case { pages: 4, rows: 16, columns: 64 },
            n => Case { pages: (n / (STATED.rows * STATED.columns)).min(STATED.pages), ..STATED },
        }
    }

    fn cap(&self) -> usize {
        let more = if self.columns < STATED.columns { MORE } else { 0 };
        (self.rows as f64 * self.columns as f64 * BITS / 8.0) as usize + more
    }
}

/// Pages that differ; more repeat them.
const DISTINCT: usize = 64;
/// Bits a value that a page is capped at.
const BITS: f64 = 2.0;
/// Values of a lane: four warps a page, which costs two hundredths of the bytes and halves the time.
const LANE: u32 = 512;
/// GB/s of encoding and decoding.
const BARS: (f64, f64) = (60.0, 250.0);

/// Deviations of coordinates: they fall by an octave each 200 vectors, to a fiftieth of the first.
fn deviation(k: usize) -> f32 {
    4.0 * (-(k as f32) / 200.0).exp2().max(0.02)
}

/// Vectors of a Hadamard matrix, whose entries are exact, means, and the deviations of coordinates.
fn basis(columns: usize, rank: usize) -> Result<Basis> {
    let entry =
        |i: usize| if ((i / columns) & (i % columns)).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let scale = 1.0 / (columns as f32).sqrt();
    let vectors: Vec<f32> = (0..rank * columns).map(|i| entry(i) * scale).collect();
    let means: Vec<f32> = (0..columns).map(|c| (c % 7) as f32 * 0.1).collect();
    let deviations: Vec<f64> = (0..rank).map(|k| f64::from(deviation(k))).collect();
    Ok(Basis::orthonormal(&means, &vectors)?.with_deviations(&deviations)?)
}

/// Columns of a head, and the base of its rotary positions.
const HEAD: usize = 64;
const BASE: f64 = 500_000.0;

/// Rows whose coordinates have these deviations; turned as a model turns keys, from row 0 on, if that is asked for.
fn rows(basis: &Basis, count: usize, rope: Option<&Rope>) -> Result<Vec<u8>> {
    let columns = basis.cols();
    let noise = synth::values(synth::Shape::Gaussian, 1.0, count * columns, 3);
    let mut values = Vec::with_capacity(noise.len());
    for row in noise.chunks_exact(columns) {
        let coordinate = |(k, n): (usize, &f32)| if k < basis.rank() { n * deviation(k) } else { 0.0 };
        let mut v: Vec<f32> = row.iter().enumerate().map(coordinate).collect();
        let mut half = 1;
        while half < columns {
            for start in (0..columns).step_by(2 * half) {
                for i in start..start + half {
                    (v[i], v[i + half]) = (v[i] + v[i + half], v[i] - v[i + half]);
                }
            }
            half *= 2;
        }
        let scale = 1.0 / (columns as f32).sqrt();
        values.extend(v.iter().zip(basis.means()).map(|(v, m)| v * scale + m));
    }
    if let Some(rope) = rope {
        rope.inverse(&mut values, columns, 0);
    }
    let tensor = synth::tensor(Dtype::Bf16, &[count, columns], &values);
    Ok(tensor.context("pages that are no tensor")?.data)
}

/// Measures and keeps pages of so many coordinates a row.
pub(super) fn measure(
    rig: &Rig,
    case: Case,
    rank: usize,
    efforts: &[Effort],
    figures: &mut Figures<'_>,
) -> Result<()> {
    let Case { pages, rows: page_rows, columns } = case;
    let basis = basis(columns, rank)?;
    let distinct = DISTINCT.min(pages);
    let rope = Rope::new(HEAD, BASE)?.with_positions(Positions::From(0))?;
    let (plain, turned) =
        (rows(&basis, distinct * page_rows, None)?, rows(&basis, distinct * page_rows, Some(&rope))?);
    let starts: Vec<u64> = (0..distinct).map(|i| (i * page_rows) as u64).collect();
    let (times, cap) = (pages / distinct, case.cap());
    let efforts = efforts.iter().filter(|&&e| e != Effort::Best);
    for (effort, together, keys) in
        efforts.flat_map(|&e| [(e, false, false), (e, true, false), (e, true, true)])
    {
        if together && effort != Effort::Fast {
            continue;
        }
        let once = if keys { &turned } else { &plain };
        let goal = Goal::MaxBytes(cap);
        let options = EncodeOptions::new(goal).with_effort(effort).with_lane_values(LANE);
        let mut paging = Paging::new(rig, &basis, once, times, page_rows, options)?.with_together(together);
        if keys {
            paging = paging.with_rope(&rope, &starts)?;
        }
        let (encoded, sizes) = paging.encode()?;
        ensure!(sizes.iter().all(|&n| n <= cap), "a page is larger than its cap");
        let decoded = paging.decode(&sizes)?;
        let (blob, found) = paging.first(sizes[0], once.len())?;
        let info = tenfold::inspect(&blob)?;
        let bytes: usize = sizes.iter().sum();
        let values = times * distinct * page_rows * columns;
        let subject = About {
            tensor: format!("{pages} pages of {page_rows} x {columns}, basis of {rank} vectors"),
            values,
            states: info.states,
            classes: info.classes,
            bits: bytes as f64 * 8.0 / values as f64,
            ratio: (values * 2) as f64 / bytes as f64,
            nmse: Some(nmse(once, &found)),
        };
        // Bars are for pages behind a basis and nothing else.
        let stated = case == STATED && !keys;
        let keys = if keys { ", keys" } else { "" };
        let what =
            format!("encode pages {}{}{keys}", effort.name(), if together { ", one plan" } else { "" });
        let least = (stated && together).then_some(BARS.0);
        figures.keep(Figure { what: &what, subject: subject.clone(), times: encoded, least })?;
        let least = stated.then_some(BARS.1);
        let what = format!("decode pages{keys}");
        figures.keep(Figure { what: &what, subject, times: decoded, least })?;
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
