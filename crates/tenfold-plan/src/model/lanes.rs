//! Two lanes: some chunks go through the codec while others take the link raw.
//!
//! The writer sends a coded chunk when one is ready and a raw one when none is, so the link never waits while raw chunks are left.

use serde::Serialize;

use super::hosts::Hosts;
use super::link::Link;
use super::rates::{Payload, Rates};
use super::time::{Forecast, Stage};

/// Shares that are tried first; the best one's surroundings follow.
const TRIED: u64 = 64;

/// A split of the chunks, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lanes {
    /// Share of the bytes that is coded.
    pub coded: f64,
    /// Seconds, bytes on the link, and what sets the pace.
    pub forecast: Forecast,
}

/// The split that ends first. None where that is no split: everything raw, or everything coded.
pub fn best_lanes(link: &Link, payload: &Payload, way: &Rates, hosts: &Hosts) -> Option<Lanes> {
    let chunks = payload.chunks().0 as u64;
    let at = |coded: u64| forecast_lanes(link, payload, way, hosts, coded);
    let step = chunks.div_ceil(TRIED).max(1);
    let best = |tried: &mut dyn Iterator<Item = u64>| {
        tried.map(|coded| (coded, at(coded).seconds)).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (near, _) = best(&mut (1..chunks).step_by(step as usize))?;
    let around = near.saturating_sub(step).max(1)..chunks.min(near + step);
    // Of a great many chunks, not each: hostile sizes must not take forever.
    let (coded, _) = best(&mut around.step_by(step.div_ceil(TRIED) as usize))?;
    Some(Lanes { coded: coded as f64 / chunks as f64, forecast: at(coded) })
}

/// What it takes if so many of the payload's chunks are coded and the others are sent raw meanwhile.
pub fn forecast_lanes(link: &Link, payload: &Payload, way: &Rates, hosts: &Hosts, coded: u64) -> Forecast {
    let (chunks, bytes) = payload.chunks();
    let coded = (coded as f64).min(chunks);
    let sent = way.size.bytes(bytes);
    let workers = |cores: usize| if way.workers == 0 { cores as f64 } else { way.workers as f64 };
    let rounds = |at_once: f64| (coded / at_once).ceil();
    let (encode_one, decode_one, send_one) =
        (way.encode.seconds(bytes), way.decode.seconds(bytes), link.seconds(sent));
    let on_link = coded * sent + (chunks - coded) * bytes;
    let encode = encode_one * rounds(workers(hosts.sender));
    let decode = decode_one * rounds(workers(hosts.receiver));
    let busy = link.seconds(on_link);
    let moving = on_link * hosts.io;
    let cores =
        hosts.seconds(coded * encode_one * way.cores + moving, coded * decode_one * way.cores + moving);
    // The last chunk to arrive may be a coded one.
    let bounds = [
        (Stage::Encode, encode + send_one + decode_one),
        (Stage::Link, busy + decode_one),
        (Stage::Decode, encode_one + send_one + decode),
        (Stage::Cores, cores + send_one),
    ];
    let mut slowest = bounds[0];
    for bound in &bounds[1..] {
        if bound.1 > slowest.1 {
            slowest = *bound;
        }
    }
    let seconds = slowest.1 + link.latency;
    Forecast { seconds, bytes: on_link, slowest: slowest.0, encode, link: busy, decode }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::{Overlap, forecast, forecast_raw};

    #[test]
    fn the_best_split_is_the_best_of_all() {
        let way = Rates::stated("w", 100e6, 200e6, 5.0).unwrap();
        for rate in [1e7, 1e8, 3e8, 1e9] {
            for chunks in [2u64, 3, 17, 400] {
                let (link, payload) =
                    (Link::new(rate).unwrap(), Payload::new(chunks << 20).with_chunk(1 << 20));
                let hosts = Hosts::apart(2, 2);
                let found = best_lanes(&link, &payload, &way, &hosts).unwrap();
                let least = (1..chunks)
                    .map(|coded| forecast_lanes(&link, &payload, &way, &hosts, coded).seconds)
                    .fold(f64::INFINITY, f64::min);
                assert!(found.forecast.seconds <= least * 1.01, "{rate} {chunks}");
            }
        }
        let one = Payload::new(1 << 20);
        assert!(best_lanes(&Link::new(1e8).unwrap(), &one, &way, &Hosts::apart(2, 2)).is_none());
    }

    #[test]
    fn no_chunk_and_all_chunks_take_what_raw_and_coded_take() {
        let way = Rates::stated("w", 100e6, 200e6, 5.0).unwrap();
        let (link, payload) = (Link::new(1e7).unwrap(), Payload::new(100 << 20).with_chunk(1 << 20));
        let hosts = Hosts::apart(2, 2);
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} {b}");
        near(
            forecast_lanes(&link, &payload, &way, &hosts, 0).seconds,
            forecast_raw(&link, &payload, &hosts).seconds,
        );
        near(
            forecast_lanes(&link, &payload, &way, &hosts, 100).seconds,
            forecast(&link, &payload, &way, &hosts, Overlap::Pipelined).seconds,
        );
    }
}
