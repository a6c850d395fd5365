//! Pages of a key-value cache under caps: that none is exceeded, and what a cap costs against the same rate without one.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use half::bf16;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde::Serialize;
use tenfold::prepare::Basis;
use tenfold::{Dtype, Effort, Error as CodecError, Goal, Tensor};
use tenfold_kv::Error;
use tenfold_kv::basis::{Components, Moments};
use tenfold_kv::page::{Chain, Group, Layer, Page, PageCodec};

use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::load;

/// Tokens of a page.
const TOKENS: usize = 64;
/// Columns of a made-up layer.
const COLS: usize = 128;
/// The nmse of a capped page over that of a page of the same size without a cap, at most.
const COST: f64 = 1.03;
/// Pages of which that is measured.
const COMPARED: usize = 200;

/// Pages of one origin.
#[derive(Serialize)]
struct Row {
    pages: &'static str,
    count: usize,
    /// Pages larger than their cap.
    exceeded: usize,
    /// Pages for which even the coarsest step was too much, and which said so.
    refused: usize,
    /// Mean share of the cap that was used, where there was more to say than fitted.
    used: f64,
    /// Mean nmse under a cap over that at the same size without one.
    cost: f64,
}

/// Rows of keys and values to cut pages out of, and a codec for them.
struct Source {
    keys: Vec<bf16>,
    values: Vec<bf16>,
    cols: usize,
    codec: PageCodec,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let count = args.size_or(if args.quick { 60 } else { 100_000 });
    let mut origins = vec![("random", synthesize(args)?)];
    let real = load_real(args)?;
    match real.is_empty() {
        true => report.note("no files with keys and values were given: random pages only"),
        false => origins.push(("real", real)),
    }
    let bar = progress::bar(count, args.quiet);
    let mut table =
        Table::new(&["pages", "count", "over the cap", "refused", "cap used", "nmse against uncapped"]);
    let share = count.div_ceil(origins.len());
    for (name, sources) in &origins {
        bar.set_message(*name);
        let seen: Vec<Seen> = (0..share)
            .into_par_iter()
            .map(|i| {
                bar.inc(1);
                measure_page(&sources[i % sources.len()], i as u64)
            })
            .collect::<Result<_>>()?;
        let row = Row::summarise(name, &seen);
        table.row([
            name.to_string(),
            row.count.to_string(),
            row.exceeded.to_string(),
            row.refused.to_string(),
            format!("{:.4}", row.used),
            format!("{:.4}", row.cost),
        ]);
        report.at_most(format!("{name} pages over their cap"), row.exceeded as f64, 0.0);
        report.at_most(format!("{name} pages: nmse under a cap over that without, mean"), row.cost, COST);
        report.row(&row)?;
    }
    bar.finish_and_clear();
    table.print(out)?;
    Ok(())
}

/// What came of a page.
struct Seen {
    exceeded: bool,
    refused: bool,
    used: Option<f64>,
    cost: Option<f64>,
}

