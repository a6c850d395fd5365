//! What a link carries, and what moving bytes costs this machine.

use std::time::Duration;

use tenfold::{Dtype, Tensor};

use crate::error::Result;
use crate::model::Link;
use crate::pipe::{self, Cargo};

/// Bytes of a chunk of the probe.
const CHUNK: usize = 1 << 20;

/// What moving bytes through this machine's own network stack takes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Moving {
    /// Bytes a second, at most.
    pub bytes_per_second: f64,
    /// CPU seconds a byte, of sender, relay and receiver together.
    pub cpu: f64,
}

/// Measures the link to a machine where [`pipe::listen`] waits: bandwidth of bytes that are not coded, and latency.
pub fn find_link(address: &str, time: Duration) -> Result<Link> {
    let round_trip = pipe::round_trip(address)?;
    let chunks = [noise()];
    let send = |count| pipe::run_to(address, &Cargo { chunks: &chunks, count, coding: None });
    let sent = grow(time, send)?;
    let seconds = (sent.seconds - round_trip).max(sent.seconds / 2.0);
    Link::new(sent.bytes as f64 / seconds)?.with_latency(round_trip / 2.0)
}

/// Measures a connection of this machine with itself, at no particular bandwidth.
pub fn moving(cores: usize, time: Duration) -> Result<Moving> {
    let chunks = [noise()];
    let mut spent = None;
    let sent = grow(time, |count| {
        let before = cpu_seconds();
        let sent = pipe::run_here(&Cargo { chunks: &chunks, count, coding: None }, None)?;
        spent = before.zip(cpu_seconds()).map(|(before, after)| after - before);
        Ok(sent)
    })?;
    // Where the system does not say, three threads have been at it.
    let cpu = spent.unwrap_or(sent.seconds * cores.min(3) as f64);
    Ok(Moving { bytes_per_second: sent.bytes as f64 / sent.seconds, cpu: cpu / sent.bytes as f64 })
}

/// Sends more each time until it takes long enough.
fn grow(time: Duration, mut send: impl FnMut(usize) -> Result<pipe::Sent>) -> Result<pipe::Sent> {
    let mut count = 1;
    loop {
        let sent = send(count)?;
        if sent.seconds >= time.as_secs_f64() || count >= 1 << 14 {
            return Ok(sent);
        }
        let more = time.as_secs_f64() / sent.seconds.max(1e-4) * 1.2;
        // Between two and sixteen times as many.
        count = (count as f64 * more.clamp(2.0, 16.0)).ceil() as usize;
    }
}

/// Bytes that no link compresses on the way.
fn noise() -> Tensor {
    let mut state = 0x0123_4567_89ab_cdefu64;
    let mut data = Vec::with_capacity(CHUNK);
    while data.len() < CHUNK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend(state.to_le_bytes());
    }
    Tensor { dtype: Dtype::U8, shape: vec![CHUNK], data }
}

/// CPU seconds of this process, where the system says so.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may hold anything; user and system time are the 12th and 13th fields behind it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // A hundred a second on every Linux.
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
