//! Encoding and decoding speed, with the peers in the same run.
//!
//! Every round times ours and the peers one after the other, so a machine that slows down does so for
//! all; medians over the rounds count. Rate control is part of encoding; buffers are made beforehand.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;
use tenfold::engine::{Cpu, Engine};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, Tensor, TensorView};

use super::clock::time;
use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::median;
use crate::peers::{Peer, Video};
use crate::synth;
use tenfold_video::Standard;

/// Rows and columns of the part that the slow peer codes.
const CROP: usize = 512;

#[derive(Serialize)]
struct Row {
    what: String,
    dtype: &'static str,
    threads: usize,
    bits: f64,
    values_per_s: f64,
    gb_per_s: f64,
    rounds: Vec<f64>,
}

/// One thing that is timed in every round.
struct Runner<'a> {
    what: String,
    effort: Option<Effort>,
    threads: usize,
    /// Values a second, one a round.
    speeds: Vec<f64>,
    call: Box<dyn FnMut() -> Result<f64> + 'a>,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let side = args.size_or(if args.quick { 512 } else { 4096 });
    let bits = args.bits_or(&[2.5])[0];
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let tensor = synth::gaussian(dtype, &[side, side], 0.02, 4).context("a float dtype")?;
        one_dtype(args, &tensor, bits, report, out)?;
    }
    Ok(())
}

fn one_dtype(
    args: &BenchArgs,
    tensor: &Tensor,
    bits: f64,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    let (dtype, view) = (tensor.dtype, tensor.view()?);
    let frame = zstd::bulk::compress(&tensor.data, 3)?;
    let mut runners = vec![zstd_runner(&frame, tensor.data.len(), view.len())];
    if dtype == Dtype::Bf16 && args.peers {
        runners.extend(x265_runner(&view, bits, report)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: &[usize] = if cores > 1 { &[1, 2] } else { &[1] };
    for &effort in &args.efforts {
        let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_threads(1);
        let blob = tenfold::encode(&view, &options)?;
        for &threads in threads {
            let options = options.clone().with_threads(threads);
            runners.push(encode_runner(tensor, options)?);
            runners.push(decode_runner(blob.clone(), tensor.data.len(), effort, threads, view.len()));
        }
    }
    let rounds = args.repeats();
    let bar = progress::bar((rounds + 1) * runners.len(), args.quiet);
    for round in 0..=rounds {
        for r in &mut runners {
            bar.set_message(format!("{dtype}: {}", r.what));
            let speed = (r.call)()?;
            // The first round warms caches, pools and clocks up.
            if round > 0 {
                r.speeds.push(speed);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut table = Table::new(&["one tensor", "dtype", "threads", "M values/s", "GB/s"]);
    for r in &runners {
        let speed = median(&r.speeds);
        let gb_per_s = speed * dtype.size() as f64 / 1e9;
        let cells = [dtype.name().to_string(), r.threads.to_string(), format!("{:.2}", speed / 1e6)];
        let [name, threads, values] = cells;
        table.row([r.what.clone(), name, threads, values, format!("{gb_per_s:.3}")]);
        report.row(&Row {
            what: r.what.clone(),
            dtype: dtype.name(),
            threads: r.threads,
            bits,
            values_per_s: speed,
            gb_per_s,
            rounds: r.speeds.clone(),
        })?;
    }
    table.print(out)?;
    verdicts(&runners, dtype, report);
    Ok(())
}

fn zstd_runner(frame: &[u8], bytes: usize, values: usize) -> Runner<'_> {
    let mut buffer = vec![0u8; bytes];
    let call = move || {
        let (seconds, done) = time(|| zstd::bulk::decompress_to_buffer(frame, &mut buffer));
        done?;
        Ok(values as f64 / seconds)
    };
    Runner::new("zstd -3 decompress".to_string(), None, 1, Box::new(call))
}

/// The H.265 encoder on a part of the values; none, with a note why, where this build or machine has none.
fn x265_runner<'a>(view: &TensorView<'_>, bits: f64, report: &mut Report) -> Result<Option<Runner<'a>>> {
    let side = CROP.min(view.rows()).min(view.cols());
    let size = view.dtype().size();
    let rows = view.data().chunks_exact(view.cols() * size).take(side);
    let data: Vec<u8> = rows.flat_map(|row| &row[..side * size]).copied().collect();
    let shape = [side, side];
    let part = TensorView::new(view.dtype(), &shape, &data)?;
    let peer = Video::new("x265", Standard::H265, Effort::Balanced, bits);
    let alone = peer.on_threads(1).context("a video codec has threads")?;
    let settled = alone.encode(&part).and_then(|blob| Ok((blob.len(), alone.without_search(&part)?)));
    let (bytes, alone) = match settled {
        Ok((bytes, Some(alone))) => (bytes, alone),
        Ok((_, None)) => return Ok(None),
        Err(e) => {
            report.note(format!("x265: {e}"));
            return Ok(None);
        }
    };
    let reached = bytes as f64 * 8.0 / part.len() as f64;
    report.note(format!("x265 medium codes {side}×{side} of the same values, {reached:.2} bits"));
    let (values, dtype, data) = (part.len(), view.dtype(), data.clone());
    let call = move || {
        let part = TensorView::new(dtype, &shape, &data)?;
        let (seconds, done) = time(|| alone.encode(&part));
        done?;
        Ok(values as f64 / seconds)
    };
    Ok(Some(Runner::new("x265 medium encode".to_string(), None, 1, Box::new(call))))
}

fn encode_runner(tensor: &Tensor, options: EncodeOptions) -> Result<Runner<'_>> {
    let view = tensor.view()?;
    let mut buffer = vec![0u8; tenfold::format::max_encoded_len(tensor.dtype, &tensor.shape)?];
    let (effort, threads, values) = (options.effort, options.threads, view.len());
    let call = move || {
        let (seconds, done) = time(|| Cpu.encode_into(&view, &options, &mut buffer));
        done?;
        Ok(values as f64 / seconds)
    };
    Ok(Runner::new(format!("encode {}", effort.name()), Some(effort), threads, Box::new(call)))
}

fn decode_runner<'a>(
    blob: Vec<u8>,
    bytes: usize,
    effort: Effort,
    threads: usize,
    values: usize,
) -> Runner<'a> {
    let mut buffer = vec![0u8; bytes];
    let options = DecodeOptions::default().with_threads(threads);
    let call = move || {
        let (seconds, done) = time(|| Cpu.decode_into(&blob, &options, &mut buffer));
        done?;
        Ok(values as f64 / seconds)
    };
    Runner::new(format!("decode {}", effort.name()), Some(effort), threads, Box::new(call))
}

