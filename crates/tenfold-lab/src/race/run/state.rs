//! What was measured, kept line by line so that a race that was stopped goes on where it was.
//!
//! A line is appended and flushed as soon as its measurement is done. A last line that is torn is no line.
//! Which lines still hold is decided when they are read: see [`State::find`].

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::measure::Timing;
use super::{Heat, Measured};
use crate::bench::Machine;
use crate::bench::report::commit;
use crate::race::RaceArgs;

/// Name in the output folder.
pub(crate) const STATE_FILE: &str = "state.jsonl";

/// What a measurement is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub tensor: String,
    pub fingerprint: String,
    pub family: String,
    pub peer: String,
    pub target: Option<f64>,
}

/// What a measurement was made with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub version: String,
    /// Checksum of the program: a commit says nothing about what was built before it.
    pub build: String,
    pub commit: String,
    pub machine: String,
    /// Timed runs and threads; `None` without speeds.
    pub timing: Option<(usize, usize)>,
}

impl Origin {
    /// This program on this machine.
    pub fn detect(args: &RaceArgs) -> Self {
        let machine = Machine::detect();
        let program = std::env::current_exe().and_then(fs::read);
        Origin {
            version: env!("CARGO_PKG_VERSION").to_string(),
            build: program.map_or("unknown".to_string(), |bytes| format!("{:08x}", crc32fast::hash(&bytes))),
            commit: commit(),
            machine: format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.system),
            timing: args.speed.then(|| (args.timed_runs(), args.all_threads())),
        }
    }

    pub fn timing(&self) -> Option<Timing> {
        self.timing.map(|(runs, threads)| Timing { runs, threads })
    }
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub key: Key,
    pub origin: Origin,
    pub measured: Measured,
    pub heat: Option<Heat>,
}

/// The file, and what it held at the start.
pub(crate) struct State {
    file: File,
    path: PathBuf,
    origin: Origin,
    keep_peers: bool,
    lines: HashMap<String, Line>,
}

impl State {
    /// Opens the file of an output folder; `fresh` empties it.
    pub fn open(folder: &Path, origin: Origin, args: &RaceArgs) -> Result<Self> {
        let path = folder.join(STATE_FILE);
        let told = || format!("cannot open {}", path.display());
        let text = match fs::read(&path) {
            Ok(bytes) if !args.fresh => bytes,
            Ok(_) => Vec::new(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e).with_context(told),
        };
        let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let lines = text[..whole].split(|&b| b == b'\n');
        let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
        let lines = lines.map(|line| (line.key.id(), line)).collect();
        let file = OpenOptions::new().create(true).append(true).open(&path).with_context(told)?;
        // What follows the last whole line would become the start of the next one.
        file.set_len(whole as u64).with_context(told)?;
        Ok(State { file, path, origin, keep_peers: args.keep_peers, lines })
    }

    /// A measurement that still holds: of the same values, by the same program. With `keep_peers`, that of
    /// another build of the same version is good enough for what is not ours. Speeds must be there if they
    /// are asked for, from this machine and measured the same way.
    pub fn find(&self, key: &Key, ours: bool, picture: bool) -> Option<&Line> {
        let line = self.lines.get(&key.id())?;
        let (then, now) = (&line.origin, &self.origin);
        let builder = then.build == now.build || (self.keep_peers && !ours);
        let speeds = now.timing.is_none() || (then.timing == now.timing && then.machine == now.machine);
        // A constant tensor has no scale and therefore no picture.
        let constant = line.measured.max_error_over_std.is_none();
        let pictured = !picture || line.heat.is_some() || constant;
        let holds = then.version == now.version && builder && speeds && pictured;
        holds.then_some(line)
    }

    /// Keeps a measurement, at once.
    pub fn add(&mut self, key: Key, measured: &Measured, heat: Option<&Heat>) -> Result<()> {
        let line = Line { key, origin: self.origin.clone(), measured: measured.clone(), heat: heat.cloned() };
        let mut text = serde_json::to_string(&line).context("a measurement does not serialise")?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl Key {
    /// All fields as text: floats are no keys of a map.
    fn id(&self) -> String {
        let Key { tensor, fingerprint, family, peer, target } = self;
        format!("{tensor:?} {fingerprint} {family} {peer:?} {target:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tensor: &str, target: Option<f64>) -> Key {
        let text = |s: &str| s.to_string();
        Key { tensor: text(tensor), fingerprint: text("f"), family: text("x"), peer: text("x 1"), target }
    }

    fn measured() -> Measured {
        Measured {
            bytes: 100,
            bits: 2.5,
            nmse: Some(0.1),
            mse: 0.2,
            max_error: 0.3,
            max_error_over_std: Some(2.0),
            gap: Some(0.1 + 0.2),
            lost_specials: 0,
            speeds: Vec::new(),
        }
    }

    fn origin(build: &str, timing: Option<(usize, usize)>) -> Origin {
        let text = |s: &str| s.to_string();
        Origin { version: text("1"), build: text(build), commit: text("c"), machine: text("m"), timing }
    }

    #[test]
    fn lines_survive_and_a_torn_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let args = RaceArgs::new(Vec::new());
        let mut state = State::open(folder.path(), origin("a", None), &args).unwrap();
        let heat = Heat { rows: 1, cols: 2, data: vec![3, 255] };
        state.add(key("a", Some(1.5)), &measured(), Some(&heat)).unwrap();
        state.add(key("b", None), &measured(), None).unwrap();
        drop(state);
        let path = folder.path().join(STATE_FILE);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut state = State::open(folder.path(), origin("a", None), &args).unwrap();
        let kept = state.find(&key("a", Some(1.5)), true, true).unwrap();
        assert_eq!((&kept.measured, kept.heat.as_ref()), (&measured(), Some(&heat)));
        assert!(state.find(&key("b", None), true, false).is_none(), "torn");
        assert!(state.find(&key("a", Some(2.0)), true, false).is_none());
        // The next line does not stick to the torn one.
        state.add(key("c", None), &measured(), None).unwrap();
        drop(state);
        let state = State::open(folder.path(), origin("a", None), &args).unwrap();
        assert!(state.find(&key("c", None), true, false).is_some());
        assert!(state.find(&key("c", None), true, true).is_none(), "the picture is missing");
    }

    #[test]
    fn other_programs_machines_and_timings_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut args = RaceArgs::new(Vec::new());
        let mut state = State::open(folder.path(), origin("a", Some((3, 2))), &args).unwrap();
        state.add(key("a", None), &measured(), None).unwrap();
        drop(state);
        let found = |origin: Origin, args: &RaceArgs, ours| {
            State::open(folder.path(), origin, args).unwrap().find(&key("a", None), ours, false).is_some()
        };
        assert!(found(origin("a", Some((3, 2))), &args, true));
        assert!(found(origin("a", None), &args, true), "speeds that nobody asks for do no harm");
        assert!(!found(origin("a", Some((5, 2))), &args, true));
        assert!(!found(Origin { machine: "n".into(), ..origin("a", Some((3, 2))) }, &args, true));
        assert!(!found(Origin { version: "2".into(), ..origin("a", None) }, &args, false));
        assert!(!found(origin("b", None), &args, false));
        args.keep_peers = true;
        assert!(found(origin("b", None), &args, false));
        assert!(!found(origin("b", None), &args, true), "ours is measured again");
        args.fresh = true;
        assert!(!found(origin("a", None), &args, false));
    }
}
