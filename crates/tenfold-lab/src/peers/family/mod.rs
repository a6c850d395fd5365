//! The list of everybody in a race: a family is one curve, a coder over its rates. Each kind of coder has
//! its table in a file of its own; a new family is a line there.

mod entropy;
mod find;
mod lossless;
mod ours;
mod quantiser;
mod scientific;
mod video;

use std::sync::LazyLock;

use super::Peer;

pub use find::{UnknownFamily, find};

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

impl Kind {
    /// All of them, in the order of tables.
    pub const ALL: [Kind; 6] =
        [Kind::Ours, Kind::Video, Kind::Quantiser, Kind::Entropy, Kind::Scientific, Kind::Lossless];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ours => "ours",
            Kind::Video => "video",
            Kind::Quantiser => "quantiser",
            Kind::Entropy => "entropy",
            Kind::Scientific => "scientific",
            Kind::Lossless => "lossless",
        }
    }
}

/// Makes the points of a curve for rates in bits a value.
type Members = fn(&[f64]) -> Vec<Box<dyn Peer>>;

/// One coder over its rates.
pub struct Family {
    /// Name on the command line: lower case, digits and dashes.
    pub id: &'static str,
    /// Name in tables and legends.
    pub title: &'static str,
    /// What sort of coder it is.
    pub kind: Kind,
    members: Members,
}

impl Family {
    /// A family of a test's own.
    #[cfg(test)]
    pub(crate) const fn new(id: &'static str, title: &'static str, kind: Kind, members: Members) -> Self {
        Family { id, title, kind, members }
    }

    /// The points of the curve: coders that can be aimed give one for each rate asked for (bits a
    /// value), those with fixed rates all they have, lossless ones a single point.
    pub fn members(&self, rates: &[f64]) -> Vec<Box<dyn Peer>> {
        (self.members)(rates)
    }
}

/// A row of a table: id, title, members.
type Row = (&'static str, &'static str, Members);

/// Everybody, in the order of tables. What is not available on this machine is listed too; its
/// members' [`Peer::probe`] says why.
pub fn families() -> &'static [Family] {
    static ALL: LazyLock<Vec<Family>> = LazyLock::new(|| {
        let tables: [(Kind, &[Row]); 6] = [
            (Kind::Ours, ours::ROWS),
            (Kind::Video, video::ROWS),
            (Kind::Quantiser, quantiser::ROWS),
            (Kind::Entropy, entropy::ROWS),
            (Kind::Scientific, scientific::ROWS),
            (Kind::Lossless, lossless::ROWS),
        ];
        let family = |kind, &(id, title, members): &Row| Family { id, title, kind, members };
        tables.iter().flat_map(|(kind, rows)| rows.iter().map(|row| family(*kind, row))).collect()
    });
    &ALL
}

/// A coder as a point of a curve.
fn boxed(peer: impl Peer + 'static) -> Box<dyn Peer> {
    Box::new(peer)
}
