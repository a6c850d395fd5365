//! The command `tenfold`: compress, decompress, inspect, verify and compare model files, and measure tenfold.
//!
//! This crate turns arguments into calls of `tenfold-archive` and `tenfold-eval` and results into tables, JSON, progress bars
//! and exit codes. It knows nothing of files' insides.

mod args;
mod commands;
mod exit;
mod print;
mod progress;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Cli::parse();
    match commands::run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tenfold: {}", exit::text(&error));
            exit::code(&error)
        }
    }
}
