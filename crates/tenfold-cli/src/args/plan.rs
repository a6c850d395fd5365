//! `tenfold plan`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tenfold::Dtype;
use tenfold_plan::Link;

use super::{EffortArg, EngineArgs, GoalArgs, Threads, positive};

/// Say what to send how over a link: raw, lossless or lossy, coded by the CPU or a device.
///
/// Measures what this machine encodes and decodes with the values of IN (by default with made-up ones), and works out for
/// each link what is fastest, and below which bandwidth each way of coding pays. Where coding would not be faster, it says
/// so: send raw. Both ends are taken to be like this machine, unless --threads and --receiver-threads say otherwise.
#[derive(Debug, Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct PlanArgs {
    #[command(subcommand)]
    pub command: Option<PlanCommand>,
    #[command(flatten)]
    pub send: SendArgs,
}

/// What else there is to plan with.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    Listen(ListenArgs),
    Cluster(Box<ClusterArgs>),
}

/// What is sent, over what.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Model whose tensors are sent: a file or folder of any format that compress reads [default: made-up values].
    #[arg(value_name = "IN")]
    pub input: Option<PathBuf>,
    /// Without IN: shape of a tensor of made-up values.
    #[arg(long, value_name = "NxM", value_parser = shape, default_value = "8192x2048", conflicts_with = "input")]
    pub shape: Shape,
    /// Without IN: its dtype.
    #[arg(long, value_name = "DTYPE", value_parser = dtype, default_value = "bf16", conflicts_with = "input")]
    pub dtype: Dtype,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Efforts to try.
    #[arg(
        long = "effort",
        value_enum,
        value_name = "EFFORT,...",
        value_delimiter = ',',
        default_value = "fast,balanced,best"
    )]
    pub efforts: Vec<EffortArg>,
    /// A link by its bandwidth, such as 100Mb/s or 12.5MB/s (repeatable) [default: 10 and 100 Mb/s, 1, 10 and 100 Gb/s].
    #[arg(long = "link", value_name = "RATE", value_parser = str::parse::<Link>)]
    pub links: Vec<Link>,
    /// Latency of the link, such as 5ms [default: 0, or what --to finds].
    #[arg(long, value_name = "TIME", value_parser = tenfold_plan::parse_seconds)]
    pub latency: Option<f64>,
    /// Measure the link to a machine where `tenfold plan listen` runs.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "links")]
    pub to: Option<String>,
    /// Do not measure the engines: bytes a second that one thread encodes and decodes, and the ratio, such as
    /// 150MB/s,400MB/s,6.4.
    #[arg(long, value_name = "ENC,DEC,RATIO", value_parser = rates, conflicts_with_all = ["check", "goal"])]
    pub rates: Option<[f64; 3]>,
    /// Leave CUDA devices out.
    #[arg(long)]
    pub cpu: bool,
    /// Bytes of a tensor that are coded and sent at once.
    #[arg(long, value_name = "SIZE", value_parser = tenfold_plan::parse_bytes, default_value = "4MiB")]
    pub chunk: u64,
    #[command(flatten)]
    pub threads: Threads,
    /// Cores of the receiver [default: those of the sender].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub receiver_threads: Option<u32>,
    /// Send for real and compare with the forecast: over a link of the stated bandwidth inside this machine, or with --to
    /// over the network. Fails (exit code 3) if the plan's choice is off by more than 15 %.
    #[arg(long)]
    pub check: bool,
    /// Bytes that --check sends, at most; less over a slow link.
    #[arg(long, value_name = "SIZE", value_parser = tenfold_plan::parse_bytes, default_value = "32MiB", requires = "check")]
    pub check_bytes: u64,
    /// Write a page that draws time over bandwidth.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
Examples:
  tenfold plan model.safetensors
  tenfold plan model --bits 2.5 --link 100Mb/s --latency 5ms --check
  tenfold plan --shape 1x576 --link 100Mb/s
  tenfold plan --link 1Gb/s --rates 150MB/s,400MB/s,6.4
  tenfold plan model --to host:7010 --check
  tenfold plan model --html plan.html

