//! Lossless bf16 weights: N(0, 0.02), beside zstd on the same bytes.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tenfold::engine::{Cpu, Engine};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal};

use super::clock::time;
use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::median;
use crate::synth;

/// Least ratio; the entropy of exponents with raw signs and mantissas allows 1.529.
const BAR: f64 = 1.505;

#[derive(Serialize)]
struct Row {
    coder: String,
    threads: usize,
    values: usize,
    bytes: usize,
    ratio: f64,
    encode_gb_s: f64,
    decode_gb_s: f64,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let values = args.size_or(if args.quick { 1 << 20 } else { 64 << 20 });
    // Rows of 4096 as in a real layer, where the number of values allows.
    let shape = if values.is_multiple_of(4096) { vec![values / 4096, 4096] } else { vec![values] };
    let tensor = synth::gaussian(Dtype::Bf16, &shape, 0.02, 2).context("bf16 is a float")?;
    let view = tensor.view()?;
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let repeats = args.repeats().min(3);
    let mut threads = vec![1, if args.threads == 0 { all } else { args.threads }];
    threads.dedup();
    let bar = progress::bar(repeats * (threads.len() + 1), args.quiet);
    let mut table = Table::new(&["coder", "threads", "bytes", "ratio", "encode GB/s", "decode GB/s"]);
    let mut buffer = vec![0u8; tensor.data.len()];
    for &threads in &threads {
        let encoding = EncodeOptions::new(Goal::Lossless).with_threads(threads);
        let decoding = DecodeOptions::default().with_threads(threads);
        let (mut encode, mut decode, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..repeats {
            bar.set_message(format!("tenfold, {threads} threads"));
            let (seconds, blob) = time(|| tenfold::encode(&view, &encoding));
            let blob = blob?;
            encode.push(seconds);
            let (seconds, done) = time(|| Cpu.decode_into(&blob, &decoding, &mut buffer));
            done?;
            decode.push(seconds);
            ensure!(buffer == tensor.data, "lossless came back different");
            bytes = blob.len();
            bar.inc(1);
        }
        let row = Row::new("tenfold lossless".to_string(), threads, &tensor.data, bytes, [&encode, &decode]);
        row.keep(&mut table, report)?;
        if threads == 1 {
            report.at_least(format!("lossless ratio, bf16 N(0, 0.02), {values} values"), row.ratio, BAR);
        }
    }
    let (mut encode, mut decode, mut bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..repeats {
        bar.set_message("zstd -3");
        let (seconds, frame) = time(|| zstd::bulk::compress(&tensor.data, 3));
        let frame = frame?;
        encode.push(seconds);
        let (seconds, done) = time(|| zstd::bulk::decompress_to_buffer(&frame, &mut buffer));
        ensure!(done? == tensor.data.len() && buffer == tensor.data, "zstd came back different");
        decode.push(seconds);
        bytes = frame.len();
        bar.inc(1);
    }
    bar.finish_and_clear();
    Row::new("zstd -3".to_string(), 1, &tensor.data, bytes, [&encode, &decode]).keep(&mut table, report)?;
    table.print(out)?;
    Ok(())
}

impl Row {
    fn new(coder: String, threads: usize, data: &[u8], bytes: usize, seconds: [&[f64]; 2]) -> Self {
        let gb_s = |s: &[f64]| data.len() as f64 / 1e9 / median(s).max(1e-12);
        Row {
            coder,
            threads,
            values: data.len() / 2,
            bytes,
            ratio: data.len() as f64 / bytes.max(1) as f64,
            encode_gb_s: gb_s(seconds[0]),
            decode_gb_s: gb_s(seconds[1]),
        }
    }

    fn keep(&self, table: &mut Table, report: &mut Report) -> Result<()> {
        table.row([
            self.coder.clone(),
            self.threads.to_string(),
            self.bytes.to_string(),
            format!("{:.4}", self.ratio),
            format!("{:.2}", self.encode_gb_s),
            format!("{:.2}", self.decode_gb_s),
        ]);
        report.row(self)
    }
}
