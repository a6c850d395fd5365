//! Speed on a CUDA device: what a caller gets who keeps blobs and tensors there, and who has blobs on the host.
//!
//! Every figure is bytes of bf16 over the median time of repeated calls, by the device's own clock unless said
//! otherwise. Calls rotate over enough memory that none finds its data in a cache, outputs are held against the
//! CPU's, and the speeds of plain copies come from the same run. So do those of nvCOMP, where the user has it.

mod copies;
mod decode;
pub(super) mod delta;
mod encode;
pub(super) mod energy;
mod host;
mod nvcomp;
mod pages;
mod real;
mod repeat;
mod rig;
mod show;
mod weights;

use std::io::Write;

use anyhow::Result;
use indicatif::ProgressBar;
use tenfold::{Effort, Goal};
use tenfold_cuda::{Device, Error};

use super::{BenchArgs, CudaPart, Report, progress};
use crate::load;
use decode::Subject;
use encode::Case;
pub use energy::NvmlError;
use nvcomp::Nvcomp;
pub use nvcomp::NvcompError;
use rig::Rig;
use show::{Figure, Figures};

/// Values of the tensors whose speed is stated.
const SIZES: [usize; 3] = [512 << 20, 64 << 20, 16 << 20];
/// The rate whose speed is stated.
const BITS: f64 = 2.5;
/// GB/s of decoding at those sizes and that rate.
const DECODE: [f64; 3] = [2000.0, 1300.0, 600.0];
/// What tables by class may cost: real tensors decode at this share of the speed of plain ones, or more.
const CLASSES: f64 = 0.8;
/// What calibrated weights may cost: they decode at this share of the speed of weights with importance, or more.
const CALIBRATED: f64 = 0.95;
/// GB/s of lossless decoding and encoding at the largest size, and the ratio.
const LOSSLESS: (f64, f64, f64) = (2070.0, 1400.0, 1.51);
/// GB/s of encoding with 8 states at the two larger sizes.
const BALANCED: [f64; 2] = [300.0, 60.0];
/// GB/s of encoding without a trellis at the largest size.
const FAST: f64 = 700.0;
/// Tensors of a file that are measured, the largest ones.
const TENSORS: usize = 3;
/// Bytes that calls rotate over: several times the largest cache of any device.
const ROTATE: usize = 512 << 20;

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    // First of all: a path that is wrong should not show after minutes.
    let nvcomp = args.nvcomp.as_deref().map(Nvcomp::open).transpose()?;
    let rig = Rig::new(Device::open(args.asked.device.unwrap_or(0))?, args.repeats(), ROTATE)?;
    measure(&rig, nvcomp.as_ref(), args, report, out)
}

/// Measures on a device, whichever that is.
fn measure(
    rig: &Rig,
    nvcomp: Option<&Nvcomp>,
    args: &BenchArgs,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    report.origin.machine.device = Some(describe(&rig.device));
    let mut run = Run::new(rig, nvcomp, args, report);
    let copied = if args.quick { 64 << 20 } else { 1 << 30 };
    run.step("copies");
    let copies = copies::measure(rig, copied, &mut run.figures)?;
    if args.has_part(CudaPart::Decode) {
        run.decode_gaussian()?;
        run.decode_real()?;
    }
    if args.has_part(CudaPart::Weights) {
        run.decode_weights()?;
    }
    if args.has_part(CudaPart::Encode) {
        run.encode()?;
    }
    if args.has_part(CudaPart::Pages) {
        run.pages()?;
    }
    if args.has_part(CudaPart::Host) {
        run.send_from_host(copies.link)?;
    }
    // Last, so that whatever becomes of it the table has the rest.
    let peer = run.compare();
    run.bar.finish_and_clear();
    run.figures.print(out)?;
    if nvcomp.is_none() {
        writeln!(out, "{}", nvcomp::HOW)?;
    }
    peer
}

/// One run of the bench.
struct Run<'a> {
    rig: &'a Rig,
    nvcomp: Option<&'a Nvcomp>,
    args: &'a BenchArgs,
    sizes: Vec<usize>,
    rates: Vec<f64>,
    bar: ProgressBar,
    figures: Figures<'a>,
}

