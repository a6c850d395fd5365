//! Writes the manual pages of `tenfold` and its commands into a folder.

use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "man".into()));
    std::fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(tenfold_cli::command(), &folder)?;
    Ok(())
}
