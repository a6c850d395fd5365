//! The command line: one subcommand for each program.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use tenfold_cli::{Stdout, exit};

use crate::ablation::{self, AblationArgs};
use crate::bench::{self, BenchArgs, NvcompError, NvmlError};
use crate::load::Malformed;
use crate::peers::{Family, families};
use crate::race::{self, RaceArgs};

/// Measure tenfold beside other coders.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100, after_help = exit::HELP)]
struct Cli {
    /// No progress bar; errors are still told.
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<BenchArgs>),
    Race(Box<RaceArgs>),
    Ablation(AblationArgs),
}

const NAME: &str = "tenfold-lab";

/// Runs the command with these arguments, its own name first, and returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    tenfold_cli::run_command(NAME, args, dispatch, code)
}

fn dispatch(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Bench(mut args) => {
            args.quiet = cli.quiet;
            return run_bench(*args);
        }
        Command::Race(args) if args.list => tenfold_cli::out(&list())?,
        Command::Race(mut args) => {
            args.quiet = cli.quiet;
            race::race(&args, families(), &mut Stdout)?;
        }
        Command::Ablation(mut args) => {
            args.quiet = cli.quiet;
            ablation::run(&args, &mut Stdout)?;
        }
    }
    Ok(exit::SUCCESS)
}

fn run_bench(mut args: BenchArgs) -> anyhow::Result<u8> {
    args.open_engine()?;
    let report = bench::run(&args, &mut Stdout)?;
    let missed = report.checks.iter().filter(|check| !check.pass).count();
    if args.check && missed > 0 {
        eprintln!("{NAME}: {missed} of {} bars missed", report.checks.len());
        return Ok(exit::DATA);
    }
    Ok(exit::SUCCESS)
}

/// A line for each peer: id, name, and why it cannot run.
fn list() -> String {
    let line = |family: &Family| {
        // Any rate will do to ask: what a peer needs does not depend on it.
        let verdict = family.members(&[2.0, 4.0]).first().map(|peer| peer.probe());
        let state = match verdict {
            Some(Err(reason)) => reason.to_string(),
            _ => "here".to_string(),
        };
        format!("{:<20} {:<32} {state}\n", family.id, family.title)
    };
    families().iter().map(line).collect()
}

/// The exit code of an error.
fn code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<NvcompError>() {
        exit::from_kind(error.kind())
    } else if error.is::<NvmlError>() {
        exit::ENVIRONMENT
    } else if error.is::<Malformed>() {
        exit::DATA
    } else {
        exit::code(error)
    }
}

/// The arguments that a command line gives, for tests.
#[cfg(test)]
pub(crate) fn parse<A: clap::Args>(words: &[&str]) -> A {
    let command = A::augment_args(clap::Command::new(NAME)).no_binary_name(true);
    A::from_arg_matches(&command.get_matches_from(words)).unwrap()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        super::Cli::command().debug_assert();
    }
}
