//! Real values as picture samples and back.

mod clip;
mod mapping;

pub use mapping::{Mapping, Scaling};
