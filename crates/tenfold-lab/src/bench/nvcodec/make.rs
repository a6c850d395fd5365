//! Makes the streams: x264 and x265 on Gaussian noise, at about the rate of the stated figures and a few others.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_video::{Hardware, Quality, Standard, VideoOptions};

use super::streams::{Stream, save_list};
use crate::bench::BenchArgs;
use crate::bench::progress;
use crate::synth::{self, Shape};

/// One stream to be.
struct Wanted {
    standard: Standard,
    effort: Effort,
    side: usize,
    pictures: usize,
    quality: Asked,
}

enum Asked {
    Bits(f64),
    Qp(u32),
}

/// The rate of the stated figures.
pub(super) const BITS: f64 = 2.75;
/// The quantiser of the stated latency.
const QP: u32 = 18;

fn wanted(quick: bool) -> Vec<Wanted> {
    use Asked::{Bits, Qp};
    use Effort::{Balanced, Fast};
    use Standard::{H264, H265};
    let one =
        |standard, effort, side, pictures, quality| Wanted { standard, effort, side, pictures, quality };
    let mut all = vec![
        one(H265, Fast, 256, 4, Qp(QP)),
        one(H264, Fast, 256, 4, Qp(QP)),
        one(H265, Fast, 1024, 2, Bits(BITS)),
    ];
    if !quick {
        all.extend([
            one(H265, Balanced, 1024, 2, Bits(BITS)),
            one(H265, Fast, 1024, 2, Bits(1.5)),
            one(H265, Fast, 1024, 2, Bits(4.0)),
            one(H265, Fast, 256, 8, Bits(BITS)),
            one(H265, Fast, 2048, 1, Bits(BITS)),
            one(H265, Fast, 4096, 1, Bits(BITS)),
            one(H264, Fast, 1024, 2, Bits(BITS)),
            one(H264, Balanced, 1024, 2, Bits(BITS)),
            one(H264, Fast, 1024, 2, Bits(1.5)),
            one(H264, Fast, 4096, 1, Bits(BITS)),
        ]);
    }
    all
}

/// Fills a folder.
pub(super) fn run(args: &BenchArgs, folder: &Path, out: &mut dyn Write) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let all = wanted(args.quick);
    let bar = progress::bar(all.len(), args.quiet);
    let mut streams = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let (stream, blob) = make(one, i as u64, args.threads)?;
        bar.inc(1);
        let path = folder.join(format!("{}.tnfd", stream.name));
        fs::write(&path, blob).with_context(|| format!("cannot write {}", path.display()))?;
        streams.push(stream);
        // Each is whole as soon as it is listed.
        save_list(folder, &streams)?;
    }
    bar.finish_and_clear();
    for stream in &streams {
        writeln!(
            out,
            "{}: {:.3} bits a value, {} pictures",
            stream.describe(),
            stream.bits,
            stream.pictures
        )?;
    }
    Ok(())
}

fn make(one: &Wanted, seed: u64, threads: usize) -> Result<(Stream, Vec<u8>)> {
    let shape = [one.pictures * one.side, one.side];
    let values = synth::values(Shape::Gaussian, 1.0, shape[0] * shape[1], seed);
    let tensor = synth::tensor(Dtype::Bf16, &shape, &values).context("a tensor of noise")?;
    let encoder = if one.standard == Standard::H264 { "x264" } else { "x265" };
    let mut video = VideoOptions::new(one.standard)
        .with_encoder(encoder)
        .with_hardware(Hardware::Nvdec)
        .with_depth(8)
        .with_side(one.side);
    let (goal, qp) = match one.quality {
        Asked::Bits(bits) => (Goal::Bits(bits), None),
        Asked::Qp(qp) => (Goal::Bits(BITS), Some(qp)),
    };
    if let Some(qp) = qp {
        video = video.with_quality(Quality::Qp(qp));
    }
    let options = EncodeOptions::new(goal).with_effort(one.effort).with_threads(threads);
    let blob = tenfold_video::encode(&tensor.view()?, &options, &video)?;
    let back = tenfold_video::decode(&blob, &DecodeOptions::default().with_threads(threads))?;
    // What the encoders call it.
    let effort = match (one.effort, encoder) {
        (Effort::Fast, "x265") => "ultrafast",
        (Effort::Fast, _) => "veryfast",
        _ => "medium",
    };
    let bits = blob.len() as f64 * 8.0 / values.len() as f64;
    let rate = qp.map_or(format!("{bits:.2}").replace('.', "_"), |qp| format!("qp{qp}"));
    let stream = Stream {
        name: format!("{encoder}-{effort}-{}-{rate}", one.side),
        standard: one.standard.to_string(),
        encoder: encoder.to_string(),
        effort: effort.to_string(),
        side: one.side,
        pictures: one.pictures,
        bits,
        qp,
        crc32: crc32fast::hash(&back.data),
    };
    Ok((stream, blob))
}
