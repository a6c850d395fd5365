//! The command `tenfold`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    quiet_libraries();
    ExitCode::from(tenfold_cli::run(std::env::args_os()))
}

/// SVT-AV1 tells its settings on standard error whenever it is opened, and only the environment stops it.
#[allow(unsafe_code)]
fn quiet_libraries() {
    if std::env::var_os("SVT_LOG").is_none() {
        // SAFETY: the first thing this process does; there is no other thread that could read the environment.
        unsafe { std::env::set_var("SVT_LOG", "1") };
    }
}
