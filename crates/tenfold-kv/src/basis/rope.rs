//! What a model's rotary embedding does to keys, without positions: those belong to rows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tenfold::prepare::{Pairing, Positions, Rope, Scaling};

use crate::error::{Error, Result, invalid};

/// Parameters of a rotary embedding, as text `base=100000,head=64,pairing=halves`.
///
/// Further parts: `turned=N` columns of each head that rotate (all by default), `linear=X` for frequencies
/// divided by X, or all four of `factor=X,low=X,high=X,original=N` for Llama 3's scaling.
///
/// ```
/// use tenfold_kv::basis::RopeSpec;
/// let rope: RopeSpec = "base=10000,head=64,pairing=neighbours".parse()?;
/// assert_eq!(rope.head(), 64);
/// assert!("base=10000".parse::<RopeSpec>().is_err()); // no head
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RopeSpec {
    base: f64,
    head: usize,
    pairing: Pairing,
    turned: usize,
    scaling: Scaling,
}

impl RopeSpec {
    /// Heads of this many columns, all of which rotate, paired by halves.
    pub fn new(head: usize, base: f64) -> Result<Self> {
        RopeSpec { base, head, pairing: Pairing::Halves, turned: head, scaling: Scaling::None }.validate()
    }

    /// Sets which columns belong together.
    pub fn with_pairing(mut self, pairing: Pairing) -> Self {
        self.pairing = pairing;
        self
    }

    /// Sets how many columns of each head rotate.
    pub fn with_turned(mut self, turned: usize) -> Result<Self> {
        self.turned = turned;
        self.validate()
    }

    /// Sets the scaling of frequencies.
    pub fn with_scaling(mut self, scaling: Scaling) -> Result<Self> {
        self.scaling = scaling;
        self.validate()
    }

    /// Columns of a head.
    pub fn head(&self) -> usize {
        self.head
    }

    /// The transform for rows at these positions.
    pub fn at(&self, positions: Positions) -> Result<Rope> {
        let rope = Rope::new(self.head, self.base)?.with_pairing(self.pairing).with_turned(self.turned)?;
        Ok(rope.with_scaling(self.scaling)?.with_positions(positions)?)
    }

    fn validate(self) -> Result<Self> {
        self.at(Positions::From(0))?;
        Ok(self)
    }
}

impl fmt::Display for RopeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairing = match self.pairing {
            Pairing::Halves => "halves",
            Pairing::Neighbours => "neighbours",
        };
        write!(f, "base={},head={},pairing={pairing}", self.base, self.head)?;
        if self.turned != self.head {
            write!(f, ",turned={}", self.turned)?;
        }
        match self.scaling {
            Scaling::Linear(by) => write!(f, ",linear={by}"),
            Scaling::Llama3 { factor, low, high, original } => {
                write!(f, ",factor={factor},low={low},high={high},original={original}")
            }
            _ => Ok(()),
        }
    }
}

impl From<RopeSpec> for String {
    fn from(rope: RopeSpec) -> String {
        rope.to_string()
    }
}

impl TryFrom<String> for RopeSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for RopeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |part: &str| invalid(format!("rotary positions: {part:?} is unknown or malformed"));
        let mut numbers = std::collections::BTreeMap::new();
        let mut pairing = Pairing::Halves;
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
            match (name.trim(), value.trim()) {
                ("pairing", "halves") => pairing = Pairing::Halves,
                ("pairing", "neighbours") => pairing = Pairing::Neighbours,
                (
                    name @ ("base" | "head" | "turned" | "linear" | "factor" | "low" | "high" | "original"),
                    value,
                ) => {
                    let number: f64 = value.parse().map_err(|_| wrong(part))?;
                    if numbers.insert(name, number).is_some() {
                        return Err(invalid(format!("rotary positions: {name} appears twice")));
                    }
                }
                _ => return Err(wrong(part)),
            }
        }
        let take = |name: &str| numbers.get(name).copied();
        let need = |name: &str| take(name).ok_or_else(|| invalid(format!("rotary positions need {name}=…")));
        let whole = |name: &str, v: f64| {
            let fits = v.fract() == 0.0 && (1.0..=65536.0).contains(&v);
            // Between 1 and 65536: exact.
            if fits { Ok(v as usize) } else { Err(invalid(format!("rotary positions: {name}={v}"))) }
        };
        let mut rope = RopeSpec::new(whole("head", need("head")?)?, need("base")?)?.with_pairing(pairing);
        if let Some(turned) = take("turned") {
            rope = rope.with_turned(whole("turned", turned)?)?;
        }
        let scaled = ["factor", "low", "high", "original"].iter().any(|name| take(name).is_some());
        match (take("linear"), scaled) {
            (Some(_), true) => {
                Err(invalid("rotary positions: state either linear, or factor, low, high and original"))
            }
            (Some(by), false) => rope.with_scaling(Scaling::Linear(by)),
            (None, true) => rope.with_scaling(Scaling::Llama3 {
                factor: need("factor")?,
                low: need("low")?,
                high: need("high")?,
                original: need("original")?,
            }),
            (None, false) => Ok(rope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back() {
        for text in [
            "base=10000,head=64,pairing=halves",
            "base=100000,head=64,pairing=neighbours,turned=32,linear=2",
            "base=500000,head=128,pairing=halves,factor=8,low=1,high=4,original=8192",
        ] {
            assert_eq!(text.parse::<RopeSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "base=1e4",
            "head=64",
            "base=1e4,head=64.5",
            "base=0.5,head=64",
            "base=1e4,head=64,pairing=thirds",
            "base=1e4,base=1e4,head=64",
            "base=1e4,head=64,factor=8",
            "base=1e4,head=64,turned=65",
            "base=x,head=64",
            "base=1e4,head=64,linear=2,factor=8,low=1,high=4,original=8192",
        ] {
            assert!(
                matches!(text.parse::<RopeSpec>(), Err(e) if e.kind() == tenfold::engine::ErrorKind::Caller),
                "{text}"
            );
        }
    }
}
