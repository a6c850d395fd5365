//! Model files: safetensors in and out, GGUF and npy in. This crate streams tensors between files and
//! the codec; it knows nothing of the inside of a blob.
//!
//! A compressed model is itself a valid safetensors file (or a folder of shards): each compressed tensor is
//! a U8 tensor that holds its blob, and `__metadata__` says which ones those are.
//!
//! ```no_run
//! use std::path::Path;
//! use tenfold::{DecodeOptions, Goal};
//! use tenfold_archive::{Archive, CompressOptions, Silent, compress};
//! let (model, small) = (Path::new("model.safetensors"), Path::new("small.safetensors"));
//! let report = compress(model, small, &CompressOptions::new(Goal::Bits(3.0)), &Silent)?;
//! println!("{:.2} times smaller", report.total.ratio);
//! let archive = Archive::open(small)?;
//! let tensor = archive.read(0, &DecodeOptions::default())?;
//! # Ok::<(), tenfold_archive::Error>(())
//! ```
#![deny(unsafe_code)]

mod archive;
mod assemble;
mod compare;
mod compress;
mod decompress;
pub mod delta;
mod engine;
mod error;
mod flow;
pub mod gguf;
mod inspect;
mod layout;
mod model;
pub mod npy;
mod output;
mod parts;
mod plan;
mod pread;
mod progress;
mod report;
mod safetensors;
pub mod source;
mod tags;
mod values;

pub use archive::{Archive, ArchiveTensor};
pub use assemble::{Content, assemble};
pub use compare::{Comparison, DiffSums, TensorDiff, compare};
pub use compress::{compress, compress_source};
pub use decompress::decompress;
pub use engine::ReadOptions;
pub use error::{Error, Result};
pub use inspect::{Uncovered, Verified, inspect, verify};
pub use layout::{Layout, LayoutTensor, Pick, PlainSum, Written, restored_config, shards_of_index};
pub use output::write_whole;
pub use parts::{Part, PartReport, compress_part, join_parts, parts_folder};
pub use plan::{Alloc, Calibration, CompressOptions, Importance, Recipe};
pub use progress::{Progress, Silent};
pub use report::{Report, TensorRow, Totals};
pub use source::{Source, TensorInfo};
pub use tags::{MODEL_FORMAT, checksum, model_tags};
pub use tenfold_pipeline::{Summary, Timeline};

/// Compiles and runs the README's examples with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The same for the guide's first page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/start.md")]
struct Start;

/// The same for the page on deltas.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/delta.md")]
struct Deltas;
