//! The sending end: encoders take chunks in turn, one writer sends what is ready.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use super::frame::{self, Kind};
use super::{Cargo, Coding, lanes};
use crate::error::{Error, Result};

/// What a run took.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Sent {
    /// Seconds until the other end had decoded everything and said so.
    pub seconds: f64,
    /// Bytes on the link, without those of the frames.
    pub bytes: u64,
    /// Bytes of the tensors.
    pub plain: u64,
}

/// Sends everything and waits for the answer.
pub(super) fn send(mut stream: TcpStream, cargo: &Cargo<'_>) -> Result<Sent> {
    let count = cargo.count.min(if cargo.chunks.is_empty() { 0 } else { cargo.count });
    let frames = u32::try_from(count).ok().filter(|n| *n <= frame::MAX_FRAMES).ok_or_else(|| {
        Error::InvalidArgument(format!("{count} chunks are too many; send less, or larger chunks"))
    })?;
    let start = Instant::now();
    frame::write_greeting(&mut stream, frames)?;
    let bytes = match &cargo.coding {
        None => send_raw(&mut stream, cargo, count)?,
        Some(coding) => match coding.lanes {
            None => send_coded(&mut stream, cargo, coding, count)?,
            Some(rates) => lanes::send(&mut stream, cargo, coding, rates, count)?,
        },
    };
    let (seen, received) = frame::read_answer(&mut stream)?;
    let seconds = start.elapsed().as_secs_f64();
    let plain = (0..count).map(|i| cargo.chunks[i % cargo.chunks.len()].data.len() as u64).sum();
    if (seen, received) != (frames, plain) {
        return Err(Error::Protocol(format!(
            "{received} of {plain} bytes arrived, in {seen} of {frames} frames"
        )));
    }
    Ok(Sent { seconds, bytes, plain })
}

fn send_raw(stream: &mut TcpStream, cargo: &Cargo<'_>, count: usize) -> Result<u64> {
    let mut bytes = 0;
    for i in 0..count {
        let data = &cargo.chunks[i % cargo.chunks.len()].data;
        frame::write_frame(stream, Kind::Raw, data)?;
        bytes += data.len() as u64;
    }
    Ok(bytes)
}

fn send_coded(stream: &mut TcpStream, cargo: &Cargo<'_>, coding: &Coding, count: usize) -> Result<u64> {
    let next = AtomicUsize::new(0);
    let workers = coding.workers.max(1);
    thread::scope(|scope| {
        // As many blobs wait as encoders work: enough to keep the writer busy, and no more memory.
        let (ready, blobs): (SyncSender<Result<Vec<u8>>>, Receiver<_>) = sync_channel(workers);
        for _ in 0..workers {
            let (ready, next) = (ready.clone(), &next);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let blob = encode(coding, &cargo.chunks[i % cargo.chunks.len()]);
                    // The writer has gone where sending has failed.
                    if ready.send(blob).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ready);
        let mut bytes = 0;
        for blob in blobs {
            let blob = blob?;
            frame::write_frame(stream, Kind::Blob, &blob)?;
            bytes += blob.len() as u64;
        }
        Ok(bytes)
    })
}

/// Encodes a chunk on one thread.
pub(super) fn encode(coding: &Coding, chunk: &tenfold::Tensor) -> Result<Vec<u8>> {
    Ok(coding.engine.encode(&chunk.view()?, &coding.options.clone().with_threads(1))?)
}
