//! The ways of coding that this machine has, measured for a kind of tensors.

use std::time::Duration;

use tenfold::engine::SharedEngine;
use tenfold::{Effort, Goal};
use tenfold_cuda::CudaEngine;
use tenfold_plan::Rates;
use tenfold_plan::measure::{self, Kind, Way};

use crate::args::SendArgs;

/// The lossy goal if none is stated.
const GOAL: Goal = Goal::Bits(3.0);

/// Lossless, and the goal at each effort, on the CPU and on the device if there is one. Nothing where the kind is not
/// worth coding.
pub(super) fn measure(
    args: &SendArgs,
    kind: &Kind,
    cores: usize,
    each: Duration,
    quiet: bool,
) -> anyhow::Result<Vec<(Way, Rates)>> {
    if kind.chunks.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = vec![("cpu", SharedEngine::default(), cores, 1.0)];
    if !args.cpu
        && let Ok(device) = CudaEngine::open(0)
    {
        places.push(("cuda", SharedEngine::new(device), 1, 0.0));
    }
    let goal = args.goal.goal.unwrap_or(GOAL);
    let mut wanted = vec![(Goal::Lossless, Effort::Fast)];
    if kind.floats && goal != Goal::Lossless {
        wanted.extend(args.efforts.iter().map(|&effort| (goal, effort.into())));
    }
    let mut found = Vec::new();
    for (place, engine, workers, cores) in places {
        for &(goal, effort) in &wanted {
            let mut way = Way { place, engine: engine.clone(), goal, effort, workers, cores, plan: None };
            let dtype = kind.chunks[0].dtype;
            if let Err(reason) = way.engine.can_encode(dtype, &way.options()) {
                if !quiet {
                    eprintln!("tenfold: note: {} is left out: {reason}", way.name());
                }
                continue;
            }
            if place == "cpu" {
                way.settle(kind)?;
            }
            let rates = measure::rates(&way, kind, each)?;
            found.push((way, rates));
        }
    }
    Ok(found)
}
