//! A relay between two sockets that lets so many bytes a second through, as a link does: bytes that come faster wait in
//! the sender's socket until it blocks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::join;
use crate::error::{Error, Result};

/// How long a link that stood still may run ahead afterwards, to make up for late timers.
const SLACK: Duration = Duration::from_millis(20);
/// Time that one piece takes, where that makes a sensible size.
const PIECE: f64 = 1e-3;
const PIECES: (usize, usize) = (1448, 256 << 10);

/// Passes everything on from one socket to the other at a bandwidth, and what comes back unhindered.
pub(super) fn relay(from: TcpStream, to: TcpStream, bytes_per_second: Option<f64>) -> Result<()> {
    let error = || Error::io("passing bytes on");
    let (back_from, back_to) = (to.try_clone().map_err(error())?, from.try_clone().map_err(error())?);
    thread::scope(|scope| {
        let back = scope.spawn(move || pass(back_from, back_to, None));
        let there = pass(from, to, bytes_per_second);
        there.and(join(back.join()))
    })
}

fn pass(mut from: TcpStream, mut to: TcpStream, bytes_per_second: Option<f64>) -> Result<()> {
    let rate = bytes_per_second.unwrap_or(f64::INFINITY);
    // A number in this range; infinity gives the upper end.
    let piece = (rate * PIECE).clamp(PIECES.0 as f64, PIECES.1 as f64) as usize;
    let mut buffer = vec![0; piece];
    let mut free = Instant::now();
    let done = loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(got) => got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => break Err(error),
        };
        if rate.is_finite() {
            let now = Instant::now();
            free =
                free.max(now.checked_sub(SLACK).unwrap_or(now)) + Duration::from_secs_f64(got as f64 / rate);
            // Bytes arrive when the link has carried them, not when it begins to.
            if let Some(wait) = free.checked_duration_since(Instant::now()) {
                thread::sleep(wait);
            }
        }
        if let Err(error) = to.write_all(&buffer[..got]) {
            break Err(error);
        }
    };
    // Whoever waits at either end hears of it.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
    done.map_err(Error::io("passing bytes on"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::pair;
    use super::*;

    #[test]
    fn a_link_carries_what_its_bandwidth_allows() {
        let (mut near, relay_near) = pair().unwrap();
        let (relay_far, mut far) = pair().unwrap();
        let rate = 4e6;
        let relay = thread::spawn(move || relay(relay_near, relay_far, Some(rate)));
        let bytes = 2_000_000usize;
        let start = Instant::now();
        let writer = thread::spawn(move || {
            near.write_all(&vec![7; bytes]).unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            near
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(got.len() == bytes && got.iter().all(|&b| b == 7));
        // Never faster; slower only as far as this machine is busy.
        let ideal = bytes as f64 / rate;
        assert!(seconds > ideal * 0.98 && seconds < ideal * 4.0, "{seconds} for {ideal}");
        drop(far);
        drop(writer.join().unwrap());
        relay.join().unwrap().unwrap();
    }
}
