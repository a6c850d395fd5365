//! `tenfold bench`: rate, error and speed on a user's own files and machine.

use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;
use tenfold::engine::{SharedEngine, threads};
use tenfold::{DecodeOptions, EncodeOptions, Goal, Tensor};
use tenfold_archive::{Archive, DiffSums, Progress};

use super::engine;
use crate::args::{BenchArgs, EffortArg, EngineArg, EngineArgs};
use crate::exit::{self, Usage};
use crate::print;
use crate::progress::Bar;
use crate::table::Table;

/// The goal if none is stated.
const GOAL: Goal = Goal::Bits(3.0);
/// Fewest dimensions and values of a measured tensor, as in `compress`.
const LEAST: (usize, usize) = (2, 4096);
/// Bytes that zstd and the copy give to a thread at once.
const PIECE: usize = 4 << 20;
const HEADINGS: [&str; 7] = ["coder", "bits/value", "ratio", "nmse", "max error", "encode", "decode"];

pub fn run(args: BenchArgs, quiet: bool) -> anyhow::Result<u8> {
    if args.goal.is_fixed() {
        return Err(Usage(
            "--qp and --lossless-samples are for pictures, which bench does not measure: state another goal"
                .into(),
        )
        .into());
    }
    let writer = engine::writer(&args.engine)?;
    let sample = Sample::read(&args)?;
    let bar = Bar::new(quiet);
    let coders = threads::install(args.threads.threads, || measure(&args, &writer, &sample, &bar))??;
    drop(bar);
    let report = Report::new(&args, &writer, &sample, coders)?;
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&report.table())?;
    }
    Ok(exit::SUCCESS)
}

/// The tensors that are measured.
struct Sample {
    tensors: Vec<Tensor>,
    /// Values of all tensors that qualify.
    values_in_files: u64,
}

impl Sample {
    fn read(args: &BenchArgs) -> anyhow::Result<Sample> {
        let mut sample = Sample { tensors: Vec::new(), values_in_files: 0 };
        let cpu = EngineArgs { engine: EngineArg::Cpu, device: None };
        let options = DecodeOptions::default().with_threads(args.threads.threads);
        for path in &args.inputs {
            let archive = Archive::open(path)?.with_engine(engine::reader(&cpu, None)?);
            for (index, tensor) in archive.tensors().iter().enumerate() {
                let Some(dtype) = tensor.dtype.filter(|dtype| dtype.is_float()) else { continue };
                let values = tensor.bytes / dtype.size() as u64;
                if tensor.shape.len() < LEAST.0 || values < LEAST.1 as u64 {
                    continue;
                }
                let room = args.max_values.saturating_sub(sample.values());
                sample.values_in_files += values;
                if room == 0 {
                    continue;
                }
                // Whole rows, at least one.
                let cols = tensor.shape.last().copied().unwrap_or(1) as u64;
                let rows = (room.min(values) / cols).max(1) as usize;
                sample.tensors.push(archive.read_rows(index, 0..rows, &options)?);
            }
        }
        if sample.tensors.is_empty() {
            let files: Vec<_> = args.inputs.iter().map(|path| path.display().to_string()).collect();
            return Err(Usage(format!(
                "{}: no float tensor has at least {} dimensions and {} values; nothing to measure",
                files.join(", "),
                LEAST.0,
                LEAST.1
            ))
            .into());
        }
        Ok(sample)
    }

    fn values(&self) -> u64 {
        self.tensors.iter().map(|t| (t.data.len() / t.dtype.size()) as u64).sum()
    }

    fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.data.len() as u64).sum()
    }
}

/// The measurements of one coder.
#[derive(Serialize)]
struct Row {
    coder: &'static str,
    bytes: u64,
    bits_per_value: f64,
    ratio: f64,
    mse: f64,
    nmse: f64,
    max_error: f64,
    /// Bytes of the tensors a second.
    encode: Option<f64>,
    decode: Option<f64>,
}

fn measure(args: &BenchArgs, engine: &SharedEngine, sample: &Sample, bar: &Bar) -> anyhow::Result<Vec<Row>> {
    let rig = Rig { sample, repeats: args.repeats, bar };
    // Two coders encode and decode; the copy has one direction.
    bar.start(5 * u64::from(args.repeats) * sample.bytes());
    let goal = args.goal.goal.unwrap_or(GOAL);
    let options = EncodeOptions::new(goal).with_effort(args.effort.into());
    let decoding = DecodeOptions::default();
    let ours = rig.run(
        "tenfold",
        |tensor| Ok(vec![engine.encode(&tensor.view()?, &options)?]),
        |blobs, out| Ok(engine.decode_into(&blobs[0], &decoding, out)?),
    )?;
    let zstd = rig.run(
        "zstd -3",
        |tensor| {
            Ok(tensor.data.par_chunks(PIECE).map(|p| zstd::bulk::compress(p, 3)).collect::<Result<_, _>>()?)
        },
        |pieces, out| {
            let pieces = out.par_chunks_mut(PIECE).zip(pieces);
            Ok(pieces.try_for_each(|(out, p)| zstd::bulk::decompress_to_buffer(p, out).map(|_| ()))?)
        },
    )?;
    Ok(vec![ours, zstd, rig.copy()?])
}

