//! Which engine codes blobs.

use clap::{Args, ValueEnum};

/// The engine for blobs of tenfold's own codec.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Engine for blobs of tenfold's own codec. An unavailable one is an error (exit code 6).
    #[arg(long, value_enum, default_value = "cpu")]
    pub engine: EngineArg,
    /// Number of the CUDA device, as listed by `tenfold engines` [default: 0].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
}

/// The engines by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// This machine's cores.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}
