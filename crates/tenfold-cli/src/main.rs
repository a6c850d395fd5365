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
    quiet_libraries();
    let args = args::Cli::parse();
    match commands::run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tenfold: {}", exit::text(&error));
            exit::code(&error)
        }
    }
}

/// SVT-AV1 tells its settings on standard error whenever it is opened, and only the environment stops it.
#[allow(unsafe_code)]
fn quiet_libraries() {
    if std::env::var_os("SVT_LOG").is_none() {
        // SAFETY: the first thing this process does; there is no other thread that could read the environment.
        unsafe { std::env::set_var("SVT_LOG", "1") };
    }
}
