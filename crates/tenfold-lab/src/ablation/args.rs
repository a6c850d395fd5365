//! What to measure, as the command line states it.

use std::path::PathBuf;

use clap::Args;
use tenfold_cli::exit::Usage;
use tenfold_cli::positive;

use crate::bench::default_command;

/// Switch the stages of a video codec on one by one, at one and the same error.
///
/// Samples as they are, quantisation with codes of fixed length, entropy coding, transform, prediction,
/// inter-frame prediction; and all stages less one. Bits a value, every byte counted, every stream decoded.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "Example:\n  tenfold-lab ablation testdata/weights.safetensors --pictures pictures")]
#[non_exhaustive]
pub struct AblationArgs {
    /// Safetensors files.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only tensors whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Error at which all are compared: squared error over variance.
    #[arg(long, value_name = "X", default_value_t = 0.03, value_parser = positive)]
    pub nmse: f64,
    /// Bits of a sample, 8 to 12.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub depth: u8,
    /// Values of a tensor that are measured, whole rows from the first on [default: 131072, or 16384 with --quick].
    #[arg(long, value_name = "N")]
    pub size: Option<usize>,
    /// Small parts of few tensors: a first look.
    #[arg(long)]
    pub quick: bool,
    /// Draw blocks, their prediction, residual and coefficients as PNG files into this folder.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
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

#[cfg(test)]
impl AblationArgs {
    /// Arguments for these files, everything else at its default.
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        AblationArgs { files, ..crate::command::parse(&["FILE"]) }
    }
}

impl AblationArgs {
    /// Values of a tensor that are measured.
    pub(super) fn values(&self) -> usize {
        self.size.unwrap_or(if self.quick { 1 << 14 } else { 1 << 17 })
    }

    /// Tensors of a file, and sequences of tensors, that are measured at most.
    pub(super) fn most(&self) -> usize {
        if self.quick { 2 } else { usize::MAX }
    }

    pub(super) fn validate(&self) -> Result<(), Usage> {
        let wrong = if self.files.is_empty() {
            "name at least one safetensors file".to_string()
        } else if !(self.nmse > 0.0 && self.nmse < 1.0) {
            format!("an nmse of {} is not between 0 and 1", self.nmse)
        } else if !(8..=12).contains(&self.depth) {
            format!("samples have 8 to 12 bits, not {}", self.depth)
        } else if self.values() < 256 {
            format!("{} values are too few to measure; --size takes 256 or more", self.values())
        } else {
            return Ok(());
        };
        Err(Usage(wrong))
    }
}
