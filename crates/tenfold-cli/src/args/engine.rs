//! Who does the work.

use clap::{Args, ValueEnum};

/// What makes and reads blobs of tenfold's own codec.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// What makes and reads blobs of tenfold's own codec. One that is not there is an error (exit code 6).
    #[arg(long, value_enum, default_value = "cpu")]
    pub engine: EngineArg,
    /// Number of the CUDA device, as `tenfold engines` lists them [default: 0].
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
