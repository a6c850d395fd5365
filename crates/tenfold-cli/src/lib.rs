//! The command `tenfold`: compress, decompress, inspect, verify and compare model files, and measure tenfold.
//!
//! This crate turns arguments into calls of `tenfold-archive` and `tenfold-eval` and results into tables, JSON, progress bars
//! and exit codes. It knows nothing of files' insides. It is a library so that other programs can carry the command, as
//! the Python package does.

mod args;
mod commands;
mod exit;
mod print;
mod progress;
mod table;

use std::ffi::OsString;

use clap::Parser;

/// Runs the command with these arguments, its own name first, and returns its exit code. Output goes to the process's
/// standard streams.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match args::Cli::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Help and the version come this way too. A closed pipe is no failure.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
        }
    };
    match commands::run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tenfold: {}", exit::text(&error));
            exit::code(&error)
        }
    }
}
