//! Commands over the wire: serve and pull.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{Decode, EffortArg, WireGoal, positive};

/// Offer a folder of models over HTTP.
///
/// Files come with ranges, their BLAKE3 digests as entity tags, and a manifest of all digests (tenfold.manifest.json). `tenfold pull`
/// reads it, and so does any client of HTTP. Hidden files, and names or links that lead out of the folder, do not exist. With
/// --cache, plain models are encoded at the goal that a client asks for. Ctrl-C ends the server once answers under way are done.
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArgs {
    /// Folder to offer.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Address and port to listen at; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8417")]
    pub listen: SocketAddr,
    /// File with the bearer token that clients must bring [default: anybody may read].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file of the certificate chain for TLS.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// PEM file of the certificate's key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Encode plain models on request and keep the results in this folder, outside of DIR.
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,
    /// Most bytes of the cache; what was not asked for the longest goes first.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 30)]
    pub cache_bytes: u64,
    /// Connections at once; more wait.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub connections: usize,
    /// Seconds after which a connection that does nothing is closed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = positive)]
    pub idle: f64,
    /// Print the manifest and end: put it beside the files on any other web server as tenfold.manifest.json.
    #[arg(long)]
    pub manifest: bool,
}

const SERVE_HELP: &str = "\
Examples:
  tenfold serve ./models
  tenfold serve ./models --listen 0.0.0.0:443 --cert cert.pem --key key.pem --token-file token
  tenfold serve ./models --cache /var/cache/tenfold
  tenfold serve ./models --manifest > ./models/tenfold.manifest.json";

/// Fetch a model over HTTP: all of it, some tensors, or some rows; as it is or decoded.
///
/// URL names a file (http, https, file, s3, gs, az), an index of shards, or a folder: one that
/// `tenfold serve` offers, or any that holds tenfold.manifest.json, model.safetensors.index.json or model.safetensors. A run that ends early
/// leaves what has arrived in a hidden folder beside OUT; the same command goes on from there. OUT appears when it is whole and
/// all checksums that there are match.
#[derive(Debug, Args)]
#[command(after_help = PULL_HELP)]
pub struct PullArgs {
    /// What to fetch.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Output: a file, or a folder for a folder.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// Decode compressed tensors while they arrive: OUT is what `tenfold decompress` would make of the download.
    #[arg(long)]
    pub decode: bool,
    /// Take only tensors with matching names (repeatable).
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Take only rows A to B − 1 of each tensor, seen as rows × last dimension, decoded; of blobs, only the tiles that hold them are fetched.
    #[arg(long, value_name = "A:B", value_parser = rows)]
    pub rows: Option<Range<usize>>,
    #[command(flatten)]
    pub goal: WireGoal,
    /// With a goal: how hard the server searches [default: balanced].
    #[arg(long, value_enum)]
    pub effort: Option<EffortArg>,
    /// With a goal: megabits a second of the link. The server then sends the plain file if that arrives first.
    #[arg(long, value_name = "MBPS", value_parser = positive)]
    pub bandwidth: Option<f64>,
    /// File with a bearer token for the server of URL; redirects to other servers do not get it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file of certificates to trust beside the system's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Ranges to fetch at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub connections: usize,
    /// Failures in a row, without a byte between them, after which to give up.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub retries: u32,
    /// Seconds without a byte after which a request has failed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = positive)]
    pub stall: f64,
    /// Memory to work with; larger tensors are decoded by tiles.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub max_memory: u64,
    /// Write a timeline of what was fetched, checked, decoded and written when: a Chrome trace, for Perfetto.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub decoding: Decode,
    /// Replace OUT if it exists.
    #[arg(long, short)]
    pub force: bool,
    /// Print a report as JSON.
    #[arg(long)]
    pub json: bool,
}

const PULL_HELP: &str = "\
Examples:
  tenfold pull https://models.example/llama/ -o llama --decode
  tenfold pull s3://bucket/llama -o llama --decode
  tenfold pull http://host:8417/model.safetensors -o small.safetensors --bits 3
  tenfold pull http://host/model.safetensors -o head.safetensors --include 'lm_head.*'
  tenfold pull http://host/model.safetensors -o rows.safetensors --include '*embed*' --rows 0:1000
  tenfold pull http://host/model.safetensors -o model.safetensors --decode --trace trace.json

A goal needs `tenfold serve --cache` at the other end. It goes for all tensors or, if the plain file arrives first, for none.
JSON: `files`, `fetched`, `written`, `unchecked` (bytes), `seconds`, `summary` (`seconds`, `overlap`, a share of what is possible, `stages`, each with `stage`, `items`, `bytes`, `busy`).";

/// Parses `A:B`.
fn rows(text: &str) -> Result<Range<usize>, String> {
    let parse = |text: &str| text.parse::<usize>().map_err(|_| "must be A:B, two numbers".to_owned());
    let (first, last) = text.split_once(':').ok_or("must be A:B")?;
    let range = parse(first)?..parse(last)?;
    if range.is_empty() { Err("A must be below B".into()) } else { Ok(range) }
}
