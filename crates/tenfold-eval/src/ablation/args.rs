//! What to measure, free of any command-line library.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::bench::default_command;

/// What to measure. Start from [`AblationArgs::new`]; every field but the files has a working default.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AblationArgs {
    /// Safetensors files, at least one.
    pub files: Vec<PathBuf>,
    /// Part of a tensor's name; others are left out. Default: none, all tensors.
    pub only: Option<String>,
    /// Error at which all are compared: squared error over variance. Default: 0.03.
    pub nmse: f64,
    /// Bits of a sample, 8 to 12. Default: 8.
    pub depth: u8,
    /// Values of a tensor that are measured, whole rows from the first on. Default: 131072, or 16384 if quick.
    pub size: Option<usize>,
    /// Small parts of few tensors, for a look or a test. Default: false.
    pub quick: bool,
    /// No progress bars. Default: false.
    pub quiet: bool,
    /// Where to write the report. Default: nowhere.
    pub json: Option<PathBuf>,
    /// Folder for pictures of blocks, made if missing. Default: none.
    pub pictures: Option<PathBuf>,
    /// The command line as the user typed it, kept in the report. Default: this process's own.
    pub command: String,
}

impl AblationArgs {
    /// Arguments for these files, everything else at its default.
    pub fn new(files: Vec<PathBuf>) -> Self {
        AblationArgs {
            files,
            only: None,
            nmse: 0.03,
            depth: 8,
            size: None,
            quick: false,
            quiet: false,
            json: None,
            pictures: None,
            command: default_command(),
        }
    }

    /// Values of a tensor that are measured.
    pub(super) fn values(&self) -> usize {
        self.size.unwrap_or(if self.quick { 1 << 14 } else { 1 << 17 })
    }

    /// Tensors of a file, and sequences of tensors, that are measured at most.
    pub(super) fn most(&self) -> usize {
        if self.quick { 2 } else { usize::MAX }
    }

    pub(super) fn validate(&self) -> Result<()> {
        ensure!(!self.files.is_empty(), "name at least one safetensors file");
        ensure!(self.nmse > 0.0 && self.nmse < 1.0, "an nmse of {} is not between 0 and 1", self.nmse);
        ensure!((8..=12).contains(&self.depth), "samples have 8 to 12 bits, not {}", self.depth);
        ensure!(self.values() >= 256, "{} values are too few to measure", self.values());
        Ok(())
    }
}
