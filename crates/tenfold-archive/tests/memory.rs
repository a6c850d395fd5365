//! Peak memory follows the largest tensor and what the encoder needs for two, not the model. Alone in its file: it measures the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use tenfold::{DecodeOptions, Effort, Goal};
use tenfold_archive::{CompressOptions, Silent, compress, decompress};

const TENSORS: usize = 24;
const ROWS: usize = 2048;
const COLS: usize = 4096;

#[test]
fn peak_memory_stays_below_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    let model = write_model(&a);
    let options = CompressOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast);
    let report = compress(&a, &b, &options, &Silent).unwrap();
    assert_eq!(report.compressed.tensors, TENSORS);
    decompress(&b, &c, &DecodeOptions::default(), false, &Silent).unwrap();
    let peak = peak_bytes();
    println!("peak {} MiB", peak >> 20);
    assert!(peak < model * 3 / 4, "peak of {} MiB for a model of {} MiB", peak >> 20, model >> 20);
}

/// Writes 16 MiB tensors, one at a time; returns the bytes of all.
fn write_model(path: &Path) -> u64 {
    let one = common::halves("w", &[ROWS * COLS / 8], 0.02).data;
    let bytes = 8 * one.len();
    let entries: Vec<String> = (0..TENSORS)
        .map(|i| {
            let (begin, end) = (i * bytes, (i + 1) * bytes);
            format!(r#""w{i}":{{"dtype":"BF16","shape":[{ROWS},{COLS}],"data_offsets":[{begin},{end}]}}"#)
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut out = BufWriter::new(File::create(path).unwrap());
    out.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    out.write_all(header.as_bytes()).unwrap();
    for _ in 0..8 * TENSORS {
        out.write_all(&one).unwrap();
    }
    out.flush().unwrap();
    (TENSORS * bytes) as u64
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
