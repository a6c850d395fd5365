//! The command `tenfold`; everything is in the library.

use std::process::ExitCode;

#[allow(unsafe_code)]
fn main() -> ExitCode {
    // SAFETY: the first thing this process does; there is no other thread.
    unsafe { tenfold_cli::quiet_libraries() };
    ExitCode::from(tenfold_cli::run(std::env::args_os()))
}
