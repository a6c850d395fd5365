//! Exit codes and error texts. A code says who must act.

use tenfold::engine::ErrorKind;

/// Done.
pub const SUCCESS: u8 = 0;
/// Everything else.
pub const OTHER: u8 = 1;
/// The command line asks for something that cannot work.
pub const USAGE: u8 = 2;
/// The data is bad, or a check that was asked for failed.
pub const DATA: u8 = 3;
/// The data may be fine, but this build cannot read it.
pub const UNSUPPORTED: u8 = 4;
/// A limit stopped the work.
pub const LIMIT: u8 = 5;
/// The machine failed or lacks something: files, memory, threads, a device.
pub const ENVIRONMENT: u8 = 6;

/// Ctrl-C, as shells count it.
#[cfg(feature = "net")]
pub const INTERRUPTED: u8 = 130;

/// The table of `--help`.
pub const HELP: &str = "\
Exit codes:
  0  success
  1  any other failure
  2  wrong usage (arguments, recipe, the output exists or is the input)
  3  bad data (damaged, or not a model file), or a check failed
  4  this build does not support it (newer format, unknown type)
  5  a limit was hit (--max-bytes, --max-tensor-bytes)
  6  the machine failed (files, disk full, permissions, threads, network, no CUDA device)";

/// A mistake on the command line that parsing does not find.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The exit code of an error.
pub fn code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() {
        USAGE
    } else if let Some(error) = error.downcast_ref::<tenfold_archive::Error>() {
        from_kind(error.kind())
    } else if let Some(error) = error.downcast_ref::<tenfold::Error>() {
        from_kind(error.kind())
    } else if let Some(error) = error.downcast_ref::<tenfold_kv::Error>() {
        from_kind(error.kind())
    } else if let Some(error) = error.downcast_ref::<tenfold_cuda::Error>() {
        from_kind(error.kind())
    } else if let Some(error) = error.downcast_ref::<tenfold_plan::Error>() {
        from_kind(error.kind())
    } else if let Some(kind) = link_kind(error) {
        from_kind(kind)
    } else if error.is::<std::io::Error>() {
        ENVIRONMENT
    } else {
        OTHER
    }
}

/// The kind of an error of a transfer.
#[cfg(feature = "net")]
fn link_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref::<tenfold_link::Error>().map(tenfold_link::Error::kind)
}

/// Without transfers there are none.
#[cfg(not(feature = "net"))]
fn link_kind(_: &anyhow::Error) -> Option<ErrorKind> {
    None
}

/// The exit code of a kind of error.
pub fn from_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Caller => USAGE,
        ErrorKind::Data => DATA,
        ErrorKind::Unsupported => UNSUPPORTED,
        ErrorKind::Limit => LIMIT,
        ErrorKind::Environment => ENVIRONMENT,
        _ => OTHER,
    }
}

/// The error and its causes, without those that the text already contains.
pub fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
