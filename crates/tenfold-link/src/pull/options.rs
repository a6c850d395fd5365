//! What a caller may ask of [`pull`](super::pull).

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use tenfold::engine::Stop;
use tenfold_archive::ReadOptions;

use crate::pipeline::Timeline;

/// How to pull a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PullOptions {
    /// Whether to write the tensors as they were before compression. Default: no, files come as they are.
    pub decode: bool,
    /// Globs of the tensors to take. Default: none, which takes all.
    pub include: Vec<String>,
    /// Rows of each tensor to take, of its two-dimensional view; implies `decode`. Default: all.
    pub rows: Option<Range<usize>>,
    /// Bearer token for the server that the URL names, and for no other. Default: none.
    pub token: Option<String>,
    /// File of certificates to trust beside the system's. Default: none.
    pub ca: Option<PathBuf>,
    /// Settings of an object store by the names that the crate `object_store` has for them, such as `aws_endpoint`, beside those of the
    /// environment. Default: none.
    pub store: Vec<(String, String)>,
    /// Where [`pull_tensors`](super::pull_tensors) keeps what has arrived until all of it has been taken. Default: `tenfold` in the
    /// user's cache folder.
    pub cache: Option<PathBuf>,
    /// Ranges that are asked for at once. Default: 4.
    pub connections: usize,
    /// How often a request may fail in a row, without a byte in between. Default: 8, which with the waits between them takes
    /// about half a minute.
    pub retries: u32,
    /// How long a server may be silent before the request counts as failed. Default: 30 s.
    pub stall: Duration,
    /// Whether an existing output may be replaced. Default: no.
    pub overwrite: bool,
    /// Engine, threads and limits of decoding.
    pub read: ReadOptions,
    /// Bytes of memory to work with, about; larger tensors are decoded by tiles. Default: 1 GiB.
    pub max_memory: u64,
    /// What to ask a `tenfold serve` for that holds plain models, as the query of a URL (`bits=3`). Default: nothing.
    pub query: Option<String>,
    /// Bytes a second that the link is expected to carry; the server then sends plain what it would take longer to encode.
    /// Default: unknown.
    pub bandwidth: Option<f64>,
    /// Ends the work early; what has arrived is kept. Default: none.
    pub stop: Stop,
    /// Where spans are recorded. Default: a record of its own.
    pub timeline: Timeline,
}

impl Default for PullOptions {
    fn default() -> Self {
        PullOptions {
            decode: false,
            include: Vec::new(),
            rows: None,
            token: None,
            ca: None,
            store: Vec::new(),
            cache: None,
            connections: 4,
            retries: 8,
            stall: Duration::from_secs(30),
            overwrite: false,
            read: ReadOptions::default(),
            max_memory: 1 << 30,
            query: None,
            bandwidth: None,
            stop: Stop::default(),
            timeline: Timeline::default(),
        }
    }
}
