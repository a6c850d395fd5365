//! Sets of captured files: text of one kind each, such as prose and code, with the share that it has in a basis.

use std::path::PathBuf;

use super::capture::Captured;
use super::kind::Kind;
use super::options::{FitOptions, Keys};
use crate::error::{Error, Result, invalid};

/// Most sets that a file has bases for.
pub const MOST_SETS: usize = 16;
/// Longest name of a set.
const LONGEST: usize = 64;

/// Captured files of one kind of text.
///
/// ```
/// use tenfold_kv::basis::Set;
/// let code = Set::new("code", vec!["code-0.safetensors".into(), "code-1.safetensors".into()]).with_weight(2.0);
/// assert_eq!((code.name.as_str(), code.files.len()), ("code", 2));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Set {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// Its share of means and covariances next to those of the others, whatever its number of rows. Default: 1.
    pub weight: f64,
    /// Its files.
    pub files: Vec<PathBuf>,
}

impl Set {
    /// A set with a share of 1.
    pub fn new(name: impl Into<String>, files: Vec<PathBuf>) -> Self {
        Set { name: name.into(), weight: 1.0, files }
    }

    /// Sets its share.
    pub fn with_weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }
}

/// Whether a set may have this name: it stands in names of tensors, where dots separate.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(plain)
}

/// An opened set.
pub(super) struct Source {
    pub name: Option<String>,
    pub weight: f64,
    pub captured: Captured,
}

impl Source {
    /// Files that belong to no set.
    pub fn unnamed(files: &[PathBuf], options: &FitOptions) -> Result<Vec<Source>> {
        if options.each {
            return Err(invalid("a basis for each set needs sets; name them"));
        }
        Ok(vec![Source { name: None, weight: 1.0, captured: Captured::open(files, &options.names)? }])
    }

    /// Opens sets once all of them have passed.
    pub fn open(sets: &[Set], options: &FitOptions) -> Result<Vec<Source>> {
        check_sets(sets)?;
        let open = |set: &Set| {
            let captured = Captured::open(&set.files, &options.names);
            let captured = captured.map_err(|error| of_set(Some(&set.name), error))?;
            Ok(Source { name: Some(set.name.clone()), weight: set.weight, captured })
        };
        sets.iter().map(open).collect()
    }

    /// An error that has to do with this set.
    pub fn blame(&self, error: Error) -> Error {
        of_set(self.name.as_deref(), error)
    }
}

/// Puts a set's name before an error's text where nothing else would tell.
fn of_set(name: Option<&str>, error: Error) -> Error {
    match (name, error) {
        (Some(name), Error::InvalidArgument(reason)) => invalid(format!("set {name:?}: {reason}")),
        (_, error) => error,
    }
}

/// Refuses sets that no basis can be made from, whatever their files hold.
pub fn check_sets(sets: &[Set]) -> Result<()> {
    if sets.is_empty() || sets.len() > MOST_SETS {
        return Err(invalid(format!("bases are made from 1 to {MOST_SETS} sets, not {}", sets.len())));
    }
    for (at, set) in sets.iter().enumerate() {
        let name = &set.name;
        if !is_name(name) {
            return Err(invalid(format!(
                "a set's name has 1 to {LONGEST} letters, digits, _ and -, unlike {name:?}"
            )));
        }
        if sets[..at].iter().any(|other| other.name == *name) {
            return Err(invalid(format!("there are two sets {name:?}; list all files in one")));
        }
        if set.files.is_empty() {
            return Err(invalid(format!("set {name:?} has no files")));
        }
        if !(set.weight.is_finite() && set.weight > 0.0) {
            return Err(invalid(format!(
                "set {name:?} has the weight {}; weights are positive numbers",
                set.weight
            )));
        }
    }
    Ok(())
}

/// The kinds that are both requested and captured. All sets must have the same layers of them.
pub(super) fn kinds(sources: &[Source], options: &FitOptions) -> Result<Vec<Kind>> {
    let captured = |source: &Source| -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|&k| !source.captured.layers(k).is_empty()).collect()
    };
    let Some(first) = sources.first() else { return Ok(Vec::new()) };
    let kinds = if options.kinds.is_empty() { captured(first) } else { options.kinds.clone() };
    for source in sources {
        let there = captured(source);
        if let Some(missing) = kinds.iter().find(|kind| !there.contains(kind)) {
            return Err(source.blame(invalid(format!("no {missing} were captured"))));
        }
        let turned = source.captured.find_turned().filter(|_| kinds.contains(&Kind::Keys));
        if let (Some(name), Keys::Unknown) = (turned, &options.keys) {
            return Err(invalid(format!(
                "keys {name:?} were captured after rotary positions: state them, or `none`"
            )));
        }
        // Without a request, what one set has all others must have.
        let asked = if options.kinds.is_empty() { &there } else { &kinds };
        for &kind in asked {
            let (found, expected) = (source.captured.layers(kind), first.captured.layers(kind));
            if found != expected {
                return Err(source.blame(invalid(format!(
                    "it has {kind} of layers {found:?}, and the first set of layers {expected:?}; capture the same of all sets"
                ))));
            }
        }
    }
    Ok(kinds)
}
