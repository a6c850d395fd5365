//! What each target does with its bytes. A body returns when all is well and panics when a promise is broken.

pub mod archive_read;
pub mod blob_decode;
pub mod blob_mutate;
mod case;
pub mod delta;
pub mod delta_file;
mod draw;
mod number;
mod promise;
pub mod roundtrip;