struct Rig<'a> {
    sample: &'a Sample,
    repeats: u32,
    bar: &'a Bar,
}

impl Rig<'_> {
    /// Times encoding and decoding of every tensor.
    fn run(
        &self,
        coder: &'static str,
        encode: impl Fn(&Tensor) -> anyhow::Result<Vec<Vec<u8>>>,
        decode: impl Fn(&[Vec<u8>], &mut [u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Row> {
        self.bar.message(coder);
        let tensors = &self.sample.tensors;
        let mut coded = vec![Vec::new(); tensors.len()];
        let encoding = self.time(|i| {
            coded[i] = encode(&tensors[i])?;
            Ok(())
        })?;
        let bytes = coded.iter().flatten().map(|part| part.len() as u64).sum();
        // Touched before timing: a fresh page costs as much as a copy.
        let mut back: Vec<Vec<u8>> = tensors.iter().map(|t| vec![1; t.data.len()]).collect();
        let decoding = self.time(|i| decode(&coded[i], &mut back[i]))?;
        Ok(self.row(coder, bytes, &back, Some(encoding), decoding))
    }

    /// Copies every tensor.
    fn copy(&self) -> anyhow::Result<Row> {
        self.bar.message("copy");
        let tensors = &self.sample.tensors;
        let mut back: Vec<Vec<u8>> = tensors.iter().map(|t| vec![1; t.data.len()]).collect();
        let seconds = self.time(|i| {
            let pieces = back[i].par_chunks_mut(PIECE).zip(tensors[i].data.par_chunks(PIECE));
            pieces.for_each(|(to, from)| to.copy_from_slice(from));
            Ok(())
        })?;
        Ok(self.row("copy", self.sample.bytes(), &back, None, seconds))
    }

    /// Median of the seconds that all tensors take.
    fn time(&self, mut work: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let mut runs = Vec::new();
        for _ in 0..self.repeats {
            let mut seconds = 0.0;
            for (i, tensor) in self.sample.tensors.iter().enumerate() {
                let start = Instant::now();
                work(i)?;
                seconds += start.elapsed().as_secs_f64();
                self.bar.advance(tensor.data.len() as u64);
            }
            runs.push(seconds);
        }
        runs.sort_by(f64::total_cmp);
        Ok(runs[runs.len() / 2])
    }

    fn row(
        &self,
        coder: &'static str,
        bytes: u64,
        back: &[Vec<u8>],
        encode: Option<f64>,
        decode: f64,
    ) -> Row {
        let sums = self.sample.tensors.iter().zip(back).fold(DiffSums::default(), |sums, (t, back)| {
            sums.merge(&DiffSums::measure((t.dtype, &t.data), (t.dtype, back)))
        });
        let error = sums.finish(coder, "", &[]);
        let plain = self.sample.bytes() as f64;
        let rate = |seconds: f64| plain / seconds.max(1e-9);
        Row {
            coder,
            bytes,
            bits_per_value: 8.0 * bytes as f64 / self.sample.values() as f64,
            ratio: plain / bytes.max(1) as f64,
            mse: error.mse,
            nmse: error.nmse,
            max_error: error.max_error,
            encode: encode.map(rate),
            decode: Some(rate(decode)),
        }
    }
}

#[derive(Serialize)]
struct Report {
    tensors: usize,
    values: u64,
    values_in_files: u64,
    goal: &'static str,
    number: Option<f64>,
    effort: &'static str,
    engine: String,
    threads: usize,
    repeats: u32,
    coders: Vec<Row>,
}

impl Report {
    fn new(
        args: &BenchArgs,
        engine: &SharedEngine,
        sample: &Sample,
        coders: Vec<Row>,
    ) -> anyhow::Result<Self> {
        let goal = args.goal.goal.unwrap_or(GOAL);
        Ok(Report {
            tensors: sample.tensors.len(),
            values: sample.values(),
            values_in_files: sample.values_in_files,
            goal: goal.name(),
            number: goal.number(),
            effort: match args.effort {
                EffortArg::Fast => "fast",
                EffortArg::Balanced => "balanced",
                EffortArg::Best => "best",
            },
            engine: engine.name(),
            threads: threads::install(args.threads.threads, rayon::current_num_threads)?,
            repeats: args.repeats,
            coders,
        })
    }

    fn table(&self) -> String {
        let number = self.number.map_or(String::new(), |n| format!(" {n}"));
        let mut text = format!(
            "{} tensors, {} values; {}{number}, effort {}, engine {}, {} threads, median of {} runs\n",
            self.tensors, self.values, self.goal, self.effort, self.engine, self.threads, self.repeats
        );
        if self.values < self.values_in_files {
            text += &format!(
                "the files hold {} values; raise --max-values to measure more\n",
                self.values_in_files
            );
        }
        let mut table = Table::new(&HEADINGS, false);
        for row in &self.coders {
            table.row(vec![
                row.coder.into(),
                format!("{:.3}", row.bits_per_value),
                format!("{:.2}", row.ratio),
                print::scientific(row.nmse),
                print::scientific(row.max_error),
                print::or_dash(row.encode, print::rate),
                print::or_dash(row.decode, print::rate),
            ]);
        }
        text + &table.render()
    }
}
