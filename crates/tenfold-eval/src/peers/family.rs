//! The list of everybody in a race: a family is one curve, a coder over its rates.

use ::tenfold::{Effort, Goal};

use super::{Peer, Tenfold};

/// What sort of coder a family is; tables and colours go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// tenfold's own.
    Ours,
    /// A video codec on pictures of the tensor.
    Video,
    /// A quantiser with fixed-length codes.
    Quantiser,
    /// A quantiser with a general-purpose entropy coder behind it.
    Entropy,
    /// A compressor of scientific arrays.
    Scientific,
    /// Every bit comes back.
    Lossless,
}

/// One coder over its rates.
pub struct Family {
    /// Name on the command line: lower case, digits and dashes.
    pub id: &'static str,
    /// Name in tables and legends.
    pub title: &'static str,
    /// What sort of coder it is.
    pub kind: Kind,
    members: fn(&[f64]) -> Vec<Box<dyn Peer>>,
}

impl Family {
    /// A family of a test's own.
    #[cfg(test)]
    pub(crate) const fn new(
        id: &'static str,
        title: &'static str,
        kind: Kind,
        members: fn(&[f64]) -> Vec<Box<dyn Peer>>,
    ) -> Self {
        Family { id, title, kind, members }
    }

    /// The points of the curve: coders that can be aimed give one for each rate asked for (bits a
    /// value), those with fixed rates all they have, lossless ones a single point.
    pub fn members(&self, rates: &[f64]) -> Vec<Box<dyn Peer>> {
        (self.members)(rates)
    }
}

/// Everybody, in the order of tables. What is not available on this machine is listed too; its
/// members' [`Peer::probe`] says why.
pub fn families() -> &'static [Family] {
    &FAMILIES
}

fn ours(rates: &[f64], effort: Effort) -> Vec<Box<dyn Peer>> {
    rates.iter().map(|&b| Box::new(Tenfold::new(Goal::Bits(b), effort)) as Box<dyn Peer>).collect()
}

static FAMILIES: [Family; 3] = [
    Family {
        id: "fast",
        title: "tenfold fast",
        kind: Kind::Ours,
        members: |rates| ours(rates, Effort::Fast),
    },
    Family {
        id: "balanced",
        title: "tenfold balanced",
        kind: Kind::Ours,
        members: |rates| ours(rates, Effort::Balanced),
    },
    Family {
        id: "best",
        title: "tenfold best",
        kind: Kind::Ours,
        members: |rates| ours(rates, Effort::Best),
    },
];
