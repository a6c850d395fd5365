//! The race itself: every runner on every tensor, what is known already left out.

use std::fs;

use anyhow::{Context, Result};

use super::field::{Field, Runner, choose};
use super::inputs::{self, Input};
use super::measure::measure;
use super::state::{Key, Origin, State};
use super::{Absent, Entrant, Heat, Row};
use crate::bench::progress;
use crate::peers::{Family, Fidelity, Kind};
use crate::race::RaceArgs;

/// Picture of a coder's error.
pub(crate) struct Picture {
    pub input: usize,
    pub family: String,
    pub peer: String,
    pub bits: f64,
    pub heat: Heat,
}

/// Everything that was measured.
pub(crate) struct Outcome {
    pub inputs: Vec<Input>,
    pub entrants: Vec<Entrant>,
    pub absent: Vec<Absent>,
    pub rows: Vec<Row>,
    pub pictures: Vec<Picture>,
    /// Rows that came from an earlier run.
    pub kept: usize,
    /// Commit of this run.
    pub commit: String,
}

/// Races all chosen members of `families` on all chosen tensors.
pub(crate) fn race(args: &RaceArgs, families: &[Family]) -> Result<Outcome> {
    let inputs = inputs::load(args)?;
    let Field { runners, entrants, absent } = choose(args, families)?;
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let origin = Origin::detect(args);
    let commit = origin.commit.clone();
    let mut state = State::open(&args.out, origin, args)?;
    let mut outcome = Outcome {
        inputs: Vec::new(),
        entrants,
        absent,
        rows: Vec::new(),
        pictures: Vec::new(),
        kept: 0,
        commit,
    };
    let bar = progress::bar(inputs.len() * runners.len(), args.quiet);
    for (number, input) in inputs.iter().enumerate() {
        for runner in &runners {
            bar.set_message(format!("{} · {}", input.name, runner.peer.name()));
            outcome.run(number, input, runner, args, &mut state)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    outcome.inputs = inputs;
    Ok(outcome)
}

impl Outcome {
    fn run(
        &mut self,
        number: usize,
        input: &Input,
        runner: &Runner<'_>,
        args: &RaceArgs,
        state: &mut State,
    ) -> Result<()> {
        let lossless = runner.peer.abilities().fidelity == Fidelity::Lossless;
        // Coders that cannot be aimed are pictured at every rate; the nearest one is shown.
        let picture = !lossless && runner.target.is_none_or(|rate| rate == args.picture_rate());
        let key = Key {
            tensor: input.name.clone(),
            fingerprint: input.fingerprint.clone(),
            family: runner.family.id.to_string(),
            peer: runner.peer.name(),
            target: runner.target,
        };
        let mut row = Row {
            file: input.file.clone(),
            tensor: input.name.clone(),
            kind: input.kind,
            input: number,
            family: key.family.clone(),
            peer: key.peer.clone(),
            lossless,
            target: key.target,
            commit: state.origin().commit.clone(),
            failure: None,
            measured: None,
        };
        let heat = if let Some(line) = state.find(&key, runner.family.kind == Kind::Ours, picture) {
            self.kept += 1;
            row.commit.clone_from(&line.origin.commit);
            row.measured = Some(line.measured.clone());
            line.heat.clone()
        } else {
            match measure(runner.peer.as_ref(), &input.tensor, state.origin().timing(), picture) {
                Ok((measured, heat)) => {
                    state.add(key, &measured, heat.as_ref())?;
                    row.measured = Some(measured);
                    heat
                }
                // A failure is not kept: what is missing may be there next time.
                Err(reason) => {
                    row.failure = Some(reason);
                    None
                }
            }
        };
        if let (true, Some(heat), Some(measured)) = (picture, heat, &row.measured) {
            let (family, peer) = (row.family.clone(), row.peer.clone());
            self.pictures.push(Picture { input: number, family, peer, bits: measured.bits, heat });
        }
        self.rows.push(row);
        Ok(())
    }
}
