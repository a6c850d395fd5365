//! One file a command; this one only dispatches.

mod basis;
mod bench;
mod compare;
mod compress;
mod decompress;
mod delta;
pub mod engine;
mod engines;
mod inspect;
#[cfg(feature = "net")]
mod link;
mod plan;
mod selftest;
mod verify;

use tenfold::DecodeOptions;
use tenfold::engine::Limits;
use tenfold_archive::ReadOptions;

use crate::args::{Cli, Command, CompletionsArgs, Decode};
use crate::exit;

/// Runs a command and returns its exit code.
pub fn run(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Compress(args) => compress::run(*args, cli.quiet),
        Command::Decompress(args) => decompress::run(args, cli.quiet),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args, cli.quiet),
        Command::Compare(args) => compare::run(args, cli.quiet),
        Command::Delta(args) => delta::run(args, cli.quiet),
        Command::Basis(args) => basis::run(args, cli.quiet),
        #[cfg(feature = "net")]
        Command::Serve(args) => link::serve(args, cli.quiet),
        #[cfg(feature = "net")]
        Command::Pull(args) => link::run_pull(*args, cli.quiet),
        Command::Bench(args) => bench::run(*args, cli.quiet),
        Command::Plan(args) => plan::run(*args, cli.quiet),
        Command::Engines(args) if args.selftest => selftest::run(args.json),
        Command::Engines(args) => engines::run(args),
        Command::Completions(args) => completions(args),
    }
}

fn completions(args: CompletionsArgs) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "tenfold", &mut script);
    crate::print::out(&String::from_utf8_lossy(&script))?;
    Ok(exit::SUCCESS)
}

/// Options for reading, with an engine that decodes every blob this build can.
fn read_options(decode: &Decode) -> anyhow::Result<ReadOptions> {
    let mut limits = Limits::default();
    if let Some(bytes) = decode.max_tensor_bytes {
        limits = limits.with_max_bytes(bytes);
    }
    let options = DecodeOptions::default().with_threads(decode.threads.threads).with_limits(limits);
    Ok(ReadOptions::from(&options).with_engine(engine::reader(&decode.engine, decode.decoder.as_deref())?))
}

/// Names --force in the error for an output that exists.
fn hint_force<T>(
    result: tenfold_archive::Result<T>,
    output: &std::path::Path,
    force: bool,
) -> anyhow::Result<T> {
    result.map_err(|error| match error {
        tenfold_archive::Error::OutputExists(_) if !force => {
            exit::Usage(format!("{} already exists; use --force to replace it", output.display())).into()
        }
        error => error.into(),
    })
}
