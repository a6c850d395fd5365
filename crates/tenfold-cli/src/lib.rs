//! The command `tenfold`: compress, decompress, inspect, verify and compare model files, and their deltas.
//!
//! This crate turns arguments into calls of `tenfold-archive` and results into tables, JSON, progress bars and exit codes.
//! It does not know file formats. It is a library so that the Python package can contain the command, and so that
//! `tenfold-lab` can share its parts.

mod args;
mod commands;
pub mod exit;
mod print;
mod progress;
mod table;
mod trace;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

pub use args::{EffortArg, EngineArg, EngineArgs, positive};
pub use commands::engine;
pub use print::{Stdout, out};

/// Runs the command with these arguments, its own name first, and returns its exit code. Output goes to the process's
/// standard streams.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    run_command("tenfold", args, commands::run, exit::code)
}

/// The command's grammar and help, from which manual pages and completions are made.
pub fn command() -> clap::Command {
    args::Cli::command()
}

/// Parses the arguments of a command, does its work, prints an error, and returns the exit code.
pub fn run_command<C: Parser>(
    name: &str,
    args: impl IntoIterator<Item = OsString>,
    work: impl FnOnce(C) -> anyhow::Result<u8>,
    code: impl FnOnce(&anyhow::Error) -> u8,
) -> u8 {
    // NVDEC beside the video codecs of this build; costs nothing where there is none.
    tenfold_nvcodec::register();
    let args = match C::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Help and the version arrive here too. A closed pipe is no failure.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
        }
    };
    work(args).unwrap_or_else(|error| {
        eprintln!("{name}: {}", exit::text(&error));
        code(&error)
    })
}

/// Stops libraries from writing to standard error. SVT-AV1 prints its settings there each time it starts, and only an
/// environment variable stops it.
///
/// # Safety
/// No other thread may run yet: the environment has no lock.
#[allow(unsafe_code)]
pub unsafe fn quiet_libraries() {
    if std::env::var_os("SVT_LOG").is_none() {
        // SAFETY: the caller runs no other thread.
        unsafe { std::env::set_var("SVT_LOG", "1") };
    }
}
