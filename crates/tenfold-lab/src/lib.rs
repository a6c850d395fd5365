//! The command `tenfold-lab`, which measures tenfold: metrics, peers behind one trait, and the benches as programs.
//!
//! - [`metrics`]: how far decoded values are from the original, and how far a coder is from the bound.
//! - [`peers`]: other coders, one file each, that produce real bytes and decode them again.
//! - [`bench`]: each figure the project states about itself, as a function that prints a table and
//!   returns a [`bench::Report`] to keep as JSON under `results/`.
//! - [`race`]: all peers on the same tensors, as tables, plots and a page.
//! - [`ablation`]: what each stage of a video codec gives on tensors.
//!
//! Tensors come from files ([`load`]) or from seeded generators ([`synth`]).
#![deny(unsafe_code)]

pub mod ablation;
pub mod bench;
mod command;
pub mod intra;
pub mod load;
pub mod metrics;
pub mod peers;
pub mod race;
mod range;
pub mod synth;
pub mod values;

pub use command::run;
