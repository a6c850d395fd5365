//! tenfold at its three efforts.

use ::tenfold::{Effort, Goal};

use super::{Row, boxed};
use crate::peers::{Peer, Tenfold};

pub(super) const ROWS: &[Row] = &[
    ("fast", "tenfold fast", |rates| ours(rates, Effort::Fast)),
    ("balanced", "tenfold balanced", |rates| ours(rates, Effort::Balanced)),
    ("best", "tenfold best", |rates| ours(rates, Effort::Best)),
];

fn ours(rates: &[f64], effort: Effort) -> Vec<Box<dyn Peer>> {
    rates.iter().map(|&b| boxed(Tenfold::new(Goal::Bits(b), effort))).collect()
}
