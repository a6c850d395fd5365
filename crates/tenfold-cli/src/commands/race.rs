//! `tenfold race`.

use tenfold_eval::load::Malformed;
use tenfold_eval::peers::families;
use tenfold_eval::race::{self, RaceError, TensorKind};

use crate::args::{KindArg, RaceArgs};
use crate::exit::{self, Usage};
use crate::print::{self, Stdout};

pub fn run(args: RaceArgs, quiet: bool) -> anyhow::Result<u8> {
    if args.list {
        print::out(&list())?;
        return Ok(exit::SUCCESS);
    }
    match race::race(&options(args, quiet), families(), &mut Stdout) {
        Ok(_) => Ok(exit::SUCCESS),
        Err(error) => match error.downcast_ref::<RaceError>() {
            Some(RaceError::Usage(reason)) => Err(Usage(reason.clone()).into()),
            Some(RaceError::Data(reason)) => Err(Malformed(reason.clone()).into()),
            _ => Err(error),
        },
    }
}

/// A line for each peer: id, name, and why it cannot run.
fn list() -> String {
    let line = |family: &tenfold_eval::peers::Family| {
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

fn options(args: RaceArgs, quiet: bool) -> race::RaceArgs {
    let mut options = race::RaceArgs::new(args.files);
    options.peers = args.peers;
    options.tensors = args.tensors;
    options.rates = args.rates;
    options.kind = args.kind.map(TensorKind::from);
    options.max_values = args.max_values.map(|n| n as usize);
    options.repeats = args.repeats as usize;
    options.speed = !args.no_speed;
    options.threads = args.threads;
    options.reference = args.reference;
    options.out = args.out;
    options.quick = args.quick;
    options.fresh = args.fresh;
    options.keep_peers = args.keep_peers;
    options.quiet = quiet;
    options
}

impl From<KindArg> for TensorKind {
    fn from(kind: KindArg) -> TensorKind {
        match kind {
            KindArg::Weights => TensorKind::Weights,
            KindArg::Kv => TensorKind::Kv,
            KindArg::Activations => TensorKind::Activations,
            KindArg::Gradients => TensorKind::Gradients,
            KindArg::Other => TensorKind::Other,
        }
    }
}
