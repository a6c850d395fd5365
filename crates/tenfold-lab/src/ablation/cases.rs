//! The combinations of stages that are measured.

use crate::intra::Stages;

/// A combination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    /// Heading in tables, and name in reports.
    pub name: &'static str,
    pub stages: Stages,
    /// Whether the step is one sample, so that samples stay as they are, rather than what the goal asks.
    pub exact: bool,
}

const fn case(name: &'static str, stages: Stages) -> Case {
    Case { name, stages, exact: false }
}

const ENTROPY: Stages = Stages { entropy: true, ..Stages::NONE };

/// Each adds a stage to the one before; the last has all stages of a still picture.
pub(super) const ORDER: [Case; 5] = [
    Case { name: "samples", stages: Stages::NONE, exact: true },
    case("+quantiser", Stages::NONE),
    case("+entropy", ENTROPY),
    case("+transform", Stages { transform: true, ..ENTROPY }),
    case("+prediction", Stages::INTRA),
];

/// Each takes one stage away from all.
pub(super) const WITHOUT: [Case; 3] = [
    case("-entropy", Stages { entropy: false, ..Stages::INTRA }),
    case("-transform", Stages { transform: false, ..Stages::INTRA }),
    case("-prediction", Stages { prediction: false, ..Stages::INTRA }),
];

/// For several pictures: alone, with the previous one, and with the previous one in place of the neighbours.
pub(super) const INTER: [Case; 3] = [
    case("intra", Stages::INTRA),
    case("+inter", Stages { inter: true, ..Stages::INTRA }),
    case("inter only", Stages { inter: true, prediction: false, ..Stages::INTRA }),
];
