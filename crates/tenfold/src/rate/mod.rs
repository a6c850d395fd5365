//! From a goal to a step: statistics first, then a sample, then at most a few real encodings.

mod bracket;
mod classes;
mod low_bits;
mod sample;
mod scan;
mod search;

pub(crate) use search::{Outcome, Target, encode, estimate};
