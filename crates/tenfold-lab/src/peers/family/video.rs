//! Video codecs, intra only, everything that serves eyes switched off.

use ::tenfold::Effort::{Balanced, Best};
use tenfold_video::Standard::{Av1, H264, H265};

use super::{Row, boxed};
use crate::peers::{Peer, Video};

pub(super) const ROWS: &[Row] = &[
    ("x264", "x264 medium", |rates| at(rates, |b| Video::new("x264", H264, Balanced, b))),
    ("x264-slower", "x264 slower", |rates| at(rates, |b| Video::new("x264", H264, Best, b))),
    ("x265-medium", "x265 medium", |rates| at(rates, |b| Video::new("x265", H265, Balanced, b))),
    ("x265", "x265 slow", |rates| at(rates, |b| Video::new("x265", H265, Best, b))),
    ("x265-12", "x265 slow, 12-bit samples", |rates| {
        at(rates, |b| Video::new("x265", H265, Best, b).with_depth(12))
    }),
    ("aom", "libaom, cpu-used 6", |rates| at(rates, |b| Video::new("aom", Av1, Balanced, b))),
    ("svt-av1", "SVT-AV1, preset 8", |rates| at(rates, |b| Video::new("svt-av1", Av1, Balanced, b))),
    ("rav1e", "rav1e", |rates| at(rates, |b| Video::new("rav1e", Av1, Balanced, b))),
];

fn at(rates: &[f64], peer: fn(f64) -> Video) -> Vec<Box<dyn Peer>> {
    rates.iter().map(|&b| boxed(peer(b))).collect()
}