JSON: `hosts`, `notes`, `checks` (with --check) and `kinds`, each with `name`, `tensors`, `payload` (`bytes`, `chunk`), `ways` (`name`,
`ratio`, `encode_rate`, `decode_rate` in bytes a second, `break_even` in bytes a second of the link or \"never\" or \"always\", `nmse`, `encode`,
`decode`, `size`) and `links` (`link`, `raw`, `pipelined`, `serial`, and `choice` with `way`, null for raw, `coded`, the share of the bytes where the rest goes raw, `reason`, `speedup`).
Times are in seconds.";

/// Wait for others to measure the link to this machine, and decode what they send.
///
/// Keeps nothing of it. Anyone who can reach ADDRESS can make this machine work: name an address of a network that you trust.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tenfold plan listen 10.0.0.2:7010")]
pub struct ListenArgs {
    /// Address and port.
    #[arg(value_name = "ADDRESS:PORT")]
    pub address: String,
    /// End after so many connections; 0 never ends.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub connections: usize,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub threads: Threads,
}

/// Model a cluster whose chips have codecs: performance over area, energy over model size.
///
/// GPUs, network cards and codecs share an area; ranks of data and pipeline parallelism, cards and codecs a GPU are free.
/// Four scenarios: no compression, the video engines that GPUs have, codecs of their own, and tenfold on the GPU's cores.
#[derive(Debug, Args)]
#[command(after_help = CLUSTER_HELP)]
pub struct ClusterArgs {
    /// Area of all dies, in mm².
    #[arg(long, value_name = "MM2", value_parser = positive, default_value = "50000")]
    pub area: f64,
    /// Power of all of it, in W [default: unlimited].
    #[arg(long, value_name = "W", value_parser = positive)]
    pub power: Option<f64>,
    /// Inputs in TOML: the model, the GPU, the network card, the codecs, with their sources [default: those that come
    /// along; --print-inputs shows them].
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    /// Print the inputs and end.
    #[arg(long)]
    pub print_inputs: bool,
    /// What the cluster does.
    #[arg(long, value_enum, default_value = "training")]
    pub workload: WorkloadArg,
    /// Energy of encoding on the GPU's cores in pJ a bit, as `tenfold-lab bench energy` measures it [default: the GPU's
    /// power over its rate].
    #[arg(long, value_name = "PJ", value_parser = positive)]
    pub pj_encode: Option<f64>,
    /// The same for decoding.
    #[arg(long, value_name = "PJ", value_parser = positive)]
    pub pj_decode: Option<f64>,
    /// Write a page with both drawings and the tables.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the two drawings as FILE-performance.svg and FILE-energy.svg.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const CLUSTER_HELP: &str = "\
Examples:
  tenfold plan cluster --area 50000
  tenfold plan cluster --html cluster.html --svg cluster
  tenfold plan cluster --print-inputs > mine.toml
  tenfold plan cluster --inputs mine.toml --workload inference --json

JSON: `energy` (of a bit sent), `configurations`, `fronts` (performance over area, one a scenario), `at_area`, `at_performance`, `sizes` (energy
efficiency over model size) and `sensitivity`.";

/// What a cluster does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkloadArg {
    /// Steps of training.
    Training,
    /// Prefill of prompts, pipelined over GPUs.
    Inference,
}

/// A shape as text has it.
#[derive(Debug, Clone)]
pub struct Shape(pub Vec<usize>);

fn shape(text: &str) -> Result<Shape, String> {
    let dims: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    match dims {
        Ok(dims) if dims.iter().all(|d| *d > 0) => Ok(Shape(dims)),
        _ => Err("must be positive numbers joined by x, such as 2048x576".into()),
    }
}

fn dtype(text: &str) -> Result<Dtype, String> {
    let floats = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16];
    let found = floats.into_iter().find(|dtype| dtype.to_string() == text);
    found.ok_or_else(|| "must be f64, f32, f16 or bf16".into())
}

fn rates(text: &str) -> Result<[f64; 3], String> {
    let parts: Vec<&str> = text.split(',').collect();
    let [encode, decode, ratio] = parts.as_slice() else {
        return Err("must be three: the rates of encoding and decoding, and the ratio".into());
    };
    let rate = |text: &str| tenfold_plan::parse_bandwidth(text).map_err(|e| e.to_string());
    Ok([rate(encode)?, rate(decode)?, positive(ratio)?])
}