fn measure_page(source: &Source, seed: u64) -> Result<Seen> {
    let mut r = StdRng::seed_from_u64(seed);
    let rows = source.keys.len() / source.cols;
    let first = r.random_range(0..=rows - TOKENS);
    let range = first * source.cols..(first + TOKENS) * source.cols;
    let (mut keys, mut values) = (source.keys[range.clone()].to_vec(), source.values[range].to_vec());
    // Some pages are not what anybody fitted a basis for.
    match r.random_range(0..40) {
        0 => keys.fill(bf16::ZERO),
        1 => values.iter_mut().for_each(|v| *v = bf16::from_bits(r.random())),
        2 => keys[r.random_range(0..TOKENS)] = bf16::NAN,
        3 => values[r.random_range(0..TOKENS)] = bf16::from_f32(1e30),
        4 => keys.iter_mut().for_each(|v| *v = bf16::from_f32(v.to_f32() * 100.0)),
        _ => {}
    }
    let shape = [TOKENS, source.cols];
    let page = page(&shape, &keys, &values)?;
    let bits: f64 = r.random_range(0.02..10.0);
    let cap = (bits * (keys.len() + values.len()) as f64 / 8.0) as usize;
    let mut seen = Seen { exceeded: false, refused: false, used: None, cost: None };
    match source.codec.encode(&page, Goal::MaxBytes(cap)) {
        Ok(bytes) => {
            seen.exceeded = bytes.len() > cap;
            seen.used = Some(bytes.len() as f64 / cap as f64);
            source.codec.reader(&bytes)?.layer(0)?;
        }
        Err(Error::Codec(CodecError::DoesNotFit { .. })) => seen.refused = true,
        Err(e) => return Err(e).context("a page that could not be encoded"),
    }
    if (seed as usize) < COMPARED {
        seen.cost = measure_cost(source, &mut r)?;
    }
    Ok(seen)
}

/// The nmse of a page under a cap over that of the same page at a step, where the cap is the size of the latter.
fn measure_cost(source: &Source, r: &mut StdRng) -> Result<Option<f64>> {
    let first = r.random_range(0..=source.keys.len() / source.cols - TOKENS);
    let range = first * source.cols..(first + TOKENS) * source.cols;
    let shape = [TOKENS, source.cols];
    let page = page(&shape, &source.keys[range.clone()], &source.values[range.clone()])?;
    let free = source.codec.encode(&page, Goal::Bits(r.random_range(1.5..5.0)))?;
    let step = find_step(source, &page, free.len())?;
    let free = source.codec.encode(&page, Goal::Step(step))?;
    let capped = source.codec.encode(&page, Goal::MaxBytes(free.len()))?;
    ensure!(capped.len() <= free.len(), "a page exceeds its cap");
    let error = |bytes: &[u8]| -> Result<f64> {
        let (keys, values) = source.codec.reader(bytes)?.layer(0)?;
        Ok(measure_error(&source.keys[range.clone()], &keys)?
            + measure_error(&source.values[range.clone()], &values)?)
    };
    let (capped, free) = (error(&capped)?, error(&free)?);
    Ok((free > 0.0).then_some(capped / free))
}

/// About the step that takes so many bytes.
fn find_step(source: &Source, page: &Page<'_>, bytes: usize) -> Result<f64> {
    let (mut fine, mut coarse) = (1e-4f64, 1e3f64);
    for _ in 0..10 {
        let middle = (fine * coarse).sqrt();
        let size = source.codec.encode(page, Goal::Step(middle))?.len();
        if size > bytes { fine = middle } else { coarse = middle }
    }
    Ok((fine * coarse).sqrt())
}

/// Squared error of keys or values; the variance that an nmse divides by is the same for both pages.
fn measure_error(was: &[bf16], is: &Tensor) -> Result<f64> {
    let is = is.to_vec::<bf16>()?;
    Ok(was.iter().zip(&is).map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum())
}

fn page<'a>(shape: &'a [usize; 2], keys: &'a [bf16], values: &'a [bf16]) -> Result<Page<'a>> {
    let view = |v: &'a [bf16]| tenfold::TensorView::from_slice(v, shape);
    Ok(Page { layers: vec![Layer { keys: view(keys)?, values: view(values)? }], positions: None })
}

/// Rows whose columns have means and move together, behind a basis that knows them and behind none.
fn synthesize(args: &BenchArgs) -> Result<Vec<Source>> {
    let rows = 1024;
    let mut r = StdRng::seed_from_u64(1);
    let mut normal = move || (0..12).map(|_| r.random::<f32>()).sum::<f32>() - 6.0;
    let mut side = |scale: f32| {
        let means: Vec<f32> = (0..COLS).map(|_| 2.0 * normal()).collect();
        let mix: Vec<f32> = (0..COLS * 8).map(|_| normal()).collect();
        let mut out = Vec::with_capacity(rows * COLS);
        for _ in 0..rows {
            let common: Vec<f32> = (0..8).map(|_| normal()).collect();
            for c in 0..COLS {
                let shared: f32 = common.iter().zip(&mix[c * 8..]).map(|(a, b)| a * b).sum();
                out.push(bf16::from_f32(scale * (means[c] + shared + 0.5 * normal())));
            }
        }
        out
    };
    let (keys, values) = (side(1.0), side(0.3));
    make_sources(args, keys, values, COLS)
}

