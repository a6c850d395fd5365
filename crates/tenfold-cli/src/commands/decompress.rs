//! `tenfold decompress`.

use super::{hint_force, read_options};
use crate::args::DecompressArgs;
use crate::exit;
use crate::progress::Bar;

pub fn run(args: DecompressArgs, quiet: bool) -> anyhow::Result<u8> {
    let options = read_options(&args.decode)?;
    let bar = Bar::new(quiet);
    let result = tenfold_archive::decompress(&args.input, &args.output, options, args.force, &bar);
    drop(bar);
    hint_force(result, &args.output, args.force)?;
    Ok(exit::SUCCESS)
}
