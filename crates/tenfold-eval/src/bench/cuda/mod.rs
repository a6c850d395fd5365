//! Speed on a CUDA device: what a caller gets who keeps blobs and tensors there, and who has blobs on the host.
//!
//! Every figure is bytes of bf16 over the median time of repeated calls, by the device's own clock unless said
//! otherwise. Calls rotate over enough memory that none finds its data in a cache, outputs are held against the
//! CPU's, and the speeds of plain copies come from the same run.

mod copies;
mod decode;
mod host;
mod real;
mod repeat;
mod rig;
mod show;

use std::io::Write;

use anyhow::Result;
use tenfold::{Effort, Goal};
use tenfold_cuda::{Device, Error};

use super::{BenchArgs, Report, progress};
use crate::load;
use decode::Subject;
use rig::Rig;
use show::{Figure, Figures};

/// Values of the tensors whose speed is stated.
const SIZES: [usize; 3] = [512 << 20, 64 << 20, 16 << 20];
/// The rate whose speed is stated.
const BITS: f64 = 2.5;
/// GB/s at those sizes and that rate.
const DECODE: [f64; 3] = [1200.0, 700.0, 300.0];
/// What tables by class may cost: real tensors decode at this share of the speed of plain ones, or more.
const CLASSES: f64 = 0.8;
/// GB/s and ratio of lossless decoding, at the largest size.
const LOSSLESS: (f64, f64) = (1200.0, 1.5);
/// Tensors of a file that are measured, the largest ones.
const TENSORS: usize = 3;

/// Bytes that calls rotate over: several times the largest cache of any device.
const ROTATE: usize = 512 << 20;

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let rig = Rig::new(Device::open(args.device)?, args.repeats.max(1), ROTATE)?;
    measure(&rig, args, report, out)
}

/// Measures on a device, whichever that is.
fn measure(rig: &Rig, args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let own = if args.quick { &SIZES[2..] } else { &SIZES[..] };
    let sizes = if args.sizes.is_empty() { own.to_vec() } else { args.sizes.clone() };
    let rates = args.bits_or(&[BITS]);
    report.machine.device = Some(describe(&rig.device));
    let bar = progress::bar(0, args.quiet);
    let mut figures = Figures::new(report);

    // 1. What the machine can do without us.
    bar.set_message("copies");
    let copies = copies::measure(rig, if args.quick { 64 << 20 } else { 1 << 30 }, &mut figures)?;

    // 2. Decoding of made-up tensors.
    for &size in &sizes {
        for &bits in &rates {
            for &effort in args.efforts.iter().filter(|&&e| e != Effort::Fast) {
                bar.set_message(format!("decoding {size} values at {bits} bits"));
                let subject = Subject::gaussian(size, Goal::Bits(bits), effort, args.threads)?;
                let least = at_stated(size, bits).map(|i| DECODE[i]);
                decoded(rig, &subject, least, &mut figures)?;
            }
        }
        bar.set_message(format!("decoding {size} values, lossless"));
        let subject = Subject::gaussian(size, Goal::Lossless, Effort::Balanced, args.threads)?;
        let stated = size == SIZES[0];
        decoded(rig, &subject, stated.then_some(LOSSLESS.0), &mut figures)?;
        if stated {
            figures.at_least(
                format!("lossless ratio, bf16 N(0, 0.02), {size} values"),
                subject.ratio(),
                LOSSLESS.1,
            );
        }
    }

    // 3. Decoding of real tensors, with their classes.
    for path in &args.files {
        for named in real::largest(load::floats(path, real::LEAST)?, TENSORS) {
            for (&size, &bits) in sizes.iter().flat_map(|s| rates.iter().map(move |b| (s, b))) {
                bar.set_message(format!("decoding {}", named.name));
                let subject = real::subject(&named, size, bits, args.threads)?;
                let least = at_stated(size, bits).map(|i| CLASSES * DECODE[i]);
                decoded(rig, &subject, least, &mut figures)?;
            }
        }
    }

    // 4. Blobs that lie on the host.
    bar.set_message("blobs on the host");
    let (largest, part) =
        (sizes.iter().copied().max().unwrap_or(0), sizes.iter().copied().min().unwrap_or(0));
    host::measure(rig, largest, part, rates[0], copies.link, args, &mut figures)?;

    bar.finish_and_clear();
    figures.print(out)?;
    Ok(())
}

/// Measures and keeps one decoding. A device too small for it is no failure.
fn decoded(rig: &Rig, subject: &Subject, least: Option<f64>, figures: &mut Figures<'_>) -> Result<()> {
    match decode::measure(rig, subject) {
        Ok(times) => {
            let figure = Figure { what: "decode", subject: subject.into(), times, least };
            figures.keep(figure).map(|_| ())
        }
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::OutOfMemory { .. }) => {
                figures.note(format!("{}, {} values: left out: {error}", subject.name, subject.values));
                Ok(())
            }
            _ => Err(error),
        },
    }
}

/// Which of the stated figures this is, if it is one.
fn at_stated(size: usize, bits: f64) -> Option<usize> {
    SIZES.iter().position(|&s| s == size).filter(|_| (bits - BITS).abs() < 1e-9)
}

fn describe(device: &Device) -> String {
    let p = device.properties();
    let (major, minor) = p.capability;
    let memory = p.memory as f64 / (1u64 << 30) as f64;
    let processors = p.multiprocessors;
    format!("{}, compute capability {major}.{minor}, {processors} multiprocessors, {memory:.0} GiB", p.name)
}

#[cfg(all(test, feature = "emulator"))]
mod tests;
