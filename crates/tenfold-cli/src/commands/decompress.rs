//! `tenfold decompress`.

use std::process::ExitCode;

use super::{hint_force, read_options};
use crate::args::DecompressArgs;
use crate::progress::Bar;

pub fn run(args: DecompressArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let options = read_options(&args.decode)?;
    let bar = Bar::new(quiet);
    let result = tenfold_archive::decompress(&args.input, &args.output, options, args.force, &bar);
    drop(bar);
    hint_force(result, &args.output, args.force)?;
    Ok(ExitCode::SUCCESS)
}
