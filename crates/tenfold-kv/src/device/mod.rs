//! Pages on a CUDA device: from their stored bytes straight into the blocks of paged pools, and back. Feature `cuda`.
//!
//! [`DevicePages`] holds a codec's bases on a device. A [`Load`] is what some pages need: the host reads their headers and stages
//! their blobs, with the slots of their tokens, in one piece of memory. Whoever has brought that to the device queues ([`queue()`]) the
//! decoding, some groups at a time, as a model's layers need them. A [`Save`] is the way back: tokens are gathered out of blocks and encoded, and the host puts
//! the blobs together; a [`Ladder`] finds the steps of pages under caps. Nothing here allocates on the device, or waits for it.
#![allow(unsafe_code)] // memory of a device is the caller's word

mod assemble;
mod bases;
mod ladder;
mod load;
mod queue;
mod save;

pub use assemble::{Assembled, Made, Place};
pub use bases::DevicePages;
pub use ladder::Ladder;
pub use load::Load;
pub use queue::{Blocks, Part, queue, workspace_len};
pub use save::{Batch, Given, Save};
