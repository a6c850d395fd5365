//! `tenfold compress`.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tenfold::engine::SharedEngine;
use tenfold::prepare::Preparation;
use tenfold::{Effort, Goal};
use tenfold_archive::{
    Alloc, Calibration, CompressOptions, Importance, PartReport, Recipe, Report, Timeline,
};
use tenfold_video::{Chroma, Costs, Quality, Standard, Video, VideoOptions};

use super::{engine, hint_force};
use crate::args::{CodecArg, CompressArgs, EngineArg, option};
use crate::exit::{self, Usage};
use crate::progress::Bar;
use crate::{print, trace};

pub fn run(args: CompressArgs, quiet: bool) -> anyhow::Result<u8> {
    let costs = Arc::new(Costs::default());
    let options = options(&args, &costs)?;
    let start = Instant::now();
    let bar = Bar::new(quiet);
    if let Some(part) = args.part {
        let report = tenfold_archive::compress_part(&args.input, &args.output, part, &options, &bar);
        drop(bar);
        let traced = trace::write(args.trace.as_deref(), &options.timeline);
        let report = report?;
        traced?;
        return show_part(&report, &args, &options.timeline, quiet);
    }
    let work = if args.join { tenfold_archive::join_parts } else { tenfold_archive::compress };
    let result = work(&args.input, &args.output, &options, &bar);
    drop(bar);
    let traced = trace::write(args.trace.as_deref(), &options.timeline);
    let report = hint_force(result, &args.output, args.force)?;
    traced?;
    if !quiet {
        for path in &report.left_out {
            eprintln!("tenfold: note: left out {}, which is not part of the model", path.display());
        }
    }
    if args.json {
        print::json(&WithCosts {
            report: &report,
            summary: trace::json(&options.timeline.summary()),
            pictures: args.pictures.hardware.map(|_| PictureCosts::of(&costs)),
        })?;
    } else if !quiet {
        print::out(&summary(&report, start.elapsed().as_secs_f64()))?;
        print::out(&trace::text(args.trace.as_deref(), &options.timeline))?;
        if args.pictures.hardware.is_some() {
            print::out(&PictureCosts::of(&costs).line())?;
        }
    }
    Ok(exit::SUCCESS)
}

fn show_part(
    report: &PartReport,
    args: &CompressArgs,
    timeline: &Timeline,
    quiet: bool,
) -> anyhow::Result<u8> {
    if args.json {
        print::json(&WithSummary { report, summary: trace::json(&timeline.summary()) })?;
    } else if !quiet {
        print::out(&format!(
            "part {}: {} tensors, {} to {}{}\n",
            report.part,
            report.tensors,
            print::bytes(report.original_bytes),
            print::bytes(report.stored_bytes),
            if report.was_done { "; it was there already" } else { "" }
        ))?;
        print::out(&trace::text(args.trace.as_deref(), timeline))?;
    }
    Ok(exit::SUCCESS)
}

/// A part's report with what its stages did.
#[derive(Serialize)]
struct WithSummary<'a> {
    #[serde(flatten)]
    report: &'a PartReport,
    summary: Value,
}

/// A report with what its stages did, and what a decoder in hardware costs.
#[derive(Serialize)]
struct WithCosts<'a> {
    #[serde(flatten)]
    report: &'a Report,
    summary: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pictures: Option<PictureCosts>,
}

#[derive(Serialize)]
struct PictureCosts {
    padding: Option<f64>,
    chroma_bits: Option<f64>,
}

impl PictureCosts {
    fn of(costs: &Costs) -> PictureCosts {
        PictureCosts { padding: costs.padding(), chroma_bits: costs.chroma_bits() }
    }

    fn line(&self) -> String {
        let padding = self.padding.map_or("none".into(), |p| format!("{:.2} % of the samples", p * 100.0));
        let chroma = match self.chroma_bits {
            Some(bits) => format!("{bits:.4} bits a value"),
            None => "not measured: this encoder always codes it".into(),
        };
        format!("pictures for the hardware: padding {padding}, constant chroma {chroma}\n")
    }
}

