//! Long work that Ctrl-C ends.
//!
//! Python runs the handlers of signals on its main thread only, between two of its own instructions. So long work gets
//! its own thread. The calling thread waits without the interpreter's lock, checks for signals at intervals, and stops
//! the work between two tiles if a handler raises.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tenfold::engine::Stop;

use crate::errors::MachineError;

/// Interval between checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// Tensors of at least this many bytes take long enough to encode that a user may want to interrupt.
pub const LONG_ENCODE: usize = 1 << 20;

/// The same for decoding and for reading files.
pub const LONG_DECODE: usize = 64 << 20;

/// Runs `work` without the interpreter's lock, on a thread of its own if it is `long`.
pub fn run<T: Send>(py: Python<'_>, long: bool, work: impl FnOnce(&Stop) -> T + Send) -> PyResult<T> {
    if long { attend(py, work, |_| Ok(())) } else { Ok(py.detach(|| work(&Stop::default()))) }
}

/// Runs `work` on a thread of its own. `meanwhile` is called at intervals on this one; what it or a signal raises ends the
/// work and comes back.
pub fn attend<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> T + Send,
    mut meanwhile: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let stop = Stop::new();
    thread::scope(|scope| {
        let (sender, mut receiver) = mpsc::sync_channel(1);
        let worker = thread::Builder::new().name("tenfold".into());
        let switch = stop.clone();
        // The sender moves: it must go if the work panics. The receiver stays, so sending does not fail.
        let worker = worker.spawn_scoped(scope, move || drop(sender.send(work(&switch))));
        let worker = worker
            .map_err(|error| MachineError::new_err(format!("cannot start a worker thread: {error}")))?;
        let mut raised = None;
        loop {
            let waiting = &mut receiver;
            match py.detach(move || waiting.recv_timeout(TICK)) {
                Ok(result) => return raised.map_or(Ok(result), Err),
                Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals().and_then(|()| meanwhile(py)) {
                        stop.stop();
                        raised = Some(error);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // The work panicked; Python sees that as it would on this thread.
                    if let Err(payload) = worker.join() {
                        resume_unwind(payload);
                    }
                    return Err(MachineError::new_err("the work ended without a result"));
                }
            }
        }
    })
}
