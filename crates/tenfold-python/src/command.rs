//! The command `tenfold` that comes with the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments, its name first, and returns the exit code.
#[pyfunction]
pub fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| tenfold_cli::run(args))
}
