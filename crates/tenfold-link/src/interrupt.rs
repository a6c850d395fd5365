//! Ctrl-C and the system's request to end.

use std::sync::OnceLock;

use tenfold::engine::Stop;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, Result};

/// Turns a switch on when the process is interrupted or asked to end, instead of ending it. The second time ends it: work that does
/// not look at its switch must not hold anybody up. Only the first switch of a process counts.
pub fn on_interrupt(stop: Stop) -> Result<()> {
    static DONE: OnceLock<()> = OnceLock::new();
    if DONE.set(()).is_err() {
        return Ok(());
    }
    let failed = |e: std::io::Error| Error::Environment(format!("signals cannot be caught: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let signals = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    });
    let (mut interrupt, mut terminate) = signals.map_err(failed)?;
    let wait = move || {
        runtime.block_on(async {
            for count in 0.. {
                tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
                if count > 0 {
                    std::process::exit(130);
                }
                stop.stop();
            }
        });
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(wait).map(|_| ()).map_err(failed)
}