fn options(args: &CompressArgs, costs: &Arc<Costs>) -> anyhow::Result<CompressOptions> {
    let mut options = CompressOptions::default();
    // A fixed quantiser replaces the goal: any size will do.
    options.goal = args.goal.goal.or(args.goal.is_fixed().then_some(Goal::MaxBytes(usize::MAX)));
    let lossless = options.goal == Some(Goal::Lossless);
    let bounded = options.goal.is_some_and(Goal::bounds_each_value);
    options.effort = args.effort.map(Effort::from);
    options.threads = args.threads.threads;
    options.alloc = args.alloc;
    options.include = args.include.clone();
    options.exclude = args.exclude.clone();
    options.recipe = args.recipe.as_deref().map(Recipe::read).transpose()?;
    options.overwrite = args.force;
    options.minor = args.format;
    if let Some(path) = &args.importance {
        if args.codec != CodecArg::Native || lossless || bounded {
            let message = "--importance needs tenfold's own lossy codec: leave out --codec, --lossless, --max-error and \
                           --round-bits";
            return Err(Usage(message.into()).into());
        }
        options.importance = Importance::read(path)?;
    }
    if let Some(path) = &args.calibration {
        if args.codec != CodecArg::Native || args.residual_bits.is_some() {
            let message =
                "--calibration needs tenfold's own lossy codec: leave out --codec and --residual-bits";
            return Err(Usage(message.into()).into());
        }
        options = options.with_calibration(Calibration::read(path)?);
    }
    if let Some(loss) = args.loss {
        if !matches!(args.alloc, Alloc::Equal | Alloc::Loss) {
            return Err(Usage("--loss shares bits by the loss: leave out --alloc".into()).into());
        }
        options = options.with_loss(loss);
    }
    if let Some(prepare) = &args.prepare {
        if prepare.is_asked() && bounded {
            let message =
                "--prepare cannot bound the error of each value: leave out --max-error and --round-bits";
            return Err(Usage(message.into()).into());
        }
        if *prepare == Preparation::Auto && args.codec != CodecArg::Native {
            let message = "--prepare auto needs tenfold's own codec: state transforms for pictures, or leave out --codec";
            return Err(Usage(message.into()).into());
        }
        options.prepare = prepare.clone();
    }
    if let Some(bits) = args.residual_bits {
        if args.codec != CodecArg::Native || args.engine.engine != EngineArg::Cpu || lossless {
            let message = "--residual-bits needs tenfold's own lossy codec on the CPU: leave out --codec, --engine and \
                           --lossless";
            return Err(Usage(message.into()).into());
        }
        options = options.with_residual(Goal::Bits(bits));
    }
    if options.goal.is_none()
        && options.loss.is_none()
        && !options.recipe.as_ref().is_some_and(Recipe::has_default)
    {
        let message = format!(
            "state one goal: {}; or a --recipe with a [default]; or, for pictures, --qp or --lossless-samples",
            Goal::NAMES.map(|goal| option(goal.name)).join(", ")
        );
        return Err(Usage(message).into());
    }
    options.engine = writer(args, costs)?;
    Ok(options)
}

/// The engine for the codec.
fn writer(args: &CompressArgs, costs: &Arc<Costs>) -> anyhow::Result<SharedEngine> {
    let standard = match args.codec {
        CodecArg::Native if args.goal.is_fixed() || !args.pictures.is_empty() => {
            let message = "--qp, --lossless-samples, --encoder, --depth, --scale, --hadamard, --chroma and --for are for \
                           pictures: choose --codec h264, h265 or av1";
            return Err(Usage(message.into()).into());
        }
        CodecArg::Native => return engine::writer(&args.engine),
        CodecArg::H264 => Standard::H264,
        CodecArg::H265 => Standard::H265,
        CodecArg::Av1 => Standard::Av1,
    };
    if args.engine.engine == EngineArg::Cuda {
        let message = "--engine cuda codes only tenfold's own codec: leave out --codec or --engine";
        return Err(Usage(message.into()).into());
    }
    engine::check(&args.engine)?;
    let mut video = VideoOptions::new(standard);
    video.encoder = args.pictures.encoder.clone();
    video.depth = args.pictures.depth;
    video.scaling = args.pictures.scale.unwrap_or_default();
    video.hadamard = args.pictures.hadamard;
    video.hardware = args.pictures.hardware.map(Into::into);
    video.chroma = args.pictures.chroma.then_some(Chroma::Constant);
    video.quality = match args.goal.qp {
        Some(qp) => Some(Quality::Qp(qp)),
        None => args.goal.lossless_samples.then_some(Quality::Lossless),
    };
    Ok(SharedEngine::new(Video::new(video).with_costs(costs.clone())))
}

fn summary(report: &Report, seconds: f64) -> String {
    let (part, all) = (&report.compressed, &report.total);
    let rate = all.original_bytes as f64 / seconds.max(1e-9);
    let loss = report
        .loss()
        .map_or(String::new(), |loss| format!("predicted rise of the loss: {loss:.4} nats a token\n"));
    format!(
        "{} of {} tensors compressed: {} to {}, {:.3} bits a value, ratio {:.2}\n\
         whole model: {} to {}, ratio {:.2}; {:.1} s, {}/s\n{loss}",
        part.tensors,
        all.tensors,
        print::bytes(part.original_bytes),
        print::bytes(part.stored_bytes),
        part.bits_per_value,
        part.ratio,
        print::bytes(all.original_bytes),
        print::bytes(all.stored_bytes),
        all.ratio,
        seconds,
        print::bytes(rate as u64),
    )
}
