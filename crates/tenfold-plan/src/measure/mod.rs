//! Finds the numbers of the model on this machine: what engines do with a tensor's values, and what a link carries.

mod engine;
mod link;
mod sample;

pub use engine::{Way, rates};
pub use link::{Moving, find_link, moving};
pub use sample::{Kind, kinds, made_up};
