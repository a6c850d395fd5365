//! What to measure, as the command line states it.

use std::path::PathBuf;

use clap::builder::{EnumValueParser, RangedU64ValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use tenfold::Effort;
use tenfold::engine::SharedEngine;
use tenfold_cli::exit::Usage;
use tenfold_cli::{EffortArg, EngineArg, EngineArgs, engine, positive};

/// The benches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Bits above the Gaussian bound on a square N(0, 1) tensor, all bytes counted.
    Gap,
    /// Bits and error of real tensors, beside an ideal scalar quantiser and H.265 intra.
    Files,
    /// Whether bits, max-bytes and max-error are obeyed, over sizes, distributions and dtypes.
    Rate,
    /// Lossless ratio and speed on bf16 values of N(0, 0.02), beside zstd.
    Lossless,
    /// Encoding and decoding on one and two threads, beside zstd and x265 in the same run.
    Speed,
    /// Pages of a key-value cache under caps: that none is exceeded, and what a cap costs; files of keys and values add
    /// real pages.
    Pages,
    /// A matrix of a linear layer with feedback of errors: seconds, bits and the predicted loss; with --engine cuda on a device, beside
    /// the CPU.
    Calibrated,
    /// Deltas between versions of a tensor: bytes and speed beside XOR and zstd; files are versions of a model, the base first. With --part
    /// cuda applied in place on a CUDA device, beside plain copies of the whole tensor.
    Delta,
    /// Energy of encoding and decoding on a CUDA device, in pJ for each bit of the tensor, by the device's own counter; what it takes
    /// idle is subtracted.
    Energy,
    /// Decoding and encoding on a CUDA device, beside plain copies and, with --nvcomp, nvCOMP in the same run.
    Cuda,
    /// The video engines of a CUDA device, with the streams of a folder: speed, latency, overlap with products of matrices, energy. --make
    /// makes the streams.
    Nvcodec,
}

impl What {
    /// Name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            What::Gap => "gap",
            What::Files => "files",
            What::Rate => "rate",
            What::Lossless => "lossless",
            What::Speed => "speed",
            What::Pages => "pages",
            What::Calibrated => "calibrated",
            What::Delta => "delta",
            What::Energy => "energy",
            What::Cuda => "cuda",
            What::Nvcodec => "nvcodec",
        }
    }
}

/// Parts of the bench of a CUDA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CudaPart {
    /// Blobs to tensors, made up and real.
    Decode,
    /// Blobs of weights: plain, with importance, calibrated.
    Weights,
    /// Tensors to blobs.
    Encode,
    /// Pages of a cache behind a basis, both ways.
    Pages,
    /// Blobs that lie on the host.
    Host,
    /// Of `delta`: those on a device.
    Cuda,
}

/// Measure tenfold: rate and error, goals kept, speed, beside other coders.
///
/// Tables and verdicts go to standard output: `pass` or `MISS` for each figure that has a bar. A missed
/// bar is no failure unless --check is given.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
#[non_exhaustive]
pub struct BenchArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub what: What,
    /// Safetensors files (`files`: at least one; `pages`, `cuda`: real tensors besides made-up ones); of `nvcodec` the folder of
    /// streams.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Rates in bits a value, such as 2,2.5 [default: those that have a bar].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = positive)]
    pub bits: Vec<f64>,
    /// Efforts.
    #[arg(
        long = "effort",
        value_name = "EFFORT,...",
        value_delimiter = ',',
        default_value = "fast,balanced,best",
        value_parser = EnumValueParser::<EffortArg>::new().map(Effort::from)
    )]
    pub efforts: Vec<Effort>,
    /// Sizes of made-up tensors: side of the square (gap, speed; default 4096), number of values (lossless: 64 Mi,
    /// rate: 4 Mi; cuda: several, 512 Mi, 64 Mi, 16 Mi), number of pages (pages: 100,000), inputs (calibrated: 14336), or
    /// values of the larger tensor (delta: 1 Gi; nvcodec: 256 Mi).
    #[arg(long = "size", value_name = "N,...", value_delimiter = ',', value_parser = at_least_one())]
    pub sizes: Vec<usize>,
    /// Repetitions of which the median counts (lossless, speed, delta, cuda) [default: 5, for delta and cuda 25].
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub repeats: Option<usize>,
    /// What the user asks to encode and decode with (`gap`, `files`, `rate`, `calibrated`).
    #[command(flatten)]
    pub asked: EngineArgs,
    /// What encodes and decodes. Default: the CPU; [`BenchArgs::open_engine`] opens what was asked for.
    #[arg(skip)]
    pub engine: SharedEngine,
    /// Measure only a part (cuda, delta, repeatable) [default: all].
    #[arg(long = "part", value_enum, value_name = "PART")]
    pub parts: Vec<CudaPart>,
    /// Measure the ANS of NVIDIA's nvCOMP 6 beside lossless coding (cuda), or beside deltas (delta --part cuda): path of libnvcomp.so.6. PyPI has it:
    /// `pip download --no-deps nvidia-libnvcomp-cu13==6.0.0.12`, unzip the wheel, nvidia/libnvcomp/lib64/libnvcomp.so.6.
    #[arg(long, value_name = "PATH")]
    pub nvcomp: Option<PathBuf>,
    /// Of `nvcodec`: make the streams in a folder instead of measuring. Needs a build with video codecs, and no GPU.
    #[arg(long, value_name = "FOLDER")]
    pub make: Option<PathBuf>,
    /// Of `nvcodec`: write what happened when to a file, as JSON for chrome://tracing or Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Worker threads for what is not timed at a stated number of threads; 0 uses all cores.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Leave out the video codecs; of `calibrated`, the CPU.
    #[arg(long = "no-peers", action = ArgAction::SetFalse)]
    pub peers: bool,
    /// Smaller tensors and fewer cases: a first look, whose verdicts mean little.
    #[arg(long)]
    pub quick: bool,
    /// Fail (exit code 3) if a bar is missed.
    #[arg(long)]
    pub check: bool,
    /// Write a report with every figure, the machine, the commit and the command to a file.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// No progress bars.
    #[arg(skip)]
    pub quiet: bool,
    /// The command line as the user typed it, kept in the report.
    #[arg(skip = default_command())]
    pub command: String,
}

