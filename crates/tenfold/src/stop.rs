//! Ending work early, from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A switch that ends an encoding or a decoding between two tiles; clones are the same switch. The call then fails with
/// [`Error::Stopped`].
///
/// ```
/// use tenfold::{EncodeOptions, Error, Goal, Stop, TensorView};
/// let stop = Stop::new();
/// let options = EncodeOptions::new(Goal::Lossless).with_stop(stop.clone());
/// stop.stop();
/// let view = TensorView::from_slice(&[1.0f32, 2.0], &[2])?;
/// assert_eq!(tenfold::encode(&view, &options), Err(Error::Stopped));
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    /// A switch; the default is none, and work runs to its end.
    pub fn new() -> Stop {
        Stop(Some(Arc::default()))
    }

    /// Ends all work that was given this switch. Does nothing to the default.
    pub fn stop(&self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Whether work is to end.
    pub fn is_stopped(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// An error if work is to end.
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// The same switch, or none in both.
impl PartialEq for Stop {
    fn eq(&self, other: &Stop) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Stop {}
