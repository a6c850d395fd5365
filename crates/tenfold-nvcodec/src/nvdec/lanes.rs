//! The lanes of a device: who decodes what, how much may wait, and for how long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tenfold_cuda::{Device, OwnedStream};
use tenfold_video::Standard;
use tenfold_video::codec::Format;

use super::caps::{Caps, Kind};
use super::decoder::Counts;
use super::lane;
use super::stream::Stream;
use crate::cuvid::Cuvid;
use crate::error::{Error, Result};

/// Streams that may wait for one lane before [`Lanes::submit`] waits itself.
const MOST_WAITING: usize = 16;

/// Lanes that may be asked for: each is a thread, and no device has nearly as many engines.
const MOST_LANES: usize = 64;

/// How lanes are set up. Build with [`Default`] and the `with_*` setters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneSettings {
    /// Lanes. Default: 0, two for each engine of the device: a tensor takes one of the two, and a tensor that is submitted meanwhile the
    /// other, so that engines do not wait between tensors. Any other number is what each tensor may take.
    pub lanes: usize,
    /// Bytes of device memory that decoders without work may keep, all lanes together. Default: `None`, a
    /// thirty-second of the device's memory, but at least 1 GiB.
    pub idle_bytes: Option<u64>,
    /// How long an engine may be silent before the caller gets [`Error::Timeout`]. Default: 10 s.
    pub patience: Duration,
}

impl Default for LaneSettings {
    fn default() -> Self {
        LaneSettings { lanes: 0, idle_bytes: None, patience: Duration::from_secs(10) }
    }
}

impl LaneSettings {
    /// Sets how many lanes there are.
    pub fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets how much memory idle decoders may keep.
    pub fn with_idle_bytes(mut self, bytes: u64) -> Self {
        self.idle_bytes = Some(bytes);
        self
    }

    /// Sets how long an engine may be silent.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// What the lanes have done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Lanes that one tensor takes: engines, where the settings do not say otherwise.
    pub lanes: usize,
    /// Decoders that are open now, idle ones included.
    pub open: usize,
    /// Decoders that were made.
    pub created: usize,
    /// Streams that found an idle decoder of their own kind and size.
    pub reused: usize,
    /// Streams that found one that could be set up for their size.
    pub reconfigured: usize,
    /// Pictures.
    pub pictures: usize,
}

/// A share of a stream: the numbers of its pictures.
type Task = (Arc<Stream>, Vec<usize>);

/// What pictures a lane had lately: its decoders are set up for them.
type Known = VecDeque<(Standard, Format)>;

struct Queue {
    tasks: VecDeque<Task>,
    /// Pictures that wait or are being decoded.
    load: usize,
    known: Known,
    heard: Instant,
}

struct State {
    queues: Vec<Queue>,
    closed: bool,
    alive: usize,
}

/// What lanes and their users share.
pub(super) struct Shared {
    pub api: &'static Cuvid,
    pub device: Device,
    pub counts: Arc<Counts>,
    pub pictures: AtomicUsize,
    pub patience: Duration,
    /// Bytes that the idle decoders of one lane may keep.
    pub idle_bytes: u64,
    /// What the engines can do with each kind of pictures that there was. Asking the driver takes milliseconds.
    known: Mutex<Vec<(Kind, Option<Caps>)>>,
    state: Mutex<State>,
    /// There is work, or it is over.
    work: Condvar,
    /// A lane has taken something, or ended.
    moved: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the engines can do with a kind of pictures; the driver is asked once, and other lanes wait for its answer.
    pub(super) fn caps(&self, kind: Kind) -> Result<Option<Caps>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, caps)) = known.iter().find(|(known, _)| *known == kind) {
            return Ok(*caps);
        }
        let caps = Caps::ask(self.api, &self.device, kind)?;
        known.push((kind, caps));
        Ok(caps)
    }

    /// The next share for a lane; nothing once the lanes are closed.
    pub(super) fn next(&self, me: usize) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.queues.get_mut(me).and_then(|q| q.tasks.pop_front()) {
                self.moved.notify_all();
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn hear(&self, me: usize, now: Instant) {
        if let Some(queue) = self.lock().queues.get_mut(me) {
            queue.heard = now;
        }
    }

    /// A lane is done with a share.
    pub(super) fn done(&self, me: usize, stream: &Stream, pictures: usize) {
        if let Some(queue) = self.lock().queues.get_mut(me) {
            queue.load = queue.load.saturating_sub(pictures);
            queue.heard = Instant::now();
            let kind = (stream.standard, stream.format);
            queue.known.retain(|k| *k != kind);
            queue.known.push_back(kind);
            if queue.known.len() > 8 {
                queue.known.pop_front();
            }
        }
        self.moved.notify_all();
    }
}

/// Threads that decode. Dropping waits for what they are doing.
pub(crate) struct Lanes {
    shared: Arc<Shared>,
    /// Lanes that the pictures of one stream are shared out among, at most.
    spread: usize,
    threads: Vec<JoinHandle<()>>,
}

/// A stream on its way.
pub(crate) struct Submitted {
    stream: Arc<Stream>,
    shared: Arc<Shared>,
    lanes: Vec<usize>,
    since: Instant,
}