const HELP: &str = "\
Examples:
  tenfold-lab bench gap --quick
  tenfold-lab bench files model.safetensors --bits 2.5 --effort best
  tenfold-lab bench speed --json speed.json --check
  tenfold-lab bench calibrated --engine cuda --effort balanced
  tenfold-lab bench delta --part cuda --nvcomp nvidia/libnvcomp/lib64/libnvcomp.so.6 --json delta-cuda.json
  tenfold-lab bench energy --effort fast --json energy.json
  tenfold-lab bench cuda model.safetensors --bits 2.5 --json cuda.json
  tenfold-lab bench cuda --nvcomp nvidia/libnvcomp/lib64/libnvcomp.so.6
  tenfold-lab bench nvcodec --make streams
  tenfold-lab bench nvcodec streams --trace trace.json --json nvcodec.json

JSON: `bench`, `command`, `date`, `commit`, `version`, `machine` (`cpu`, `cores`, `system`; `device` of `cuda` and `delta`), `notes`, `checks`
(each with `what`, `value`, `bar`, `rule`, `pass`) and `rows`, whose fields depend on the bench.";

impl BenchArgs {
    /// Refuses arguments that a bench does not take, and opens the engine.
    pub fn open_engine(&mut self) -> anyhow::Result<()> {
        let what = self.what;
        let refuse = |message: &str| Err(Usage(message.into()).into());
        if what == What::Nvcodec {
            return match (&self.make, &self.files[..]) {
                (Some(_), []) if self.trace.is_none() => Ok(()),
                (None, [_]) if self.parts.is_empty() && self.nvcomp.is_none() && self.sizes.len() <= 1 => {
                    Ok(())
                }
                _ => refuse("`bench nvcodec` takes a folder of streams, or --make and a folder alone"),
            };
        }
        if self.make.is_some() || self.trace.is_some() {
            return refuse("only `bench nvcodec` takes --make and --trace");
        }
        match (what, self.files.is_empty()) {
            (What::Files, true) => return refuse("name at least one safetensors file"),
            (What::Files | What::Pages | What::Delta | What::Cuda, false) | (_, true) => {}
            (_, false) => {
                return refuse(
                    "only `bench files`, `bench pages`, `bench delta` and `bench cuda` take files",
                );
            }
        }
        // Always on a device, whichever engine the others would take.
        if what == What::Cuda {
            return match self.parts.contains(&CudaPart::Cuda) {
                true => refuse("`--part cuda` is for `bench delta`"),
                false => Ok(()),
            };
        }
        let parts = !self.parts.is_empty();
        if what == What::Delta && parts && self.parts.iter().all(|part| *part == CudaPart::Cuda) {
            return match self.files.is_empty() {
                true => Ok(()),
                false => refuse("`bench delta --part cuda` takes no files"),
            };
        }
        // Always on a device, too.
        if what == What::Energy {
            return match self.parts.is_empty() && self.nvcomp.is_none() && self.sizes.len() < 2 {
                true => Ok(()),
                false => refuse("`bench energy` takes one size, no --part and no --nvcomp"),
            };
        }
        if self.sizes.len() > 1 {
            return refuse("only `bench cuda` takes several sizes");
        }
        if self.nvcomp.is_some() {
            return refuse("only `bench cuda` and `bench delta --part cuda` take --nvcomp");
        }
        if !self.parts.is_empty() {
            return refuse("only `bench cuda` takes --part, and `bench delta` the part cuda");
        }
        if matches!(what, What::Speed | What::Lossless) && self.asked.engine == EngineArg::Cuda {
            return refuse(&format!(
                "`bench {}` times the CPU; `tenfold-lab bench cuda` times a device",
                what.name()
            ));
        }
        // Opened by the bench itself, which asks more of a device than an engine says.
        if what != What::Calibrated {
            self.engine = engine::writer(&self.asked)?;
        }
        Ok(())
    }

    /// The first stated size, or a bench's own.
    pub(super) fn size_or(&self, own: usize) -> usize {
        self.sizes.first().copied().unwrap_or(own)
    }

    /// The stated rates, or a bench's own.
    pub(super) fn bits_or(&self, own: &[f64]) -> Vec<f64> {
        if self.bits.is_empty() { own.to_vec() } else { self.bits.clone() }
    }

    /// The stated number of repetitions, or the bench's own.
    pub(super) fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if matches!(self.what, What::Cuda | What::Delta | What::Energy) {
            25
        } else {
            5
        })
    }

    /// Whether to measure a part of `cuda`.
    pub(super) fn has_part(&self, part: CudaPart) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

#[cfg(test)]
impl BenchArgs {
    /// Arguments of a bench, everything at its default.
    pub(crate) fn new(what: What) -> Self {
        crate::command::parse(&[what.name()])
    }
}

pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The process's arguments, the program by its bare name: where it was installed is nobody's concern.
pub(crate) fn default_command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit(['/', '\\']).next().unwrap_or_default().to_string();
    }
    words.join(" ")
}
