//! The video engines of a GPU: values a second into a bf16 tensor on the device, the latency of small pictures, how much hides behind
//! products of matrices, energy, and the way through FFmpeg beside it. Streams are made beforehand (`--make`), so that the machine
//! with the GPU needs no encoder.

mod energy;
mod engines;
#[cfg(feature = "video")]
mod ffmpeg;
#[cfg(feature = "video")]
mod make;
mod nvdec;
mod overlap;
mod streams;
mod trace;
mod work;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tenfold_cuda::{Buffer, Device};

use self::energy::Energy;
use self::engines::{Engines, Pictures};
use self::overlap::Overlap;
use self::streams::Stream;
use self::trace::Trace;
use self::work::{Copies, Native, Products, Work, checksum_of_parts};
use super::cuda::NvmlError;
use super::cuda::energy::Nvml;
use super::report::number;
use super::table::Table;
use super::{BenchArgs, Report};
use crate::metrics::median;

/// Values of the tensor that is decoded.
const VALUES: usize = 1 << 28;
/// M values a second of one engine and of seven: of fast streams, and of others.
const FAST: [f64; 2] = [560.0, 3900.0];
const MEDIUM: [f64; 2] = [450.0, 3100.0];
/// Share of the possible that must hide, and how much slower products may get.
const SHARE: f64 = 0.9;
const SLOWDOWN: f64 = 0.07;
/// How much faster than the way through FFmpeg.
#[cfg(feature = "video")]
const OVER_FFMPEG: f64 = 8.0;
/// Calls of which each is submitted before the one before it is waited for.
const IN_TURN: usize = 6;
/// Calls whose latency counts.
const CALLS: usize = 200;

/// Makes streams, or measures with those of a folder.
pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    if let Some(folder) = &args.make {
        return make_streams(args, folder, out);
    }
    let folder = args.files.first().context("name the folder of streams")?;
    let list = streams::list(folder)?;
    let number = args.asked.device.unwrap_or(0);
    let device = Device::open(number)?;
    let name = device.properties().name.clone();
    report.origin.machine.device = Some(name.clone());
    let meter = Nvml::open(number, &name);
    let engines = nvdec::open(&device)?;
    let mut run = Run { args, folder, device, engines, trace: Trace::new(), report };
    let done = run.measure(&list, meter, out);
    // What was measured is kept, whatever came after.
    if let Some(path) = &args.trace {
        run.trace.save(path)?;
    }
    done
}

#[cfg(feature = "video")]
fn make_streams(args: &BenchArgs, folder: &Path, out: &mut dyn Write) -> Result<()> {
    make::run(args, folder, out)
}

#[cfg(not(feature = "video"))]
fn make_streams(_: &BenchArgs, _: &Path, _: &mut dyn Write) -> Result<()> {
    anyhow::bail!("this tenfold-lab has no encoders: build it with `--features video` to make streams")
}

struct Run<'a> {
    args: &'a BenchArgs,
    folder: &'a Path,
    device: Device,
    engines: Engines,
    trace: Trace,
    report: &'a mut Report,
}

/// The stated figure: H.265 of 1024² at about 2.75 bits.
fn is_stated(stream: &Stream) -> bool {
    stream.standard == "H.265"
        && stream.side == 1024
        && (stream.bits - 2.75).abs() < 0.1
        && stream.qp.is_none()
}

fn is_fast(stream: &Stream) -> bool {
    stream.effort != "medium"
}

