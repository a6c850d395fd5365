//! The step with which a blob fills a slot of a fixed size.

use pyo3::prelude::*;
use tenfold::engine::search::tolerance::SLOTS;
use tenfold::engine::search::{Point, Search, Slope};

/// Blobs to try with steps that follow from the last one, before a step is searched for afresh.
pub const TRIALS: usize = SLOTS.rounds;

/// The step to try after `step` has made a blob of so many bytes from so many values; and whether that blob fills a slot of
/// `room` bytes, neither more nor much less.
#[pyfunction]
pub fn next_slot_step(step: f64, bytes: usize, values: usize, room: usize) -> (f64, bool) {
    let got = bytes as f64;
    let mut search = Search::new(SLOTS.aim_at(room as f64), Slope::bytes(values as f64), &SLOTS);
    let fills = bytes <= room && search.is_near(got);
    (search.next(Point { knob: step, got }), fills)
}
