//! What rows are of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, invalid};

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Keys of a layer, before rotary positions.
    Keys,
    /// Values of a layer.
    Values,
    /// The residual stream before a layer.
    Hidden,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Keys, Kind::Values, Kind::Hidden];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Keys => "keys",
            Kind::Values => "values",
            Kind::Hidden => "hidden",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| invalid(format!("{text:?} is none of keys, values, hidden")))
    }
}