impl Run<'_> {
    fn measure(
        &mut self,
        list: &[Stream],
        meter: Result<Nvml, NvmlError>,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.report.note(format!("{} video engines decode", self.engines.count()));
        // What has a bar first: whoever has little time stops after that.
        let (stated, other): (Vec<&Stream>, Vec<&Stream>) =
            list.iter().filter(|stream| stream.qp.is_none()).partition(|stream| is_stated(stream));
        self.speeds(&stated, out)?;
        let mut table = Table::new(&["latency", "one picture, ms", "95 %", "all engines, ms a picture"]);
        for stream in list.iter().filter(|stream| stream.qp.is_some()) {
            self.latency(stream, &mut table)?;
        }
        table.print(out)?;
        if let Some(stream) = stated.iter().find(|stream| is_fast(stream)) {
            self.beside_products(stream, meter, out)?;
            self.beside_ffmpeg(stream, out)?;
        }
        self.speeds(&other, out)
    }

    fn speeds(&mut self, streams: &[&Stream], out: &mut dyn Write) -> Result<()> {
        let mut table =
            Table::new(&["stream", "bits", "engines", "one call, ms", "in turn, ms", "M values/s"]);
        for stream in streams {
            self.speed(stream, &mut table)?;
        }
        Ok(table.print(out)?)
    }

    fn values(&self) -> usize {
        self.args.size_or(if self.args.quick { VALUES / 16 } else { VALUES })
    }

    /// Pictures of a stream until there are about so many values, for so many engines.
    fn pictures(&self, stream: &Stream, values: usize, lanes: usize) -> Result<Pictures> {
        let blob = streams::read(self.folder, stream)?;
        let times = (values / stream.values().max(1)).max(1);
        let blob = streams::repeat(&blob, times)?;
        Pictures::new(&self.engines, &self.device, blob, lanes)
            .with_context(|| format!("{}, {lanes} engines", stream.describe()))
    }

    /// Each number of engines.
    fn speed(&mut self, stream: &Stream, table: &mut Table) -> Result<()> {
        let most = self.engines.count();
        // Of what is no stated figure the ends are enough.
        let counts: Vec<usize> = if is_stated(stream) { (1..=most).collect() } else { vec![1, most] };
        for lanes in counts {
            // As long for every number of engines.
            let mut pictures = self.pictures(stream, self.values() * lanes / most, lanes)?;
            let second = Buffer::new(&self.device, pictures.out().slice().len)?;
            let parts = pictures.values() / stream.values();
            pictures.run()?;
            let sum = checksum_of_parts(pictures.out(), parts)?;
            ensure!(
                sum == stream.crc32,
                "{} decodes to other values than the software decoder gave",
                stream.describe()
            );
            let (mut times, mut calls) = (Vec::new(), Vec::new());
            for _ in 0..self.args.repeats() {
                let name = format!("{}, {lanes} engines", stream.describe());
                calls.push(self.trace.span("one call", &name, || pictures.run())?.1);
                let turns = || pictures.run_in_turn(&second, IN_TURN);
                times.push(self.trace.span("speed", &name, turns)?.1 / IN_TURN as f64);
            }
            let sum = checksum_of_parts(&second, parts)?;
            ensure!(sum == stream.crc32, "{} decodes to other values in turn", stream.describe());
            let (seconds, call) = (median(&times), median(&calls));
            let speed = pictures.values() as f64 / seconds / 1e6;
            table.row([
                stream.describe(),
                format!("{:.2}", stream.bits),
                lanes.to_string(),
                number(call * 1e3),
                number(seconds * 1e3),
                number(speed),
            ]);
            self.report.row(&json!({
                "what": "speed", "stream": stream, "engines": lanes, "values": pictures.values(),
                "seconds": times, "one_call_s": calls, "m_values_s": speed,
            }))?;
            let bars = if is_fast(stream) { FAST } else { MEDIUM };
            let bar = match lanes {
                1 => Some(bars[0]),
                7 => Some(bars[1]),
                _ => None,
            };
            if let Some(bar) = bar.filter(|_| is_stated(stream)) {
                let what = format!("{}, {lanes} engines, M values/s", stream.describe());
                self.report.at_least(what, speed, bar);
            }
        }
        Ok(())
    }

    /// Calls for one picture, and many at once.
    fn latency(&mut self, stream: &Stream, table: &mut Table) -> Result<()> {
        let blob = streams::first(&streams::read(self.folder, stream)?)?;
        let most = self.engines.count();
        let mut one = Pictures::new(&self.engines, &self.device, blob, 1)?;
        for _ in 0..10 {
            one.run()?;
        }
        let mut times = Vec::new();
        for _ in 0..if self.args.quick { CALLS / 10 } else { CALLS } {
            let start = Instant::now();
            one.run()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let mut all = self.pictures(stream, 512 * stream.side * stream.side, most)?;
        all.run()?;
        let mut many = Vec::new();
        for _ in 0..self.args.repeats() {
            let (_, seconds) = self.trace.span("latency", &stream.describe(), || all.run())?;
            many.push(seconds * 1e3 / (all.values() / (stream.side * stream.side)) as f64);
        }
        times.sort_by(f64::total_cmp);
        let (middle, late) = (median(&times), times[times.len() * 95 / 100]);
        let each = median(&many);
        table.row([stream.describe(), number(middle), number(late), number(each)]);
        self.report.row(&json!({
            "what": "latency", "stream": stream, "ms": middle, "ms_95": late, "engines": most, "ms_of_many": each,
        }))
    }

    /// Overlap with products, and energy: the engines, the native decoder, plain copies.
    fn beside_products(
        &mut self,
        stream: &Stream,
        meter: Result<Nvml, NvmlError>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let values = self.values();
        let mut products = Products::new(&self.device)?;
        let mut works: Vec<(Box<dyn Work>, usize)> = Vec::new();
        let pictures = self.pictures(stream, values, self.engines.count())?;
        let decoded = pictures.values();
        works.push((Box::new(pictures), decoded));
        // Of what a GPU does at a hundred times the speed there must be more, so that the clock sees it.
        let many = values * 16;
        works.push((Box::new(Native::new(&self.device, many, stream.bits, self.args.threads)?), many));
        works.push((Box::new(Copies::on_device(&self.device, 2 * many)?), many));
        works.push((Box::new(Copies::to_device(&self.device, 2 * values)?), values));
        let mut table = Table::new(&[
            "beside products",
            "alone, ms",
            "products",
            "serial",
            "parallel",
            "best",
            "hidden",
            "slower",
        ]);
        for (i, (work, _)) in works.iter_mut().enumerate() {
            let found = overlap::measure(&mut **work, &mut products, self.args.repeats(), &self.trace)?;
            table.row(cells(&found));
            self.report.row(&json!({"what": "overlap", "found": found, "tflops": products.rate()}))?;
            if i == 0 {
                self.report.at_least("share of the possible overlap, all engines", found.share, SHARE);
                self.report.at_most("products slowed by all engines", found.slowdown, SLOWDOWN);
            }
        }
        table.print(out)?;
        match meter {
            Err(why) => self.report.note(format!("energy: not available: {why}")),
            Ok(meter) => {
                let mut table = Table::new(&["energy", "watts", "idle", "nJ a value", "above idle"]);
                let idle = energy::idle(&meter, self.args.quick)?;
                for (work, values) in &mut works {
                    let found = energy::measure(&meter, &mut **work, *values, idle, self.args.quick)?;
                    let Energy { work, watts, idle_watts, nanojoules, nanojoules_above_idle } = &found;
                    let numbers = [watts, idle_watts, nanojoules, nanojoules_above_idle].map(|v| number(*v));
                    table.row([vec![(*work).to_string()], numbers.to_vec()].concat());
                    self.report.row(&json!({"what": "energy", "found": found}))?;
                }
                table.print(out)?;
            }
        }
        Ok(())
    }

    #[cfg(feature = "video")]
    fn beside_ffmpeg(&mut self, stream: &Stream, out: &mut dyn Write) -> Result<()> {
        let blob = streams::repeat(&streams::read(self.folder, stream)?, 8)?;
        let theirs = match ffmpeg::seconds(&blob, stream, self.args.repeats()) {
            Ok(seconds) => seconds,
            Err(error) => {
                self.report.note(format!("FFmpeg's CUDA decoder: not available: {error}"));
                return Ok(());
            }
        };
        let mut pictures = Pictures::new(&self.engines, &self.device, blob, self.engines.count())?;
        pictures.run()?;
        let mut ours = Vec::new();
        for _ in 0..self.args.repeats() {
            ours.push(self.trace.span("beside FFmpeg", "engines", || pictures.run())?.1);
        }
        let ours = median(&ours);
        let mut table = Table::new(&["the same pictures", "ms"]);
        table.row(["through FFmpeg's CUDA decoder, by way of the host".to_string(), number(theirs * 1e3)]);
        table.row(["into a tensor on the device".to_string(), number(ours * 1e3)]);
        table.print(out)?;
        self.report.row(&json!({"what": "ffmpeg", "stream": stream, "theirs_s": theirs, "ours_s": ours}))?;
        self.report.at_least("times as fast as through FFmpeg", theirs / ours, OVER_FFMPEG);
        Ok(())
    }

    #[cfg(not(feature = "video"))]
    fn beside_ffmpeg(&mut self, _: &Stream, _: &mut dyn Write) -> Result<()> {
        self.report.note(
            "FFmpeg's CUDA decoder: not available: this tenfold-lab is built without the feature `video`",
        );
        Ok(())
    }
}

fn cells(found: &Overlap) -> Vec<String> {
    let ms = |seconds: f64| number(seconds * 1e3);
    let Overlap { work, alone, products, serial, parallel, best, share, slowdown, .. } = found;
    let times = [alone, products, serial, parallel, best].map(|s| ms(*s));
    let shares = [share, slowdown].map(|s| format!("{:.1} %", s * 100.0));
    [vec![(*work).to_string()], times.to_vec(), shares.to_vec()].concat()
}

#[cfg(all(test, feature = "emulator", feature = "video"))]
mod tests;
