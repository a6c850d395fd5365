//! The field: which families run, with which members, and who is absent and why.

use anyhow::Result;
use serde::Serialize;
use tenfold_cli::exit::Usage;

use crate::peers::{Family, Kind, Peer, Rate, find};
use crate::race::RaceArgs;

/// A family that was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entrant {
    /// Name on the command line.
    pub id: String,
    /// Name in tables.
    pub title: String,
    /// What sort of coder it is.
    pub kind: &'static str,
    /// Whether it is tenfold's own.
    pub ours: bool,
}

/// A family that was chosen and cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Who.
    #[serde(flatten)]
    pub entrant: Entrant,
    /// Why, and what to install.
    pub reason: String,
}

/// One point of a curve, ready to run.
pub(crate) struct Runner<'a> {
    pub family: &'a Family,
    pub peer: Box<dyn Peer>,
    /// Bits a value that were asked for; `None` for coders that cannot be aimed.
    pub target: Option<f64>,
}

/// Everybody who was chosen.
pub(crate) struct Field<'a> {
    pub runners: Vec<Runner<'a>>,
    pub entrants: Vec<Entrant>,
    pub absent: Vec<Absent>,
}

/// Chooses as [`find`] does, everybody if nobody is named, and asks each whether it can run.
pub(crate) fn choose<'a>(args: &RaceArgs, families: &'a [Family]) -> Result<Field<'a>> {
    let chosen = match args.peers[..] {
        [] => families.iter().collect(),
        _ => find(families, &args.peers).map_err(|e| Usage(e.to_string()))?,
    };
    let mut field = Field { runners: Vec::new(), entrants: Vec::new(), absent: Vec::new() };
    for family in chosen {
        let entrant = Entrant {
            id: family.id.to_string(),
            title: family.title.to_string(),
            kind: family.kind.name(),
            ours: family.kind == Kind::Ours,
        };
        let runners = runners(family, &args.aimed_rates(entrant.ours));
        let verdict = match runners.first() {
            Some(first) => first.peer.probe().map_err(|e| e.to_string()),
            None => Err("it has no setting for any of the rates".to_string()),
        };
        match verdict {
            Ok(()) => {
                field.entrants.push(entrant);
                field.runners.extend(runners);
            }
            Err(reason) => field.absent.push(Absent { entrant, reason }),
        }
    }
    Ok(field)
}

/// Members that can be aimed are made a rate at a time, so that each is known by what was asked of it.
fn runners<'a>(family: &'a Family, rates: &[f64]) -> Vec<Runner<'a>> {
    let aimed = |peer: &dyn Peer| peer.abilities().rate == Rate::Any;
    let mut out = Vec::new();
    for &rate in rates {
        let members = family.members(&[rate]).into_iter().filter(|p| aimed(p.as_ref()));
        out.extend(members.map(|peer| Runner { family, peer, target: Some(rate) }));
    }
    let fixed = family.members(rates).into_iter().filter(|p| !aimed(p.as_ref()));
    out.extend(fixed.map(|peer| Runner { family, peer, target: None }));
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::peers::families;

    #[test]
    fn each_member_is_known_by_its_own_name_and_rate() {
        // Two members of one name and rate would share a line of the state file.
        for family in families() {
            let mut seen = HashSet::new();
            for runner in runners(family, &[1.5, 2.0, 3.0]) {
                let key = (runner.peer.name(), runner.target.map(f64::to_bits));
                assert!(seen.insert(key), "{}: {} twice", family.id, runner.peer.name());
            }
        }
    }

    #[test]
    fn an_unknown_peer_is_told_with_those_there_are() {
        let mut args = RaceArgs::new(Vec::new());
        args.peers = vec!["best".into(), "nobody*".into()];
        let error = choose(&args, families()).err().unwrap().to_string();
        assert!(error.contains("nobody*") && error.contains("balanced"), "{error}");
        args.peers = vec!["b*".into()];
        let field = choose(&args, families()).unwrap();
        assert!(field.entrants.iter().all(|e| e.id.starts_with('b')));
        assert!(field.entrants.iter().any(|e| e.id == "best"));
    }
}
