//! The sending end with two lanes: encoders take the chunks that the split deals to them, the writer sends raw ones while none is ready.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tenfold_link::pipeline::{Rates, Split};

use super::frame::{self, Kind};
use super::send::encode;
use super::{Cargo, Coding};
use crate::error::Result;

/// Bytes that sockets take at once, whatever the link does: no measure of it.
const SWALLOWED: u64 = 8 << 20;

/// Blobs that may wait for the link beside one of each encoder: while a raw chunk is on the link, encoders go on.
const WAITING: usize = 8;

/// Chunks that may wait for encoders beside one for each. So the deal reaches a raw chunk, and the link has work, before the first
/// blob is ready.
const AHEAD: usize = 2;

/// Which chunk goes where.
struct Deal {
    split: Split,
    next: usize,
    coded: VecDeque<usize>,
    raw: VecDeque<usize>,
}

/// Sends chunks by both lanes; returns the bytes on the link.
pub(super) fn send(
    stream: &mut TcpStream,
    cargo: &Cargo<'_>,
    coding: &Coding,
    rates: Rates,
    count: usize,
) -> Result<u64> {
    let split = Split::with_rates(rates);
    let deal = Mutex::new(Deal { split, next: 0, coded: VecDeque::new(), raw: VecDeque::new() });
    let lanes = Lanes { cargo, count, deal, workers: coding.workers.max(1) };
    thread::scope(|scope| {
        let (ready, blobs): (SyncSender<Result<Vec<u8>>>, Receiver<_>) =
            sync_channel(lanes.workers + WAITING);
        for _ in 0..lanes.workers {
            let (ready, lanes) = (ready.clone(), &lanes);
            scope.spawn(move || {
                while let Some(i) = lanes.next_coded() {
                    let (chunk, begin) = (lanes.chunk(i), Instant::now());
                    let blob = encode(coding, chunk);
                    if let Ok(blob) = &blob {
                        // All workers together are the lane.
                        let seconds = begin.elapsed().as_secs_f64() / lanes.workers as f64;
                        let (raw, coded) = (chunk.data.len() as u64, blob.len() as u64);
                        lanes.deal().split.learn_codec(raw, coded, seconds);
                    }
                    // The writer has gone where sending has failed.
                    if ready.send(blob).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ready);
        lanes.write(stream, &blobs)
    })
}

struct Lanes<'a> {
    cargo: &'a Cargo<'a>,
    count: usize,
    workers: usize,
    deal: Mutex<Deal>,
}

impl Lanes<'_> {
    fn deal(&self) -> MutexGuard<'_, Deal> {
        self.deal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunk(&self, i: usize) -> &tenfold::Tensor {
        &self.cargo.chunks[i % self.cargo.chunks.len()]
    }

    /// Deals the next chunk; `None` when all are dealt.
    fn deal_next(&self, deal: &mut Deal) -> Option<(usize, bool)> {
        let i = deal.next;
        if i >= self.count {
            return None;
        }
        deal.next += 1;
        Some((i, deal.split.deal(self.chunk(i).data.len() as u64)))
    }

    /// A chunk for an encoder.
    fn next_coded(&self) -> Option<usize> {
        let mut deal = self.deal();
        if let Some(i) = deal.coded.pop_front() {
            return Some(i);
        }
        loop {
            match self.deal_next(&mut deal)? {
                (i, true) => return Some(i),
                (i, false) => deal.raw.push_back(i),
            }
        }
    }

    /// A chunk for the link. Deals only a little ahead of the encoders: rates that are measured later cannot change what is dealt.
    fn next_raw(&self) -> Option<usize> {
        let mut deal = self.deal();
        if let Some(i) = deal.raw.pop_front() {
            return Some(i);
        }
        while deal.coded.len() < self.workers + AHEAD {
            match self.deal_next(&mut deal)? {
                (i, false) => return Some(i),
                (i, true) => deal.coded.push_back(i),
            }
        }
        None
    }

    fn write(&self, stream: &mut TcpStream, blobs: &Receiver<Result<Vec<u8>>>) -> Result<u64> {
        let mut sent = 0;
        let mut write = |kind, bytes: &[u8]| -> Result<()> {
            let begin = Instant::now();
            frame::write_frame(stream, kind, bytes)?;
            sent += bytes.len() as u64;
            if sent > SWALLOWED {
                self.deal().split.learn_link(bytes.len() as u64, begin.elapsed().as_secs_f64());
            }
            Ok(())
        };
        loop {
            let ready = match blobs.try_recv() {
                Ok(blob) => Some(blob?),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
            };
            let raw = if ready.is_none() { self.next_raw() } else { None };
            match (ready, raw) {
                (Some(blob), _) => write(Kind::Blob, &blob)?,
                (None, Some(i)) => write(Kind::Raw, &self.chunk(i).data)?,
                // Everything else is with the encoders.
                (None, None) => match blobs.recv() {
                    Ok(blob) => write(Kind::Blob, &blob?)?,
                    Err(_) => match self.next_raw() {
                        Some(i) => write(Kind::Raw, &self.chunk(i).data)?,
                        None => return Ok(sent),
                    },
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tenfold::engine::SharedEngine;
    use tenfold::{Dtype, Effort, EncodeOptions, Goal};

    use super::*;
    use crate::measure::made_up;
    use crate::pipe::run_here;

    #[test]
    fn everything_arrives_whatever_is_known_of_the_lanes() {
        let kind = made_up(Dtype::Bf16, &[512, 256], 32 << 10, 1 << 20).unwrap();
        let coding = |rates| Coding {
            engine: SharedEngine::default(),
            options: EncodeOptions::new(Goal::Bits(2.5)).with_effort(Effort::Fast),
            workers: 2,
            lanes: Some(rates),
        };
        let plain: u64 = (0..40).map(|i| kind.chunks[i % kind.chunks.len()].data.len() as u64).sum();
        let send = |codec, link| {
            let coding = Some(coding(Rates { codec, ratio: 6.0, link }));
            run_here(&Cargo { chunks: &kind.chunks, count: 40, coding }, Some(20e6)).unwrap()
        };
        // About as fast, and wrong either way.
        let sent = [send(20e6, 20e6), send(1.0, 1e12), send(1e12, 1.0)];
        assert!(sent.iter().all(|sent| sent.plain == plain), "the other end counts what it decodes");
        assert!(sent[0].bytes > plain / 6 && sent[0].bytes < plain, "{} of {plain}", sent[0].bytes);
        assert!(sent[1].bytes > plain / 2, "what is hopeless goes raw");
        assert!(sent[2].bytes < plain / 2, "what is free is coded");
    }
}
