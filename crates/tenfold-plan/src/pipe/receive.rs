//! The receiving end: one reader, and decoders; and a server that answers others, one after the other.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tenfold::DecodeOptions;
use tenfold::engine::{Limits, SharedEngine};

use super::frame::{self, Kind};
use super::{join, prepare};
use crate::error::{Error, Result};

/// Largest tensor that a blob may claim to hold.
const MAX_TENSOR: u64 = 1 << 30;

/// What came over one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Frames.
    pub frames: u32,
    /// Bytes of the tensors, decoded.
    pub bytes: u64,
}

/// Answers connections until `connections` of them are done; 0 never ends. `tell` hears of each. What one sender does wrong
/// ends its connection and no other.
pub fn listen(
    listener: &TcpListener,
    engine: &SharedEngine,
    workers: usize,
    connections: usize,
    mut tell: impl FnMut(&Result<Received>),
) -> Result<()> {
    let mut done = 0;
    loop {
        let (stream, _) = listener.accept().map_err(Error::io("waiting for a connection"))?;
        tell(&prepare(stream).and_then(|stream| serve(stream, engine, workers)));
        done += 1;
        if done == connections {
            return Ok(());
        }
    }
}

/// Receives and decodes everything, then answers.
pub(super) fn serve(mut stream: TcpStream, engine: &SharedEngine, workers: usize) -> Result<Received> {
    let frames = frame::read_greeting(&mut stream)?;
    let bytes = receive(&mut stream, frames, engine, workers.max(1))?;
    frame::write_answer(&mut stream, frames, bytes)?;
    Ok(Received { frames, bytes })
}

fn receive(stream: &mut TcpStream, frames: u32, engine: &SharedEngine, workers: usize) -> Result<u64> {
    let bytes = AtomicU64::new(0);
    thread::scope(|scope| {
        let (ready, blobs): (SyncSender<Vec<u8>>, Receiver<_>) = sync_channel(workers);
        let blobs = Mutex::new(blobs);
        // Owned by the decoders alone: when all of them have failed, the reader's next blob has nowhere to go.
        let blobs = std::sync::Arc::new(blobs);
        let decoders: Vec<_> = (0..workers)
            .map(|_| {
                let (blobs, bytes) = (blobs.clone(), &bytes);
                scope.spawn(move || -> Result<()> {
                    loop {
                        let blob = blobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(blob) = blob else { return Ok(()) };
                        bytes.fetch_add(decode(engine, &blob)?, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        drop(blobs);
        let read = read_all(stream, frames, &bytes, ready);
        // A decoder's error is the cause where the reader had to stop for it.
        let decoded: Result<()> = decoders.into_iter().try_for_each(|decoder| join(decoder.join()));
        decoded.and(read)
    })?;
    Ok(bytes.into_inner())
}

/// Reads all frames: raw ones are done with that, blobs go to the decoders.
fn read_all(
    stream: &mut TcpStream,
    frames: u32,
    bytes: &AtomicU64,
    ready: SyncSender<Vec<u8>>,
) -> Result<()> {
    let mut content = Vec::new();
    for _ in 0..frames {
        match frame::read_frame(stream, &mut content)? {
            Kind::Raw => {
                bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
            }
            Kind::Blob => {
                let stopped = || Error::Protocol("the decoders have stopped".into());
                ready.send(std::mem::take(&mut content)).map_err(|_| stopped())?;
            }
        }
    }
    Ok(())
}

fn decode(engine: &SharedEngine, blob: &[u8]) -> Result<u64> {
    let limits = Limits::default().with_max_bytes(MAX_TENSOR);
    let tensor = engine.decode(blob, &DecodeOptions::default().with_limits(limits).with_threads(1))?;
    Ok(tensor.data.len() as u64)
}
