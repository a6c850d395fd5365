//! Where output goes. Nothing appears at its place before it is whole: files grow in a temporary folder
//! beside the target and are renamed at the end, so an interrupted run leaves the old target or none.

pub(crate) mod config;
mod in_turn;
mod siblings;
mod staging;
mod target;

pub(crate) use config::Direction;
pub(crate) use in_turn::InTurn;
pub(crate) use siblings::copy_siblings;
pub(crate) use staging::Staging;
pub(crate) use target::Target;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes a file whole or not at all, by the rules of model files: what was there stays until the new one is complete.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let staging = Staging::new(&Target::file(path, true)?)?;
    let name = PathBuf::from("file");
    let place = staging.path(&name);
    std::fs::write(&place, bytes).map_err(Error::io(path))?;
    staging.commit(&[name])
}
