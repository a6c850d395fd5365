//! Deltas of models: what changed between two versions, as one safetensors file. The bitstream's chapters 'Deltas' and 'Delta
//! files' (docs/format.md) are normative.
//!
//! [`Tensors`] is either version, wherever it lies: an [`Archive`](crate::Archive), compressed or not, or memory. [`make`] compares two
//! of them and writes a file; `difference` does so with loss. [`DeltaFile`] reads one. `chain` says what one delta or several in a row make of
//! each tensor, and [`Patched`] reads that, tensor by tensor. [`apply`] writes it to files, [`update`] over the files of the
//! base, [`apply_in_place`] over memory. [`squash`] makes one delta of several, [`collect`] one of those of single tensors.
//!
//! ```
//! use std::path::Path;
//! use tenfold::TensorView;
//! use tenfold_archive::delta::{self, DeltaFile, Patched, Tensors};
//! use tenfold_archive::Silent;
//! let (old, new) = ([1.0f32, 2.0, 3.0], [1.0f32, 2.5, 3.0]);
//! let old = Tensors::new([("w".to_owned(), TensorView::from_slice(&old, &[3])?)])?;
//! let new = Tensors::new([("w".to_owned(), TensorView::from_slice(&new, &[3])?)])?;
//! let (bytes, report) = delta::make_bytes(&old, &new, &Default::default(), &Silent)?;
//! assert_eq!(report.tensors[0].changed, Some(1));
//! let file = DeltaFile::parse(bytes, Path::new("memory"))?;
//! let patched = Patched::new(&old, &[&file], &Default::default())?;
//! assert_eq!(patched.read(0)?[4..8], 2.5f32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod chain;
mod difference;
mod file;
mod fingerprint;
mod in_place;
mod layout;
mod make;
mod options;
mod patch;
mod record;
mod report;
mod single;
mod squash;
mod tensors;
mod update;
mod write;

pub use tenfold::delta::{Applied, Fingerprint, Verify};

pub use apply::apply;
pub use file::{Change, DeltaFile, How};
pub use fingerprint::fingerprint;
pub use in_place::{TensorMut, apply_in_place};
pub use make::{make, make_bytes};
pub use options::{ApplyOptions, MakeOptions};
pub use patch::{Patched, PatchedTensor};
pub use report::{DeltaReport, DeltaRow, DeltaTotals};
pub use single::{collect, fingerprint_of, parse_fingerprint};
pub use squash::{squash, squash_bytes};
pub use tensors::{Meta, Tensors};
pub use update::update;

/// Version of delta files.
pub const DELTA_FORMAT: u32 = 1;
