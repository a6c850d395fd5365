//! Seconds from the first byte read to the last one decoded.
//!
//! Encoding, the link and decoding work on different chunks at the same time. The slowest of them sets the pace; the
//! others show only in the first and the last chunk. Where cores are scarcer than workers, the cores are one more stage:
//! they encode, decode and move bytes, and cannot do more than all of that takes.

use serde::Serialize;

use super::hosts::Hosts;
use super::link::Link;
use super::rates::{Payload, Rates};

/// Whether stages overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// While one chunk is on the link, others are encoded and decoded.
    #[default]
    Pipelined,
    /// Everything is encoded, then sent, then decoded.
    Serial,
}

/// What takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Encoders.
    Encode,
    /// The link.
    Link,
    /// Decoders.
    Decode,
    /// Cores, which all that is not on a device shares.
    Cores,
}

impl Stage {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Encode => "encode",
            Stage::Link => "link",
            Stage::Decode => "decode",
            Stage::Cores => "cores",
        }
    }
}

/// What a way takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Forecast {
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes on the link.
    pub bytes: f64,
    /// What sets the pace.
    pub slowest: Stage,
    /// Seconds that the encoders are busy.
    pub encode: f64,
    /// Seconds that the link is busy.
    pub link: f64,
    /// Seconds that the decoders are busy.
    pub decode: f64,
}

/// What it takes to send a payload as it is.
pub fn forecast_raw(link: &Link, payload: &Payload, hosts: &Hosts) -> Forecast {
    let bytes = payload.bytes as f64;
    let busy = link.seconds(bytes);
    let cores = hosts.seconds(bytes * hosts.io, bytes * hosts.io);
    let slowest = if cores > busy { Stage::Cores } else { Stage::Link };
    Forecast { seconds: busy.max(cores) + link.latency, bytes, slowest, encode: 0.0, link: busy, decode: 0.0 }
}

/// What it takes to send a payload coded.
pub fn forecast(link: &Link, payload: &Payload, way: &Rates, hosts: &Hosts, overlap: Overlap) -> Forecast {
    let (chunks, bytes) = payload.chunks();
    let sent = way.size.bytes(bytes);
    let workers = |cores: usize| if way.workers == 0 { cores as f64 } else { way.workers as f64 };
    // Seconds of one chunk in each stage, and how many the stage works on at once.
    let stages = [
        (Stage::Encode, way.encode.seconds(bytes), workers(hosts.sender)),
        (Stage::Link, link.seconds(sent), 1.0),
        (Stage::Decode, way.decode.seconds(bytes), workers(hosts.receiver)),
    ];
    let whole = |(_, one, at_once): (Stage, f64, f64)| one * (chunks / at_once).ceil().max(1.0);
    let [encode, on_link, decode] = stages.map(whole);
    let moving = sent * hosts.io;
    let cores = chunks * hosts.seconds(stages[0].1 * way.cores + moving, stages[2].1 * way.cores + moving);

    let through: f64 = stages.iter().map(|stage| stage.1).sum();
    let mut slowest = (Stage::Link, 0.0);
    for (stage, busy) in stages.iter().zip([encode, on_link, decode]) {
        let seconds = through - stage.1 + busy;
        if seconds > slowest.1 {
            slowest = (stage.0, seconds);
        }
    }
    // The last chunk is on the link while the cores wait for it.
    let bound = cores + stages[1].1;
    if bound > slowest.1 {
        slowest = (Stage::Cores, bound);
    }
    if overlap == Overlap::Serial {
        // Each stage has all cores for itself, but no more workers than cores.
        slowest.1 = encode.max(chunks * stages[0].1 * way.cores / hosts.sender as f64)
            + on_link
            + decode.max(chunks * stages[2].1 * way.cores / hosts.receiver as f64);
    }
    Forecast {
        seconds: slowest.1 + link.latency,
        bytes: sent * chunks,
        slowest: slowest.0,
        encode,
        link: on_link,
        decode,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// 100 MB in ten chunks; one thread encodes 100 MB/s and decodes 200, ratio 5.
    fn case(link: f64, cores: usize) -> (Link, Payload, Rates, Hosts) {
        let way = Rates::stated("w", 100e6, 200e6, 5.0).unwrap();
        (
            Link::new(link).unwrap(),
            Payload::new(100_000_000).with_chunk(10_000_000),
            way,
            Hosts::apart(cores, cores),
        )
    }

    #[test]
    fn a_slow_link_sets_the_pace_and_the_rest_shows_once() {
        let (link, payload, way, hosts) = case(2e6, 2);
        let found = forecast(&link, &payload, &way, &hosts, Overlap::Pipelined);
        assert_eq!(found.slowest, Stage::Link);
        // 20 MB at 2 MB/s, one chunk encoded before and one decoded after.
        assert!((found.seconds - (10.0 + 0.1 + 0.05)).abs() < 1e-9, "{}", found.seconds);
        let serial = forecast(&link, &payload, &way, &hosts, Overlap::Serial);
        assert!((serial.seconds - (0.5 + 10.0 + 0.25)).abs() < 1e-9, "{}", serial.seconds);
    }

    #[test]
    fn a_fast_link_waits_for_the_encoders() {
        let (link, payload, way, hosts) = case(1e12, 2);
        let found = forecast(&link, &payload, &way, &hosts, Overlap::Pipelined);
        assert_eq!(found.slowest, Stage::Encode);
        // Five rounds of two workers, then one chunk's way to the end.
        assert!((found.seconds - (0.5 + 0.05)).abs() < 1e-3, "{}", found.seconds);
    }

    #[test]
    fn one_machine_shares_its_cores() {
        let (link, payload, way, _) = case(1e12, 2);
        let found = forecast(&link, &payload, &way, &Hosts::shared(2), Overlap::Pipelined);
        assert_eq!(found.slowest, Stage::Cores);
        assert!((found.seconds - 0.75).abs() < 1e-3, "{}", found.seconds);
        // Moving bytes costs both ends, raw and coded.
        let hosts = Hosts::shared(2).with_io(1e-9);
        assert!((forecast_raw(&link, &payload, &hosts).seconds - 0.1).abs() < 1e-9);
        let moved = forecast(&link, &payload, &way, &hosts, Overlap::Pipelined);
        assert!((moved.seconds - found.seconds - 0.02).abs() < 1e-3);
    }

    #[test]
    fn a_device_leaves_the_cores_alone() {
        let (link, payload, way, _) = case(1e12, 1);
        let way = way.with_workers(1, 0.0);
        let found = forecast(&link, &payload, &way, &Hosts::shared(1), Overlap::Pipelined);
        assert_eq!(found.slowest, Stage::Encode);
        assert!((found.seconds - (1.0 + 0.05)).abs() < 1e-3);
    }
}
