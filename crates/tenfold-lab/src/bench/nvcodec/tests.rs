//! The whole bench on the emulator of kernels, with engines that are the software decoder.

use anyhow::Result;
use tenfold::DecodeOptions;
use tenfold_cuda::{Buffer, Device, Stream as CudaStream};

use super::engines::{Engines, Lanes};
use super::*;
use crate::bench::What;

/// Decodes on the host.
struct Software;

impl Lanes for Software {
    fn decode(&mut self, blob: &[u8], out: &Buffer) -> Result<()> {
        let tensor = tenfold_video::decode(blob, &DecodeOptions::default())?;
        Ok(out.write(&tensor.data, CudaStream::DEFAULT)?)
    }

    fn decode_in_turn(&mut self, blob: &[u8], outs: [&Buffer; 2], times: usize) -> Result<()> {
        outs.into_iter().cycle().take(times).try_for_each(|out| self.decode(blob, out))
    }
}

#[test]
fn streams_are_made_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = BenchArgs::new(What::Nvcodec);
    (args.quick, args.quiet, args.repeats) = (true, true, Some(1));
    // Two pictures of 1024²: less than the smallest stream that is stated.
    args.sizes = vec![1 << 21];
    args.make = Some(folder.path().into());
    let mut text = Vec::new();
    let mut report = Report::new(&args);
    run(&args, &mut report, &mut text).unwrap();
    let list = streams::list(folder.path()).unwrap();
    assert_eq!(list.len(), 3);
    assert!(list.iter().all(|stream| stream.crc32 != 0 && stream.bits > 1.0));
    assert!(list.iter().filter(|stream| is_stated(stream)).count() == 1, "{list:?}");

    args.make = None;
    let device = Device::emulated(8 << 30);
    let engines = Engines::new(2, |_, _| Ok(Box::new(Software)));
    let trace = Trace::new();
    let mut bench = Run { args: &args, folder: folder.path(), device, engines, trace, report: &mut report };
    for stream in list.iter().filter(|stream| is_stated(stream)) {
        let mut table = Table::new(&["stream"]);
        bench.speed(stream, &mut table).unwrap();
        // Another sum than the list's is noticed.
        let other = Stream { crc32: 1, ..stream.clone() };
        assert!(bench.speed(&other, &mut table).unwrap_err().to_string().contains("other values"));
    }
    let small = list.iter().find(|stream| stream.qp.is_some()).unwrap();
    bench.latency(small, &mut Table::new(&["stream"])).unwrap();
    let rows = &report.rows;
    assert_eq!(rows.iter().filter(|row| row["what"] == "speed").count(), 2);
    assert!(rows.iter().all(|row| row["m_values_s"].as_f64() > Some(0.0) || row["ms"].as_f64() > Some(0.0)));
    assert_eq!(report.checks.len(), 1, "the bar of one engine");
}

#[test]
fn what_hides_is_counted() {
    /// Waits so many milliseconds.
    struct Sleeps(u64);
    impl Work for Sleeps {
        fn name(&self) -> &'static str {
            "sleeps"
        }
        fn run(&mut self) -> Result<()> {
            std::thread::sleep(std::time::Duration::from_millis(self.0));
            Ok(())
        }
    }
    let device = Device::emulated(1 << 30);
    let mut products = Products::small(&device).unwrap();
    let trace = Trace::new();
    let found = overlap::measure(&mut Sleeps(20), &mut products, 1, &trace).unwrap();
    assert!(found.alone >= 0.02 && found.serial >= found.best && found.parallel >= found.best * 0.5);
    assert!(found.rounds >= 1 && found.share.is_finite() && found.slowdown.is_finite());
}
