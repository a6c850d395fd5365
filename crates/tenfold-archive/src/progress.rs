//! How long work tells its caller how far it is. This crate never prints.

/// Receives progress; every method may be called from any thread.
pub trait Progress: Sync {
    /// Work on so many bytes begins (or begins again, if a pass has to be repeated).
    fn start(&self, total_bytes: u64) {
        let _ = total_bytes;
    }

    /// So many more bytes are done.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }

    /// What is being worked on.
    fn message(&self, text: &str) {
        let _ = text;
    }
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
