//! The choice between raw and the ways of coding, and where each breaks even.

use serde::Serialize;

use super::hosts::Hosts;
use super::lanes::{Lanes, best_lanes};
use super::link::Link;
use super::rates::{Payload, Rates};
use super::time::{Forecast, Overlap, forecast, forecast_raw};

/// How much faster than raw a way must be to be chosen: as much as forecasts may be off.
pub const MARGIN: f64 = 1.15;
/// Ways that take up to this much longer than the fastest count as fast; of these the most exact is taken.
pub const FREE: f64 = 1.02;
/// How much faster than coding everything two lanes must be: as much as forecasts may be off.
const GAIN: f64 = MARGIN;
/// Bandwidths between which a break-even is looked for, in bytes a second.
const BANDWIDTHS: (f64, f64) = (1e2, 1e13);

/// Why a way was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// It is the fastest.
    Fastest,
    /// It takes as long as the fastest, and is more exact.
    MoreExact,
    /// A part of it coded, and the rest raw meanwhile, is the fastest.
    TwoLanes,
    /// Raw: no way is faster by [`MARGIN`].
    NotFaster,
    /// Raw: everything fits into one packet.
    OnePacket,
    /// Raw: there is no way of coding it.
    NoWay,
}

impl Reason {
    /// A sentence for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Fastest => "the fastest",
            Reason::MoreExact => "as fast as the fastest, and more exact",
            Reason::TwoLanes => "the fastest: the link takes raw chunks while cores code others",
            Reason::NotFaster => "send raw: coding would not be faster",
            Reason::OnePacket => "send raw: it fits into one packet",
            Reason::NoWay => "send raw: nothing codes it",
        }
    }
}

/// How to send a payload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Choice {
    /// Number of the chosen way; none is raw.
    pub way: Option<usize>,
    /// Share of the bytes that is coded, where the rest is sent raw meanwhile; none if all of them go the same way.
    pub coded: Option<f64>,
    /// Why.
    pub reason: Reason,
    /// What it takes.
    pub forecast: Forecast,
    /// What raw takes.
    pub raw: Forecast,
    /// Seconds of raw over seconds of the choice.
    pub speedup: f64,
}

/// Chooses how to send a payload over a link, with stages that overlap.
///
/// Raw is chosen unless a way is faster by [`MARGIN`], so that an error of the forecast does not make the choice slower
/// than raw. What fits into one packet is sent raw: fewer bytes would not be fewer packets. A payload [with
/// lanes](Payload::with_lanes) may go in part through the codec and in part raw.
pub fn choose(link: &Link, payload: &Payload, ways: &[Rates], hosts: &Hosts) -> Choice {
    let raw = forecast_raw(link, payload, hosts);
    let stay = |reason| Choice { way: None, coded: None, reason, forecast: raw, raw, speedup: 1.0 };
    if payload.bytes <= link.packet {
        return stay(Reason::OnePacket);
    }
    let all: Vec<Forecast> =
        ways.iter().map(|way| forecast(link, payload, way, hosts, Overlap::Pipelined)).collect();
    let lanes = |way: usize| {
        let best = if payload.lanes { best_lanes(link, payload, &ways[way], hosts) } else { None };
        best.filter(|lanes| lanes.forecast.seconds * GAIN <= all[way].seconds)
    };
    let lanes: Vec<Option<Lanes>> = (0..ways.len()).map(lanes).collect();
    let found: Vec<Forecast> =
        (0..ways.len()).map(|way| lanes[way].map_or(all[way], |l| l.forecast)).collect();
    let Some(fastest) = (0..ways.len()).min_by(|&a, &b| found[a].seconds.total_cmp(&found[b].seconds)) else {
        return stay(Reason::NoWay);
    };
    let enough = raw.seconds / MARGIN;
    if !(found[fastest].seconds <= enough) {
        return stay(Reason::NotFaster);
    }
    let limit = (found[fastest].seconds * FREE).min(enough);
    // What is sent raw has no error.
    let error = |way: usize| ways[way].nmse.unwrap_or(f64::INFINITY) * lanes[way].map_or(1.0, |l| l.coded);
    let mut chosen = fastest;
    for way in 0..ways.len() {
        if found[way].seconds <= limit && error(way) < error(chosen) {
            chosen = way;
        }
    }
    let reason = match lanes[chosen] {
        Some(_) => Reason::TwoLanes,
        None if chosen == fastest => Reason::Fastest,
        None => Reason::MoreExact,
    };
    Choice {
        way: Some(chosen),
        coded: lanes[chosen].map(|lanes| lanes.coded),
        reason,
        forecast: found[chosen],
        raw,
        speedup: raw.seconds / found[chosen].seconds,
    }
}

