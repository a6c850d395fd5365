//! `tenfold bench`.

use tenfold::Effort;
use tenfold_eval::bench::{self, CudaPart, What};

use super::engine;
use crate::args::{BenchArg, BenchArgs, EngineArg, PartArg};
use crate::exit::{self, Usage};
use crate::print::Stdout;

pub fn run(args: BenchArgs, quiet: bool) -> anyhow::Result<u8> {
    let report = bench::run(&options(&args, quiet)?, &mut Stdout)?;
    let missed = report.checks.iter().filter(|check| !check.pass).count();
    if args.check && missed > 0 {
        eprintln!("tenfold: {missed} of {} bars missed", report.checks.len());
        return Ok(exit::DATA);
    }
    Ok(exit::SUCCESS)
}

fn options(args: &BenchArgs, quiet: bool) -> anyhow::Result<bench::BenchArgs> {
    let what = match args.what {
        BenchArg::Gap => What::Gap,
        BenchArg::Files => What::Files,
        BenchArg::Rate => What::Rate,
        BenchArg::Lossless => What::Lossless,
        BenchArg::Speed => What::Speed,
        BenchArg::Pages => What::Pages,
        BenchArg::Cuda => What::Cuda,
    };
    match (what, args.files.is_empty()) {
        (What::Files, true) => return Err(Usage("name at least one safetensors file".into()).into()),
        (What::Files | What::Pages | What::Cuda, false) | (_, true) => {}
        (_, false) => {
            return Err(Usage("only `bench files`, `bench pages` and `bench cuda` take files".into()).into());
        }
    }
    if what != What::Cuda && args.size.len() > 1 {
        return Err(Usage("only `bench cuda` takes several sizes".into()).into());
    }
    if what != What::Cuda && args.nvcomp.is_some() {
        return Err(Usage("only `bench cuda` takes --nvcomp".into()).into());
    }
    if what != What::Cuda && !args.part.is_empty() {
        return Err(Usage("only `bench cuda` takes --part".into()).into());
    }
    let mut options = bench::BenchArgs::new(what);
    options.files = args.files.clone();
    options.bits = args.bits.clone();
    if !args.effort.is_empty() {
        options.efforts = args.effort.iter().copied().map(Effort::from).collect();
    }
    match what {
        // Always on a device, whichever engine the others would take.
        What::Cuda => options.device = args.engine.device.unwrap_or(0),
        What::Speed | What::Lossless if args.engine.engine == EngineArg::Cuda => {
            let message =
                format!("`bench {}` times the CPU; `tenfold bench cuda` times a device", what.name());
            return Err(Usage(message).into());
        }
        _ => options.engine = engine::writer(&args.engine)?,
    }
    if !args.part.is_empty() {
        options.parts = args.part.iter().copied().map(part).collect();
    }
    options.nvcomp = args.nvcomp.clone();
    options.sizes = args.size.iter().map(|&n| n as usize).collect();
    options.threads = args.threads;
    if let Some(repeats) = args.repeats {
        options.repeats = repeats as usize;
    }
    options.peers = !args.no_peers;
    options.quick = args.quick;
    options.quiet = quiet;
    options.json = args.json.clone();
    Ok(options)
}

fn part(arg: PartArg) -> CudaPart {
    match arg {
        PartArg::Decode => CudaPart::Decode,
        PartArg::Encode => CudaPart::Encode,
        PartArg::Pages => CudaPart::Pages,
        PartArg::Host => CudaPart::Host,
    }
}
