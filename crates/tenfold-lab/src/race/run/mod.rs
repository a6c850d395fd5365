//! Running the race: who runs on what, each measurement, and what is kept of it between runs.

mod engine;
mod field;
mod heat;
mod inputs;
mod kind;
mod measure;
mod row;
mod state;

pub(crate) use engine::{Outcome, race};
pub use field::{Absent, Entrant};
pub(crate) use heat::{Heat, SIDE};
pub(crate) use inputs::Input;
pub use kind::TensorKind;
pub use row::{Measured, Row, Speed};

#[cfg(test)]
pub(crate) use state::STATE_FILE;