impl<'a> Runner<'a> {
    fn new(
        what: String,
        effort: Option<Effort>,
        threads: usize,
        call: Box<dyn FnMut() -> Result<f64> + 'a>,
    ) -> Self {
        Runner { what, effort, threads, speeds: Vec::new(), call }
    }
}

/// Ratios between medians of the same run, against the bars.
fn verdicts(runners: &[Runner<'_>], dtype: Dtype, report: &mut Report) {
    let speed = |start: &str, effort: Option<Effort>, threads: usize| {
        let found =
            runners.iter().find(|r| r.what.starts_with(start) && r.effort == effort && r.threads == threads);
        found.map(|r| median(&r.speeds))
    };
    let zstd = speed("zstd", None, 1);
    let x265 = speed("x265", None, 1);
    for effort in [Effort::Fast, Effort::Balanced, Effort::Best] {
        let (name, e) = (effort.name(), Some(effort));
        let (encode, decode) = (speed("encode", e, 1), speed("decode", e, 1));
        if let (Some(ours), Some(zstd), Dtype::Bf16) = (decode, zstd, dtype) {
            report.at_least(
                format!("decode {name}, bytes/s over zstd's, one thread (aim 2)"),
                ours / zstd,
                1.5,
            );
        }
        if let (Some(ours), Some(x265)) = (encode, x265) {
            let bar = match effort {
                Effort::Fast => 350.0,
                Effort::Balanced => 100.0,
                Effort::Best => 5.0,
            };
            report.at_least(
                format!("encode {name}, values/s over x265 medium's, one thread"),
                ours / x265,
                bar,
            );
        }
        for (what, one) in [("encode", encode), ("decode", decode)] {
            if let (Some(one), Some(two)) = (one, speed(what, e, 2)) {
                report.at_least(format!("{what} {name}, {dtype}, two threads over one"), two / one, 1.8);
            }
        }
    }
}
