//! A pipeline of stages: read, encode, copy, send, receive, decode, each on threads of its own, joined by bounded queues.
//!
//! [`run`] starts stages inside a scope and waits for them. The first error cancels all of them. A [`Timeline`] records when each stage
//! worked on what; its [`Summary`] says how much of the possible overlap was reached. [`Split`] decides which share of the work goes
//! through a codec while the rest takes the link raw. A [`Budget`] bounds the bytes under way where the sizes of items differ. None of this knows what the items are.
#![deny(unsafe_code)]

mod budget;
mod split;
mod stages;
mod summary;
mod timeline;

pub use budget::{Budget, Held};
pub use split::{Rates, Split};
pub use stages::{Inlet, Outlet, Stages, run};
pub use summary::{StageSummary, Summary};
pub use timeline::{Span, Timeline};
