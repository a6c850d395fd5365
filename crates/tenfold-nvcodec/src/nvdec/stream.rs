//! A stream of pictures on its way through the lanes: what is to be decoded, who gets the pictures, and how far it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenfold_cuda::{Luma, Stream as CudaStream};
use tenfold_video::Standard;
use tenfold_video::codec::Format;

use crate::error::{Error, Result};

/// A decoded picture in the device's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub luma: Luma,
}

/// Who gets the pictures of a stream.
pub(crate) trait Receiver: Send + Sync {
    /// Before the first picture of a lane: its stream may have to wait for another.
    fn start(&self, stream: CudaStream) -> Result<()>;

    /// Takes picture `number`. Work on it is queued on the lane's stream; the picture stays where it is until that is
    /// done. Called for one picture at a time by each lane.
    fn take(&self, number: usize, frame: &Frame, stream: CudaStream) -> Result<()>;
}

/// What is to be decoded.
pub(crate) struct Stream {
    pub standard: Standard,
    pub format: Format,
    pub parameter_sets: Vec<u8>,
    /// Access units, one a picture.
    pub pictures: Vec<Vec<u8>>,
    receiver: Box<dyn Receiver>,
    /// Held while a picture is given to the receiver; closed once nothing more may be.
    gate: Mutex<bool>,
    cancelled: AtomicBool,
    state: Mutex<State>,
    done: Condvar,
}

struct State {
    /// Lanes that are not done, and when each was last heard of with this stream or what is before it.
    left: usize,
    failed: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    pub(crate) fn new(
        standard: Standard,
        format: Format,
        parameter_sets: Vec<u8>,
        pictures: Vec<Vec<u8>>,
        receiver: Box<dyn Receiver>,
    ) -> Result<Arc<Stream>> {
        let views: Vec<&[u8]> = pictures.iter().map(Vec::as_slice).collect();
        // Nothing that is not of the format, or changes its mind half-way, reaches the driver.
        tenfold_video::codec::stream::check(standard, &format, &parameter_sets, &views)?;
        let (gate, cancelled) = (Mutex::new(true), AtomicBool::new(false));
        let state = Mutex::new(State { left: 0, failed: None });
        let done = Condvar::new();
        Ok(Arc::new(Stream {
            standard,
            format,
            parameter_sets,
            pictures,
            receiver,
            gate,
            cancelled,
            state,
            done,
        }))
    }

    /// Sets how many lanes will work on it.
    pub(super) fn expect(&self, lanes: usize) {
        lock(&self.state).left = lanes;
    }

    /// Whether lanes should leave it alone.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) fn start(&self, stream: CudaStream) -> Result<()> {
        self.through_gate(|| self.receiver.start(stream))
    }

    pub(super) fn give(&self, number: usize, frame: &Frame, stream: CudaStream) -> Result<()> {
        self.through_gate(|| self.receiver.take(number, frame, stream))
    }

    fn through_gate(&self, queue: impl FnOnce() -> Result<()>) -> Result<()> {
        let open = lock(&self.gate);
        if !*open {
            return Err(cancelled());
        }
        queue()
    }

    /// A lane is done with its share. The first error counts.
    pub(super) fn finish(&self, answer: Result<()>) {
        let mut state = lock(&self.state);
        if let Err(error) = answer {
            state.failed.get_or_insert(error);
            // The others need not go on.
            self.cancelled.store(true, Ordering::Release);
        }
        state.left = state.left.saturating_sub(1);
        self.done.notify_all();
    }

    /// Whether all lanes are done, so that [`Stream::wait`] would not.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.state).left == 0
    }

    /// Waits until all lanes are done. `heard` says when the lanes it waits for last did something; after `patience` of silence
    /// the stream is cancelled and that is the answer. Nothing is queued for the receiver any more once this returns; what was
    /// queued before may still run after a time-out.
    pub(super) fn wait(&self, patience: Duration, heard: impl Fn() -> Instant) -> Result<()> {
        let mut state = lock(&self.state);
        while state.left > 0 {
            let silence = heard().elapsed();
            if silence >= patience {
                drop(state);
                self.cancel();
                let what = "no video engine was free or answered";
                return Err(Error::Timeout { what, seconds: patience.as_secs() });
            }
            state =
                self.done.wait_timeout(state, patience - silence).unwrap_or_else(PoisonError::into_inner).0;
        }
        match &state.failed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Makes lanes leave the stream alone. Nothing is queued for the receiver after this returns.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        *lock(&self.gate) = false;
    }
}

/// The answer of a lane whose stream was cancelled; nobody reads it.
pub(super) fn cancelled() -> Error {
    Error::InvalidArgument("the stream was cancelled".into())
}