/// Keys and values of layers that the files have both of.
fn load_real(args: &BenchArgs) -> Result<Vec<Source>> {
    let mut all = Vec::new();
    for path in &args.files {
        let named = load::floats(path, 1)?;
        let of = |t: &Tensor| -> Result<Vec<bf16>> {
            Ok(match t.dtype {
                Dtype::Bf16 => t.to_vec::<bf16>()?,
                _ => t.view()?.to_f64().unwrap_or_default().iter().map(|&v| bf16::from_f64(v)).collect(),
            })
        };
        for keys in &named {
            let values = keys.name.replace(".k_before_rope", ".v").replace(".k", ".v");
            let Some(values) = named.iter().find(|n| n.name == values && n.name != keys.name) else {
                continue;
            };
            let cols = keys.tensor.shape.last().copied().unwrap_or(1);
            if keys.tensor.shape == values.tensor.shape && keys.tensor.shape[0] >= TOKENS {
                all.extend(make_sources(args, of(&keys.tensor)?, of(&values.tensor)?, cols)?);
            }
        }
    }
    Ok(all)
}

/// A codec with bases, fitted to the rows, and one without.
fn make_sources(args: &BenchArgs, keys: Vec<bf16>, values: Vec<bf16>, cols: usize) -> Result<Vec<Source>> {
    let effort = args.efforts.first().copied().unwrap_or(Effort::Balanced);
    let group = |keys: Chain, values: Chain| {
        let codec = PageCodec::new(vec![Group { layers: 1, keys, values }])?;
        Ok::<_, Error>(codec.with_effort(effort).with_threads(1))
    };
    let fitted = |rows: &[bf16]| Ok::<_, anyhow::Error>(Chain::default().with_basis(fit_basis(rows, cols)?));
    let with = group(fitted(&keys)?, fitted(&values)?)?;
    let without = group(Chain::default(), Chain::default())?;
    let codecs = [with, without];
    Ok(codecs
        .into_iter()
        .map(|codec| Source { keys: keys.clone(), values: values.clone(), cols, codec })
        .collect())
}

fn fit_basis(rows: &[bf16], cols: usize) -> Result<Arc<Basis>> {
    let mut moments = Moments::new(cols)?;
    let rows: Vec<f32> = rows.iter().map(|v| v.to_f32()).collect();
    moments.add(&rows, "rows", 0)?;
    let components = Components::from_moments(&moments, None)?;
    let means: Vec<f32> = components.means().iter().map(|&m| m as f32).collect();
    let deviations: Vec<f64> = components.variances().iter().map(|v| v.max(0.0).sqrt()).collect();
    let basis = Basis::orthonormal(&means, &components.vectors(cols)?)?;
    Ok(Arc::new(basis.with_deviations(&deviations)?))
}

impl Row {
    fn summarise(pages: &'static str, seen: &[Seen]) -> Row {
        let mean = |v: Vec<f64>| if v.is_empty() { 0.0 } else { v.iter().sum::<f64>() / v.len() as f64 };
        Row {
            pages,
            count: seen.len(),
            exceeded: seen.iter().filter(|s| s.exceeded).count(),
            refused: seen.iter().filter(|s| s.refused).count(),
            used: mean(seen.iter().filter_map(|s| s.used).collect()),
            cost: mean(seen.iter().filter_map(|s| s.cost).collect()),
        }
    }
}
