//! `tenfold decompress`.

use super::{hint_force, read_options};
use crate::args::DecompressArgs;
use crate::progress::Bar;
use crate::{exit, print, trace};

pub fn run(args: DecompressArgs, quiet: bool) -> anyhow::Result<u8> {
    let options = read_options(&args.decode)?;
    let timeline = options.timeline.clone();
    let bar = Bar::new(quiet);
    let result = tenfold_archive::decompress(&args.input, &args.output, options, args.force, &bar);
    drop(bar);
    let traced = trace::write(args.trace.as_deref(), &timeline);
    hint_force(result, &args.output, args.force)?;
    traced?;
    if !quiet {
        print::out(&trace::text(args.trace.as_deref(), &timeline))?;
    }
    Ok(exit::SUCCESS)
}
