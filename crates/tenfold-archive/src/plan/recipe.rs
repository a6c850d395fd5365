//! Recipes: a TOML file of goals by tensor.
//!
//! ```toml
//! [default]                 # tensors that no entry matches; the command line's goal goes first
//! bits = 3.0
//!
//! [[tensor]]                # entries are tried in order, the first match counts
//! match = "*.embed_tokens.*"
//! nmse = 1e-3               # a goal by its name, as in `Goal::NAMES`; or lossless = true
//! effort = "best"           # optional
//!
//! [[tensor]]
//! match = "*.norm.weight"
//! lossless = true
//! include = true            # also tensors that the default rule leaves (small, one dimension, integers)
//!
//! [[tensor]]
//! match = "lm_head.*"
//! skip = true               # leave as it is
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use globset::{Glob, GlobMatcher};
use serde::Deserialize;
use tenfold::{Effort, Goal};

use crate::error::{Error, Result};

/// Goals by tensor, in order of precedence.
#[derive(Debug, Clone, Default)]
pub struct Recipe {
    pub(crate) entries: Vec<Entry>,
    pub(crate) default: Option<Fallback>,
}

/// What an entry says to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Treatment {
    Skip,
    Goal(Goal),
}

/// The `[default]` of a recipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fallback {
    pub treatment: Treatment,
    pub effort: Option<Effort>,
}

/// One `[[tensor]]` of a recipe.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub matcher: GlobMatcher,
    pub treatment: Treatment,
    pub effort: Option<Effort>,
    pub include: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    default: Option<RawEntry>,
    #[serde(default)]
    tensor: Vec<RawEntry>,
}

#[derive(Deserialize)]
struct RawEntry {
    #[serde(rename = "match")]
    glob: Option<String>,
    #[serde(default)]
    skip: bool,
    #[serde(default)]
    include: bool,
    effort: Option<RawEffort>,
    /// Every other key.
    #[serde(flatten)]
    goals: BTreeMap<String, toml::Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawEffort {
    Fast,
    Balanced,
    Best,
}

impl Recipe {
    /// Reads a recipe file.
    pub fn read(path: &Path) -> Result<Recipe> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        Recipe::parse(&text)
            .map_err(|reason| Error::InvalidArgument(format!("recipe {}: {reason}", path.display())))
    }

    /// Parses the text of a recipe; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Recipe, String> {
        let raw: RawRecipe = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let default = match raw.default {
            Some(RawEntry { glob: Some(_), .. }) => return Err("[default] takes no `match`".into()),
            Some(RawEntry { include: true, .. }) => return Err("[default] takes no `include`".into()),
            Some(raw) => {
                let treatment = raw.treatment().map_err(|e| format!("[default] {e}"))?;
                Some(Fallback { treatment, effort: raw.effort() })
            }
            None => None,
        };
        let mut entries = Vec::with_capacity(raw.tensor.len());
        for (i, raw) in raw.tensor.iter().enumerate() {
            let place = |e: String| format!("[[tensor]] number {}: {e}", i + 1);
            let glob = raw.glob.as_deref().ok_or_else(|| place("has no `match`".into()))?;
            let matcher = Glob::new(glob).map_err(|e| place(e.to_string()))?.compile_matcher();
            let treatment = raw.treatment().map_err(place)?;
            entries.push(Entry { matcher, treatment, effort: raw.effort(), include: raw.include });
        }
        Ok(Recipe { entries, default })
    }

    /// Whether tensors that no entry matches are provided for.
    pub fn has_default(&self) -> bool {
        self.default.is_some()
    }
}

impl RawEntry {
    fn effort(&self) -> Option<Effort> {
        self.effort.map(|effort| match effort {
            RawEffort::Fast => Effort::Fast,
            RawEffort::Balanced => Effort::Balanced,
            RawEffort::Best => Effort::Best,
        })
    }

    fn treatment(&self) -> Result<Treatment, String> {
        let goals = self.goals.iter().filter_map(|(name, value)| parse_goal(name, value).transpose());
        let skip = self.skip.then_some(Ok(Treatment::Skip));
        let treatments: Vec<Treatment> =
            goals.map(|goal| goal.map(Treatment::Goal)).chain(skip).collect::<Result<_, _>>()?;
        match treatments.as_slice() {
            [one] => Ok(*one),
            [] => Err(format!(
                "states no goal: give one of {} (= true for the last), or skip = true",
                Goal::list_names()
            )),
            _ => Err("states more than one goal, or a goal and `skip`; keep one".into()),
        }
    }
}

/// The goal that an entry's key and value state; `None` for `lossless = false`.
fn parse_goal(name: &str, value: &toml::Value) -> Result<Option<Goal>, String> {
    let number = match value {
        toml::Value::Float(number) => Some(*number),
        toml::Value::Integer(number) => Some(*number as f64),
        toml::Value::Boolean(stated) if name == Goal::Lossless.name() => {
            return Ok(stated.then_some(Goal::Lossless));
        }
        _ => None,
    };
    Goal::from_name(name, number).map(Some).map_err(|error| error.to_string())
}