impl<'a> Run<'a> {
    fn new(rig: &'a Rig, nvcomp: Option<&'a Nvcomp>, args: &'a BenchArgs, report: &'a mut Report) -> Run<'a> {
        let own = if args.quick { &SIZES[2..] } else { &SIZES[..] };
        let sizes = if args.sizes.is_empty() { own.to_vec() } else { args.sizes.clone() };
        let rates = args.bits_or(&[BITS]);
        let coded = rates.len() * (args.efforts.len() * 2 + 1) + 2;
        let real = args.files.len() * TENSORS * rates.len();
        let peer = nvcomp.map_or(0, |_| nvcomp::settings());
        let bar = progress::bar(4 + sizes.len() * (coded + real + peer), args.quiet);
        Run { rig, nvcomp, args, sizes, rates, bar, figures: Figures::new(report) }
    }

    fn step(&self, what: &str) {
        self.bar.inc(1);
        self.bar.set_message(what.to_string());
    }

    /// Each size with each rate.
    fn cases(&self) -> Vec<(usize, f64)> {
        self.sizes.iter().flat_map(|&size| self.rates.iter().map(move |&bits| (size, bits))).collect()
    }

    fn decode_gaussian(&mut self) -> Result<()> {
        let threads = self.args.threads;
        for (size, bits) in self.cases() {
            // What a decoder does for a scalar quantiser it does for a trellis too, and one exclusive-or more.
            for &effort in self.args.efforts.iter().filter(|&&e| e != Effort::Fast) {
                self.step(&format!("decoding {size} values at {bits} bits"));
                let subject = Subject::gaussian(size, Goal::Bits(bits), effort, threads)?;
                self.decode(&subject, at_stated(size, bits).map(|i| DECODE[i]))?;
            }
        }
        for size in self.sizes.clone() {
            self.step(&format!("decoding {size} values, lossless"));
            let subject = Subject::gaussian(size, Goal::Lossless, Effort::Balanced, threads)?;
            let stated = size == SIZES[0];
            self.decode(&subject, stated.then_some(LOSSLESS.0))?;
            if stated {
                let what = format!("lossless ratio, bf16 N(0, 0.02), {size} values");
                self.figures.at_least(what, subject.ratio(), LOSSLESS.2);
            }
        }
        Ok(())
    }

    fn decode_real(&mut self) -> Result<()> {
        for path in &self.args.files {
            for named in real::largest(load::floats(path, real::LEAST)?, TENSORS) {
                for (size, bits) in self.cases() {
                    self.step(&format!("decoding {}", named.name));
                    for subject in real::subjects(&named, size, bits, self.args.threads)? {
                        self.decode(&subject, at_stated(size, bits).map(|i| CLASSES * DECODE[i]))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same weights as three blobs of a rate, of which the calibrated one is transposed: handed on like that, and put back.
    fn decode_weights(&mut self) -> Result<()> {
        for (size, bits) in self.cases() {
            self.step(&format!("decoding {size} weights at {bits} bits"));
            let mut speeds = Vec::new();
            for subject in weights::subjects(size, bits, self.args.threads)? {
                speeds.push(self.decode(&subject, None)?);
            }
            if let [_, Some(importance), Some(calibrated), _] = speeds[..] {
                let what =
                    format!("calibrated weights over those with importance, {size} values, {bits} bits");
                self.figures.at_least(what, calibrated / importance, CALIBRATED);
            }
        }
        Ok(())
    }

    /// Measures and keeps one decoding, with checksums, which a bar is for, and without. GB/s with them, if there was room.
    fn decode(&mut self, subject: &Subject, least: Option<f64>) -> Result<Option<f64>> {
        let mut speed = None;
        for (what, checksums, least) in [("decode", true, least), ("decode without checksums", false, None)] {
            let done = decode::measure(self.rig, subject, checksums)
                .and_then(|times| self.figures.keep(Figure { what, subject: subject.into(), times, least }));
            let case = format!("{what}, {}, {} values", subject.name, subject.values);
            let found = self.unless_full(case, done)?;
            speed = speed.or(found.filter(|_| checksums));
        }
        Ok(speed)
    }

    /// A device too small for a case is no failure.
    fn unless_full<T>(&mut self, what: String, done: Result<T>) -> Result<Option<T>> {
        match done {
            Err(error) if matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. })) => {
                self.figures.note(format!("{what}: left out: {error}"));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    fn encode(&mut self) -> Result<()> {
        let mut cases = Vec::new();
        for (size, bits) in self.cases() {
            for &effort in &self.args.efforts {
                let least = at_stated(size, bits).and_then(|i| match effort {
                    Effort::Fast => (i == 0).then_some(FAST),
                    Effort::Balanced => BALANCED.get(i).copied(),
                    Effort::Best => None,
                });
                cases.push(Case { size, goal: Goal::Bits(bits), effort, least });
            }
        }
        for &size in &self.sizes {
            let least = (size == SIZES[0]).then_some(LOSSLESS.1);
            cases.push(Case { size, goal: Goal::Lossless, effort: Effort::Balanced, least });
        }
        for case in cases {
            self.step(&format!("{}, {} values", case.name(), case.size));
            encode::measure(self.rig, &case, self.args.threads, &mut self.figures)?;
        }
        Ok(())
    }

    /// Pages of a cache, behind a basis of all columns' directions and behind one of half as many.
    fn pages(&mut self) -> Result<()> {
        let case = pages::Case::new(self.sizes.iter().copied().max().unwrap_or(0));
        for rank in [case.columns, case.columns / 2] {
            self.step(&format!("{} pages behind a basis of {rank} vectors", case.pages));
            let done = pages::measure(self.rig, case, rank, &self.args.efforts, &mut self.figures);
            // Without cuBLAS there are no bases.
            match done {
                Err(error) if matches!(error.downcast_ref(), Some(Error::NoDevice(_))) => {
                    self.figures.note(format!("pages: left out: {error}"));
                }
                other => {
                    self.unless_full("pages".to_string(), other)?;
                }
            }
        }
        Ok(())
    }

    /// The largest tensor.
    fn send_from_host(&mut self, link: f64) -> Result<()> {
        self.step("a blob of the host");
        let size = self.sizes.iter().copied().max().unwrap_or(0);
        let goal = Goal::Bits(self.rates[0]);
        let done = host::measure(self.rig, size, goal, self.args.threads, link, &mut self.figures);
        self.unless_full("decode from pinned host memory".to_string(), done)?;
        Ok(())
    }

    /// nvCOMP on the tensors of the lossless figures.
    fn compare(&mut self) -> Result<()> {
        let Some(library) = self.nvcomp else {
            return Ok(());
        };
        self.figures.note(format!("{}: of all its settings the table has the fastest", library.describe()));
        for &size in &self.sizes {
            let step = |what: String| {
                self.bar.inc(1);
                self.bar.set_message(what);
            };
            nvcomp::measure(self.rig, library, size, &mut self.figures, &step)?;
        }
        Ok(())
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
