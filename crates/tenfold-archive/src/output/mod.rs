//! Where output goes. Nothing appears at its place before it is whole: files grow in a temporary folder
//! beside the target and are renamed at the end, so an interrupted run leaves the old target or none.

mod config;
mod siblings;
mod staging;
mod target;

pub(crate) use config::Direction;
pub(crate) use siblings::copy_siblings;
pub(crate) use staging::Staging;
pub(crate) use target::Target;