impl Lanes {
    /// Starts lanes for a device of so many engines.
    pub(crate) fn start(
        api: &'static Cuvid,
        device: &Device,
        settings: LaneSettings,
        engines: usize,
    ) -> Result<Lanes> {
        let queue =
            || Queue { tasks: VecDeque::new(), load: 0, known: VecDeque::new(), heard: Instant::now() };
        let engines = engines.max(1);
        let (count, spread) = match settings.lanes {
            0 => (2 * engines, engines),
            count => (count, count),
        };
        let idle = settings.idle_bytes.unwrap_or_else(|| (device.properties().memory / 32).max(1 << 30));
        if count > MOST_LANES {
            return Err(Error::InvalidArgument(format!("{count} lanes are too many: {MOST_LANES} at most")));
        }
        let shared = Arc::new(Shared {
            api,
            device: device.clone(),
            counts: Arc::default(),
            pictures: AtomicUsize::new(0),
            patience: settings.patience,
            idle_bytes: idle / count as u64,
            known: Mutex::default(),
            state: Mutex::new(State {
                queues: (0..count).map(|_| queue()).collect(),
                closed: false,
                alive: 0,
            }),
            work: Condvar::new(),
            moved: Condvar::new(),
        });
        let mut lanes = Lanes { shared, spread, threads: Vec::new() };
        for me in 0..count {
            // An engine waits for these short kernels once its surfaces are full.
            let cuda = OwnedStream::urgent(device)?;
            let shared = lanes.shared.clone();
            lanes.shared.lock().alive += 1;
            let body = move || {
                let _gone = Gone(&shared);
                lane::live(&shared, me, cuda);
            };
            let started = thread::Builder::new().name(format!("nvdec {me}")).spawn(body).map_err(|e| {
                lanes.shared.lock().alive -= 1;
                Error::InvalidArgument(format!("cannot start a thread for a lane: {e}"))
            })?;
            lanes.threads.push(started);
        }
        Ok(lanes)
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> Counters {
        let counts = &self.shared.counts;
        let read = |n: &AtomicUsize| n.load(Ordering::Acquire);
        Counters {
            lanes: self.spread,
            open: read(&counts.open),
            created: read(&counts.created),
            reused: read(&counts.reused),
            reconfigured: read(&counts.reconfigured),
            pictures: read(&self.shared.pictures),
        }
    }

    /// Hands the pictures of a stream to the lanes with the least to do. Waits where all have too much, and gives up when none
    /// moves for as long as the settings say.
    pub(crate) fn submit(&self, stream: &Arc<Stream>) -> Result<Submitted> {
        let count = stream.pictures.len();
        let wanted = count.min(self.spread);
        let start = Instant::now();
        let patience = self.shared.patience;
        let mut state = self.shared.lock();
        let chosen = loop {
            let chosen = choose(&state.queues, (stream.standard, stream.format), wanted);
            if chosen.iter().all(|&lane| state.queues[lane].tasks.len() < MOST_WAITING) {
                break chosen;
            }
            let last = state.queues.iter().map(|q| q.heard).max().unwrap_or(start).max(start);
            let silence = last.elapsed();
            if silence >= patience {
                return Err(Error::Timeout { what: "no video engine was free", seconds: patience.as_secs() });
            }
            let waited = self.shared.moved.wait_timeout(state, patience - silence);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        stream.expect(chosen.len());
        for (i, &lane) in chosen.iter().enumerate() {
            let numbers: Vec<usize> = (i..count).step_by(chosen.len()).collect();
            let queue = &mut state.queues[lane];
            if queue.load == 0 {
                queue.heard = Instant::now();
            }
            queue.load += numbers.len();
            queue.tasks.push_back((stream.clone(), numbers));
        }
        drop(state);
        self.shared.work.notify_all();
        Ok(Submitted { stream: stream.clone(), shared: self.shared.clone(), lanes: chosen, since: start })
    }
}

/// The lanes with the least to do; among equals, those that have had such pictures.
fn choose(queues: &[Queue], kind: (Standard, Format), wanted: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..queues.len()).collect();
    order.sort_by_key(|&lane| (queues[lane].load, !queues[lane].known.contains(&kind)));
    order.truncate(wanted);
    order
}

impl Submitted {
    /// Whether the pictures are decoded, or an error is known.
    pub(crate) fn is_done(&self) -> bool {
        self.stream.is_done()
    }

    /// Waits until all pictures were received.
    pub(crate) fn wait(&self) -> Result<()> {
        let heard = || {
            let state = self.shared.lock();
            self.lanes
                .iter()
                .map(|&lane| state.queues[lane].heard)
                .max()
                .unwrap_or(self.since)
                .max(self.since)
        };
        self.stream.wait(self.shared.patience, heard)
    }

    /// Gives the stream up, and waits until lanes no longer write for it. Says whether they answered.
    pub(crate) fn abandon(&self) -> bool {
        self.stream.cancel();
        !matches!(self.wait(), Err(Error::Timeout { .. }))
    }
}

/// Says that a thread has ended, however it did.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.lock().alive -= 1;
        self.0.moved.notify_all();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.closed = true;
        shared.work.notify_all();
        let start = Instant::now();
        // A driver that never answers keeps its thread, rather than the caller.
        while state.alive > 0 && start.elapsed() < shared.patience {
            let left = shared.patience.saturating_sub(start.elapsed());
            state = shared.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let ended = state.alive == 0;
        drop(state);
        if ended {
            self.threads.drain(..).for_each(|t| drop(t.join()));
        }
    }
}
