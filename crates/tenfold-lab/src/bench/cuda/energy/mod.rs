//! Energy of encoding and decoding on a device: pJ for each bit of the uncompressed tensor, by the device's own counter,
//! less what it takes idle.

mod nvml;

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use tenfold::{DecodeOptions, Dtype, Effort, Goal};
use tenfold_cuda::{DecodeSettings, Device, Order, lane_values};

use super::decode::{gaussian, options};
use super::rig::{Decoding, Encoding, Rig, Times, WARM};
use super::{BITS, ROTATE, SIZES, describe};
use crate::bench::table::Table;
use crate::bench::{BenchArgs, Report};
pub(in crate::bench) use nvml::Nvml;
pub use nvml::NvmlError;

/// Seconds of each measurement: the counter moves some ten times a second.
const SECONDS: f64 = 5.0;
const QUICK: f64 = 1.5;

/// Says how many millijoules a device has taken so far.
pub(in crate::bench) trait Meter {
    fn millijoules(&self) -> Result<u64>;
}

#[derive(Serialize)]
struct Row {
    what: String,
    values: usize,
    bits: f64,
    calls: usize,
    seconds: f64,
    joules: f64,
    idle_watts: f64,
    /// Of the uncompressed tensor.
    pj_per_bit: f64,
    /// The same with what the device takes idle.
    pj_per_bit_gross: f64,
    gigabytes_per_second: f64,
}

pub(in crate::bench) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let number = args.asked.device.unwrap_or(0);
    let device = Device::open(number)?;
    let meter = Nvml::open(number, &device.properties().name)?;
    let rig = Rig::new(device, args.repeats(), ROTATE)?;
    let seconds = Duration::from_secs_f64(if args.quick { QUICK } else { SECONDS });
    measure(&rig, &meter, seconds, args, report, out)
}

fn measure(
    rig: &Rig,
    meter: &dyn Meter,
    each: Duration,
    args: &BenchArgs,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<()> {
    report.origin.machine.device = Some(describe(&rig.device));
    let size = args.size_or(SIZES[usize::from(args.quick)]);
    let idle = idle_watts(meter, each)?;
    report.note(format!("idle, with a context: {idle:.1} W; it is subtracted"));
    let mut table = Table::new(&["what", "bits", "GB/s", "W above idle", "pJ/bit", "with idle"]);
    for bits in args.bits_or(&[BITS]) {
        for &effort in &args.efforts {
            for row in code(rig, meter, each, (size, bits, effort), args.threads, idle)? {
                let above = row.joules / row.seconds - idle;
                table.row(vec![
                    row.what.clone(),
                    format!("{:.2}", row.bits),
                    format!("{:.0}", row.gigabytes_per_second),
                    format!("{above:.0}"),
                    format!("{:.1}", row.pj_per_bit),
                    format!("{:.1}", row.pj_per_bit_gross),
                ]);
                report.row(&row)?;
            }
        }
    }
    table.print(out)?;
    Ok(())
}

/// Power of a device that does nothing.
fn idle_watts(meter: &dyn Meter, each: Duration) -> Result<f64> {
    let (start, before) = (Instant::now(), meter.millijoules()?);
    thread::sleep(each);
    Ok((meter.millijoules()? - before) as f64 * 1e-3 / start.elapsed().as_secs_f64())
}

/// Encodes a tensor over and over, then decodes its blob over and over.
fn code(
    rig: &Rig,
    meter: &dyn Meter,
    each: Duration,
    (size, bits, effort): (usize, f64, Effort),
    threads: usize,
    idle: f64,
) -> Result<[Row; 2]> {
    let tensor = gaussian(size, lane_values(size as u64))?;
    let times = size.div_ceil(tensor.view()?.len()).max(1);
    let encoding = Encoding::new(rig, &tensor, times, options(size, Goal::Bits(bits), effort, threads))?;
    let encode = spend(meter, each, rig, || encoding.time())?;
    let blob = encoding.blob()?;
    let info = tenfold::inspect(&blob)?;
    // Some hundred megabytes of inputs that decoding has no use for.
    drop(encoding);
    let rows = tensor.shape[0];
    let once = tenfold::decode_rows(&blob, 0..rows, &DecodeOptions::default().with_threads(threads))?;
    ensure!(once.shape == tensor.shape, "the blob has another shape");
    let bytes = tensor.data.len() * times;
    let decoding = Decoding::new(
        rig,
        &blob,
        (Dtype::Bf16, Order::Tensor, bytes),
        DecodeSettings::default().with_checksums(true),
    )?;
    let decode = spend(meter, each, rig, || decoding.time())?;
    let row = |what: &str, spent: Spent| {
        let plain = bytes as f64 * 8.0 * spent.calls as f64;
        let pj = |joules: f64| joules / plain * 1e12;
        Row {
            what: format!("{what} {}", effort.name()),
            values: bytes / 2,
            bits: info.bits_per_value(),
            calls: spent.calls,
            seconds: spent.seconds,
            joules: spent.joules,
            idle_watts: idle,
            pj_per_bit: pj(spent.joules - idle * spent.seconds),
            pj_per_bit_gross: pj(spent.joules),
            gigabytes_per_second: plain / 8e9 / spent.seconds,
        }
    };
    Ok([row("encode", encode), row("decode", decode)])
}

struct Spent {
    calls: usize,
    seconds: f64,
    joules: f64,
}

/// Repeats calls until they have taken long enough, and reads the counter before and after.
fn spend(
    meter: &dyn Meter,
    each: Duration,
    rig: &Rig,
    mut calls: impl FnMut() -> Result<Times>,
) -> Result<Spent> {
    calls()?;
    let (start, before) = (Instant::now(), meter.millijoules()?);
    let mut count = 0;
    while start.elapsed() < each {
        count += calls()?.0.len() + WARM.min(rig.repeats);
    }
    let joules = (meter.millijoules()? - before) as f64 * 1e-3;
    Ok(Spent { calls: count, seconds: start.elapsed().as_secs_f64(), joules })
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::bench::What;

    /// A device that takes 100 W whatever it does.
    struct Steady(Instant);

    impl Meter for Steady {
        fn millijoules(&self) -> Result<u64> {
            Ok((self.0.elapsed().as_secs_f64() * 1e5) as u64)
        }
    }

    #[test]
    fn what_a_device_takes_idle_is_subtracted() {
        let mut args = BenchArgs::new(What::Energy);
        (args.quick, args.quiet) = (true, true);
        (args.sizes, args.efforts) = (vec![1 << 14], vec![Effort::Fast]);
        let rig = Rig::new(Device::emulated(1 << 30), 1, 0).unwrap();
        let (mut report, mut out) = (Report::new(&args), Vec::new());
        let meter = Steady(Instant::now());
        measure(&rig, &meter, Duration::from_millis(300), &args, &mut report, &mut out).unwrap();
        assert_eq!(report.rows.len(), 2);
        for row in &report.rows {
            let number = |name: &str| row[name].as_f64().unwrap();
            assert!((number("idle_watts") - 100.0).abs() < 2.0, "{row}");
            let gross = 100.0 * number("seconds") / (number("values") * 16.0 * number("calls")) * 1e12;
            assert!((number("pj_per_bit_gross") / gross - 1.0).abs() < 0.02, "{row}");
            // Nothing is left of it.
            assert!(number("pj_per_bit").abs() < 0.03 * gross, "{row}");
        }
    }
}
