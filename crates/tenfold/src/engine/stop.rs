//! Ending work early, from another thread.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A switch that ends an encoding or a decoding between two tiles; clones are the same switch. The call then fails with
/// [`Error::Stopped`].
///
/// ```
/// use tenfold::engine::Stop;
/// use tenfold::{EncodeOptions, Error, Goal, TensorView};
/// let stop = Stop::new();
/// let options = EncodeOptions::new(Goal::Lossless).with_stop(stop.clone());
/// stop.stop();
/// let view = TensorView::from_slice(&[1.0f32, 2.0], &[2])?;
/// assert_eq!(tenfold::encode(&view, &options), Err(Error::Stopped));
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<Arc<Switch>>);

#[derive(Debug, Default)]
struct Switch {
    on: AtomicBool,
    /// Turns this one on with itself.
    parent: Stop,
    /// In tests: how often it is asked before it turns itself on; never, if 0.
    #[cfg(test)]
    patience: AtomicU32,
}

impl Switch {
    fn is_on(&self) -> bool {
        #[cfg(test)]
        if self.patience.load(Ordering::Relaxed) > 0 && self.patience.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.on.store(true, Ordering::Relaxed);
        }
        self.on.load(Ordering::Relaxed) || self.parent.is_stopped()
    }
}

impl Stop {
    /// A switch. The default has no effect: work runs to its end.
    pub fn new() -> Stop {
        Stop(Some(Arc::default()))
    }

    /// A switch of its own that this one turns on too: for a part of the work that may have to end for reasons of its own.
    ///
    /// ```
    /// use tenfold::engine::Stop;
    /// let all = Stop::new();
    /// let (one, other) = (all.child(), all.child());
    /// one.stop();
    /// assert!(one.is_stopped() && !other.is_stopped() && !all.is_stopped());
    /// all.stop();
    /// assert!(other.is_stopped());
    /// ```
    pub fn child(&self) -> Stop {
        Stop(Some(Arc::new(Switch { parent: self.clone(), ..Switch::default() })))
    }

    /// Ends all work that was given this switch. Does nothing to the default.
    pub fn stop(&self) {
        if let Some(switch) = &self.0 {
            switch.on.store(true, Ordering::Relaxed);
        }
    }

    /// Whether work must end.
    pub fn is_stopped(&self) -> bool {
        self.0.as_ref().is_some_and(|switch| switch.is_on())
    }

    /// Returns an error if work must end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, EncodeOptions, Goal, TensorView};

    fn after(asked: u32) -> Stop {
        Stop(Some(Arc::new(Switch { patience: asked.into(), ..Default::default() })))
    }

    /// Wherever work stands, it ends; and it is asked at least once a tile.
    #[test]
    fn work_under_way_ends() {
        let x: Vec<f32> = (0..40_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32).collect();
        let view = TensorView::from_slice(&x, &[200, 200]).unwrap();
        for goal in [Goal::Lossless, Goal::Bits(3.0), Goal::MaxError(1000.0)] {
            let options = EncodeOptions::new(goal).with_lane_values(32).with_threads(1);
            let whole = crate::encode(&view, &options).unwrap();
            let tiles = crate::inspect(&whole).unwrap().tiles as u32;
            assert!(tiles > 30);
            let mut asked = 1;
            while let Err(error) = crate::encode(&view, &options.clone().with_stop(after(asked))) {
                assert_eq!(error, Error::Stopped);
                asked += 7;
            }
            assert!(asked > tiles, "{goal:?}: asked {asked} times for {tiles} tiles");
            let mut asked = 1;
            let decode = DecodeOptions::default().with_threads(1);
            while let Err(error) = crate::decode(&whole, &decode.clone().with_stop(after(asked))) {
                assert_eq!(error, Error::Stopped);
                asked += 7;
            }
            assert!(asked > tiles, "{goal:?}: asked {asked} times to decode {tiles} tiles");
        }
    }
}
