//! `tenfold eval`.

use tenfold_eval::ablation;

use crate::args::{AblationArgs, EvalArgs, EvalCommand};
use crate::exit::{self, Usage};
use crate::print::Stdout;

pub fn run(args: EvalArgs, quiet: bool) -> anyhow::Result<u8> {
    match args.what {
        EvalCommand::Ablation(args) => run_ablation(&args, quiet),
    }
}

fn run_ablation(args: &AblationArgs, quiet: bool) -> anyhow::Result<u8> {
    if args.nmse >= 1.0 || !(8..=12).contains(&args.depth) || args.size.is_some_and(|n| n < 256) {
        let message = "--nmse lies below 1, --depth between 8 and 12, --size at 256 or above";
        return Err(Usage(message.into()).into());
    }
    let mut options = ablation::AblationArgs::new(args.files.clone());
    options.only = args.only.clone();
    options.nmse = args.nmse;
    options.depth = args.depth;
    options.size = args.size;
    options.quick = args.quick;
    options.quiet = quiet;
    options.json = args.json.clone();
    options.pictures = args.pictures.clone();
    ablation::run(&options, &mut Stdout)?;
    Ok(exit::SUCCESS)
}
