//! Ranges on their way into a spool: several at once, each tried again from where it broke.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::remote::{Part, Pin, Place, Remote};
use super::spool::Spool;
use crate::error::{Error, Result};
use crate::http::Failure;
use crate::pipeline::{Span, Timeline};
use crate::ranges::RangeSet;

/// Bytes of a request, at most: small enough that ranges come roughly in order, large enough that a round trip between two does
/// not count.
const PIECE: u64 = 8 << 20;

/// Longest wait between two tries.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// How requests are made.
#[derive(Debug, Clone)]
pub(super) struct FetchOptions {
    pub connections: usize,
    pub retries: u32,
    pub timeline: Timeline,
}

/// Counts failures in a row and says how long to wait after each.
pub(super) struct Patience {
    failures: u32,
    most: u32,
}

impl Patience {
    pub fn new(most: u32) -> Patience {
        Patience { failures: 0, most }
    }

    /// Bytes have come.
    pub fn restore(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next try, or gives up.
    pub async fn wait(&mut self, failure: Failure, place: &Place) -> Result<()> {
        let (reason, wait, is_lie) = match failure {
            Failure::Fatal(error) => return Err(error),
            Failure::NotYet(wait) => {
                tokio::time::sleep(wait).await;
                return Ok(());
            }
            Failure::Again { reason, wait, is_lie } => (reason, wait, is_lie),
        };
        self.failures += 1;
        if self.failures > self.most {
            let url = place.to_string();
            return Err(if is_lie { Error::Protocol { url, reason } } else { Error::Link { url, reason } });
        }
        let own = Duration::from_millis(100 << self.failures.min(10));
        // A server that asks for hours is not waited for that long.
        tokio::time::sleep(wait.map_or(own, |wait| wait.max(own)).min(MOST_WAIT)).await;
        Ok(())
    }
}

/// The first bytes of a file, at most `most`, and what the file is.
pub(super) async fn look(remote: &Remote, place: &Place, most: u64, retries: u32) -> Result<(Pin, Vec<u8>)> {
    let mut patience = Patience::new(retries);
    loop {
        match first_bytes(remote, place, most).await {
            Ok(found) => return Ok(found),
            Err(failure) => patience.wait(failure, place).await?,
        }
    }
}

async fn first_bytes(remote: &Remote, place: &Place, most: u64) -> Result<(Pin, Vec<u8>), Failure> {
    let mut part = remote.open(place, 0..most, None).await?;
    let (mut out, end) = (Vec::new(), part.range.end.min(most));
    while (out.len() as u64) < end {
        let chunk =
            part.chunk().await.unwrap_or_else(|| Err(Failure::again("the answer ended too early")))?;
        out.extend_from_slice(&chunk);
    }
    out.truncate(end as usize);
    Ok((part.pin, out))
}

/// What is still to be asked for, and what has been.
#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Range<u64>>,
    asked: RangeSet,
}

/// Fetches ranges of one file.
pub(super) struct Fetch {
    remote: Arc<Remote>,
    place: Place,
    pin: Pin,
    spool: Arc<Spool>,
    options: FetchOptions,
    queue: Mutex<Queue>,
    news: Notify,
    is_closed: AtomicBool,
}

impl Fetch {
    pub fn new(
        remote: Arc<Remote>,
        place: Place,
        pin: Pin,
        spool: Arc<Spool>,
        options: FetchOptions,
    ) -> Arc<Fetch> {
        let (queue, news, is_closed) = Default::default();
        Arc::new(Fetch { remote, place, pin, spool, options, queue, news, is_closed })
    }

    /// Starts the connections.
    pub fn start(self: &Arc<Fetch>, tasks: &mut JoinSet<()>, runtime: &tokio::runtime::Handle) {
        // Without ranges every request gets the whole file.
        let connections = if self.pin.has_ranges { self.options.connections.clamp(1, 64) } else { 1 };
        for worker in 0..connections {
            let fetch = self.clone();
            let work = async move {
                while let Some(piece) = fetch.next().await {
                    if let Err(error) = fetch.piece(piece, worker as u32).await {
                        fetch.spool.fail(error);
                        return;
                    }
                }
            };
            tasks.spawn_on(work, runtime);
        }
    }

    /// Asks for what is missing of a range and has not been asked for; ahead of all else, if it is urgent.
    pub fn want(&self, range: Range<u64>, is_urgent: bool) {
        let mut queue = self.lock();
        let missing: Vec<_> =
            self.spool.missing(range).into_iter().flat_map(|r| queue.asked.missing(r)).collect();
        for missing in &missing {
            queue.asked.insert(missing.clone());
        }
        let mut cut = Vec::new();
        for missing in missing {
            // Without ranges, a request gets the whole file, however little of it is wanted.
            let step = if self.pin.has_ranges { PIECE } else { u64::MAX };
            let mut at = missing.start;
            while at < missing.end {
                let end = missing.end.min(at.saturating_add(step));
                cut.push(at..end);
                at = end;
            }
        }
        if is_urgent {
            cut.into_iter().rev().for_each(|piece| queue.pieces.push_front(piece));
        } else {
            queue.pieces.extend(cut);
        }
        drop(queue);
        self.news.notify_waiters();
    }

    /// Drops bytes that turned out wrong and asks for them once more.
    pub fn again(&self, range: Range<u64>) -> Result<()> {
        self.spool.forget(range.clone())?;
        self.lock().asked.remove(range.clone());
        self.want(range, true);
        Ok(())
    }

    /// Lets connections end when they have nothing more to do.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.news.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Option<Range<u64>> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // From here on no news is missed, though it may come before the wait.
            news.as_mut().enable();
            if let Some(piece) = self.lock().pieces.pop_front() {
                return Some(piece);
            }
            if self.is_closed.load(Ordering::SeqCst) {
                return None;
            }
            news.await;
        }
    }

    /// Fetches a range, from where it broke each time it breaks.
    async fn piece(&self, piece: Range<u64>, worker: u32) -> Result<()> {
        let mut patience = Patience::new(self.options.retries);
        let mut at = piece.start;
        while at < piece.end {
            let (before, begin) = (at, self.options.timeline.now());
            let done = self.attempt(&mut at, piece.end).await;
            if at > before {
                self.options.timeline.push(Span {
                    stage: "receive".into(),
                    worker,
                    item: format!("bytes {before}-{}", at - 1),
                    begin,
                    end: self.options.timeline.now(),
                    bytes: at - before,
                });
                patience.restore();
            }
            if let Err(failure) = done {
                patience.wait(failure, &self.place).await?;
            }
        }
        Ok(())
    }

    async fn attempt(&self, at: &mut u64, end: u64) -> Result<(), Failure> {
        let mut part: Part = self.remote.open(&self.place, *at..end, Some(&self.pin)).await?;
        let mut came = part.range.start;
        let mut writer = self.spool.writer(*at);
        while *at < end {
            let Some(chunk) = part.chunk().await else {
                return Err(Failure::again(format!("the answer ended at byte {came} of {}", part.range.end)));
            };
            let mut chunk = chunk?;
            if came + chunk.len() as u64 > part.range.end {
                return Err(Failure::lie(format!("more bytes came than the server announced, after {came}")));
            }
            // A server without ranges starts at the beginning each time.
            let skipped = (*at - came).min(chunk.len() as u64);
            came += chunk.len() as u64;
            let _ = chunk.split_to(skipped as usize);
            chunk.truncate((end - *at).min(chunk.len() as u64) as usize);
            writer.write(&chunk)?;
            *at += chunk.len() as u64;
        }
        writer.note()?;
        Ok(())
    }
}
