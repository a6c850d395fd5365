//! What a caller may ask of a [`Server`](super::Server).

use std::path::PathBuf;
use std::time::Duration;

/// How to offer a folder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Bearer token that every request must bring. Default: none, anybody may read.
    pub token: Option<String>,
    /// Files of the certificate chain and its key, PEM. Default: none, plain HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Connections at once; more wait until one ends. Default: 256.
    pub connections: usize,
    /// How long a peer may take for the headers of a request. Default: 10 s.
    pub header_time: Duration,
    /// How long a connection may do nothing. Default: 60 s.
    pub idle: Duration,
    /// Bytes a second that a reader must take at least, over each idle time. Default: 1024.
    pub least_rate: u64,
    /// How long answers under way may take once the server stops. Default: 10 s.
    pub grace: Duration,
    /// Encoding of plain models on request. Default: none is done.
    pub encode: Option<EncodeLimits>,
}

/// Encoding on request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EncodeLimits {
    /// Folder of what was encoded; must not lie in the folder that is offered.
    pub cache: PathBuf,
    /// Bytes of that folder, at most; what was not asked for the longest goes first. Default: 16 GiB.
    pub cache_bytes: u64,
    /// Requests that may wait for an encoding. Default: 16.
    pub waiting: usize,
    /// Threads of an encoding; 0 takes all cores. Default: 0.
    pub threads: usize,
}

impl EncodeLimits {
    /// Limits with this folder, everything else at its default.
    pub fn new(cache: PathBuf) -> EncodeLimits {
        EncodeLimits { cache, cache_bytes: 16 << 30, waiting: 16, threads: 0 }
    }
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            token: None,
            tls: None,
            connections: 256,
            header_time: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            least_rate: 1024,
            grace: Duration::from_secs(10),
            encode: None,
        }
    }
}