/// The bandwidth in bytes a second below which a way is faster than raw. None if it never is; infinite if it always is.
pub fn break_even(link: &Link, payload: &Payload, way: &Rates, hosts: &Hosts) -> Option<f64> {
    let pays = |bytes_per_second: f64| {
        let link = Link { bytes_per_second, ..*link };
        forecast(&link, payload, way, hosts, Overlap::Pipelined).seconds
            < forecast_raw(&link, payload, hosts).seconds
    };
    let (mut low, mut high) = BANDWIDTHS;
    if !pays(low) {
        return None;
    }
    if pays(high) {
        return Some(f64::INFINITY);
    }
    while high / low > 1.0001 {
        let middle = (low * high).sqrt();
        if pays(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What two cores of a server do, roughly: 2.5 bits of bf16 at three efforts, and lossless.
    fn ways() -> Vec<Rates> {
        let way = |name, encode, decode, ratio, nmse| {
            Rates::stated(name, encode, decode, ratio).unwrap().with_nmse(nmse)
        };
        vec![
            way("lossless", 500e6, 700e6, 1.5, 0.0),
            way("fast", 150e6, 400e6, 6.4, 0.045),
            way("balanced", 40e6, 400e6, 6.4, 0.038),
            way("best", 3e6, 400e6, 6.4, 0.034),
        ]
    }

    fn pick(link: &str, bytes: u64) -> (Choice, Option<String>) {
        let (ways, hosts) = (ways(), Hosts::apart(2, 2));
        let choice = choose(&link.parse().unwrap(), &Payload::new(bytes).with_chunk(1 << 20), &ways, &hosts);
        let name = choice.way.map(|way| ways[way].name.clone());
        (choice, name)
    }

    #[test]
    fn effort_is_free_behind_a_slow_link_and_not_behind_a_fast_one() {
        let (choice, name) = pick("1Mb/s", 32 << 20);
        assert_eq!((name.as_deref(), choice.reason), (Some("best"), Reason::MoreExact));
        let (choice, name) = pick("20Mb/s", 32 << 20);
        assert_eq!((name.as_deref(), choice.reason), (Some("balanced"), Reason::MoreExact));
        assert!(choice.speedup > 5.7, "{}", choice.speedup);
        let (choice, _) = pick("50Mb/s", 32 << 20);
        assert!(choice.speedup > 5.7, "{}", choice.speedup);
        assert_eq!(pick("1Gb/s", 32 << 20).1.as_deref(), Some("fast"));
    }

    #[test]
    fn raw_wins_where_cores_are_slower_than_the_link() {
        let (choice, name) = pick("10Gb/s", 32 << 20);
        assert_eq!((name, choice.reason, choice.speedup), (None, Reason::NotFaster, 1.0));
        assert_eq!(pick("100Gb/s", 32 << 20).1, None);
    }

    #[test]
    fn a_token_is_sent_raw_over_any_link() {
        for link in ["10Mb/s", "50Mb/s", "100Mb/s", "1Gb/s", "10Gb/s"] {
            let (choice, name) = pick(link, 576 * 2);
            assert_eq!((name, choice.reason), (None, Reason::OnePacket), "{link}");
        }
    }

    #[test]
    fn two_lanes_are_taken_where_cores_and_the_link_are_about_as_fast() {
        let (ways, hosts) = (ways(), Hosts::apart(2, 2));
        let pick = |link: &str| {
            let payload = Payload::new(64 << 20).with_chunk(1 << 20).with_lanes(true);
            choose(&link.parse().unwrap(), &payload, &ways, &hosts)
        };
        // 300 MB/s of coding beside 125 MB/s of link.
        let choice = pick("1Gb/s");
        assert_eq!((choice.way, choice.reason), (Some(1), Reason::TwoLanes));
        let share = choice.coded.unwrap();
        assert!((0.7..0.9).contains(&share), "{share}");
        let whole =
            choose(&"1Gb/s".parse().unwrap(), &Payload::new(64 << 20).with_chunk(1 << 20), &ways, &hosts);
        assert_eq!((whole.coded, whole.reason), (None, Reason::Fastest));
        assert!(choice.speedup > whole.speedup * 1.15, "{} {}", choice.speedup, whole.speedup);
        // A slow link has everything coded, a fast one nothing.
        assert_eq!(pick("50Mb/s").coded, None);
        assert_eq!(pick("100Gb/s").way, None);
    }

    #[test]
    fn a_choice_is_never_slower_than_raw() {
        let hosts = [Hosts::apart(1, 8), Hosts::apart(2, 2), Hosts::shared(2).with_io(4e-10)];
        for hosts in hosts {
            for power in 0..60 {
                let link = Link::new(10f64.powf(4.0 + f64::from(power) / 8.0)).unwrap();
                for bytes in [1u64, 2000, 100_000, 32 << 20, 2 << 30] {
                    for lanes in [false, true] {
                        let choice = choose(&link, &Payload::new(bytes).with_lanes(lanes), &ways(), &hosts);
                        assert!(choice.forecast.seconds <= choice.raw.seconds);
                        assert!(choice.way.is_none() || choice.speedup >= MARGIN - 1e-9);
                    }
                }
            }
        }
        assert_eq!(
            choose(&"1Mb/s".parse().unwrap(), &Payload::new(1 << 20), &[], &hosts[0]).reason,
            Reason::NoWay
        );
    }

    #[test]
    fn a_way_breaks_even_where_the_link_is_as_fast_as_the_coder() {
        let link: Link = "1Gb/s".parse().unwrap();
        let payload = Payload::new(1 << 32);
        let at = break_even(&link, &payload, &ways()[1], &Hosts::apart(2, 2)).unwrap();
        // Two threads of 150 MB/s; start and end cost a little.
        assert!((0.97..=1.0).contains(&(at / 300e6)), "{at}");
        let larger = Rates::stated("larger", 1e9, 1e9, 0.9).unwrap();
        assert_eq!(break_even(&link, &payload, &larger, &Hosts::apart(2, 2)), None);
        let free = Rates::stated("free", 1e18, 1e18, 2.0).unwrap();
        assert_eq!(break_even(&link, &payload, &free, &Hosts::apart(2, 2)), Some(f64::INFINITY));
    }
}
