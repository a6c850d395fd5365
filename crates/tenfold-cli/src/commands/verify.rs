//! `tenfold verify`.

use super::read_options;
use crate::args::VerifyArgs;
use crate::exit;
use crate::print;
use crate::progress::Bar;

pub fn run(args: VerifyArgs, quiet: bool) -> anyhow::Result<u8> {
    let options = read_options(&args.decode)?;
    let bar = Bar::new(quiet);
    let verified = tenfold_archive::verify(&args.input, options, &bar)?;
    drop(bar);
    if args.json {
        print::json(&verified)?;
    } else if !quiet {
        print::out(&format!(
            "{}: {} of {} tensors are compressed; all checksums match and every tensor decodes ({} from {})\n",
            args.input.display(),
            verified.blobs,
            verified.tensors,
            print::bytes(verified.original_bytes),
            print::bytes(verified.stored_bytes),
        ))?;
        for uncovered in &verified.uncovered {
            print::out(&format!(
                "{}: no checksum covers the header (names, dtypes, shapes, order, metadata) or the {} plain tensors ({}): \
                 compress the original again to add checksums\n",
                uncovered.file,
                uncovered.tensors,
                print::bytes(uncovered.bytes),
            ))?;
        }
    }
    Ok(exit::SUCCESS)
}
