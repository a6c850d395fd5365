//! Each figure the project states about itself, as a function: state what to measure in [`BenchArgs`],
//! call [`run`], get a table on `out` and a [`Report`] to keep.
//!
//! | bench | question |
//! |---|---|
//! | `gap` | how far from the Gaussian bound on N(0, 1), all bytes counted |
//! | `files` | what real tensors reach, beside H.265 and an ideal scalar quantiser |
//! | `rate` | whether `bits`, `max_bytes` and `max_error` are obeyed |
//! | `lossless` | ratio and speed on bf16 weights, beside zstd |
//! | `speed` | encoding and decoding, beside zstd and H.265 in the same run |
//! | `pages` | whether pages of a key-value cache keep to their caps, and what a cap costs |
//! | `calibrated` | how long a matrix with feedback takes on a device, and what it costs the model, beside the CPU |
//! | `delta` | what deltas take beside XOR and zstd, and how fast they are applied; on a device beside plain copies |
//! | `energy` | pJ for each bit that a CUDA device encodes and decodes, by its own counter |
//! | `nvcodec` | the video engines of a device: speed, latency, what hides behind products of matrices, energy |
//! | `cuda` | decoding and encoding on a device, beside plain copies and nvCOMP in the same run |

mod allocate;
pub(crate) mod args;
mod calibrated;
pub(crate) mod clock;
mod cuda;
mod delta;
mod files;
mod gap;
mod lossless;
mod nvcodec;
mod pages;
pub(crate) mod progress;
mod rate;
pub(crate) mod report;
mod speed;
pub(crate) mod table;
mod x265_rival;

pub(crate) use args::default_command;
pub use args::{BenchArgs, CudaPart, What};
pub use cuda::{NvcompError, NvmlError};
pub use report::{Check, Machine, Report};

use std::io::Write;

use anyhow::Result;

/// Runs a bench, prints its tables and verdicts, and writes the report where the arguments say.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<Report> {
    let mut report = Report::new(args);
    let engine = args.engine.name();
    if engine != "cpu" {
        report.note(format!("tenfold's figures are those of the engine {engine}"));
    }
    match args.what {
        What::Gap => gap::run(args, &mut report, out)?,
        What::Files => files::run(args, &mut report, out)?,
        What::Rate => rate::run(args, &mut report, out)?,
        What::Lossless => lossless::run(args, &mut report, out)?,
        What::Speed => speed::run(args, &mut report, out)?,
        What::Pages => pages::run(args, &mut report, out)?,
        What::Calibrated => calibrated::run(args, &mut report, out)?,
        What::Delta if args.parts.contains(&CudaPart::Cuda) => cuda::delta::run(args, &mut report, out)?,
        What::Delta => delta::run(args, &mut report, out)?,
        What::Energy => cuda::energy::run(args, &mut report, out)?,
        What::Cuda | What::Nvcodec => {
            let done = match args.what {
                What::Cuda => cuda::run(args, &mut report, out),
                _ => nvcodec::run(args, &mut report, out),
            };
            // Time on a device is dear: what was measured before a failure is kept, and says that it is not all.
            if let (Err(error), Some(path), false) = (&done, &args.json, report.rows.is_empty()) {
                report.note(format!("incomplete: {error}"));
                report.save(path)?;
            }
            done?;
        }
    }
    // Kept first: a reader that closes the pipe early must not cost the report.
    if let Some(path) = &args.json {
        report.save(path)?;
    }
    report.print_verdicts(out)?;
    Ok(report)
}

#[cfg(test)]
mod tests;
