//! What to send how: raw, lossless or lossy, coded by the CPU or a device.
//!
//! Compression helps only if its time hides behind something slower. [`choose`] weighs the two by a [model of
//! time](model): a [`Link`], what engines do ([`Rates`]), and what is sent ([`Payload`]). [`measure`] finds these numbers
//! on this machine, [`pipe`] sends tensors over a real connection to hold the forecast against, and [`page`] draws time
//! over bandwidth. [`cluster`] asks the same of a whole cluster with codecs in its chips.
//!
//! ```
//! use tenfold_plan::{Hosts, Link, Payload, Rates, choose};
//! let link: Link = "100Mb/s".parse()?;
//! // 200 MB a second on one thread, back at 500, a sixth of the bytes.
//! let coded = Rates::stated("fast", 200e6, 500e6, 6.4)?;
//! let hosts = Hosts::apart(2, 2);
//! let choice = choose(&link, &Payload::new(32 << 20), std::slice::from_ref(&coded), &hosts);
//! assert_eq!(choice.way, Some(0));
//! assert!(choice.speedup > 5.0);
//! // One token's hidden state fits into a packet.
//! let choice = choose(&link, &Payload::new(576 * 2), &[coded], &hosts);
//! assert_eq!(choice.way, None);
//! # Ok::<(), tenfold_plan::Error>(())
//! ```
#![deny(unsafe_code)]

pub mod cluster;
mod error;
pub mod measure;
pub mod model;
pub mod page;
pub mod pipe;
mod report;
mod unit;

pub use error::{Error, Result};
pub use model::{
    Choice, Cost, Forecast, Hosts, Lanes, Link, Overlap, Payload, Rates, Reason, Size, Stage, best_lanes,
    break_even, choose, forecast, forecast_lanes, forecast_raw,
};
pub use report::{Check, KindPlan, LinkPlan, Plan, WayPlan, lanes_name, usual_links};
pub use unit::{
    bandwidth as parse_bandwidth, bytes as parse_bytes, seconds as parse_seconds, show_bandwidth, show_bytes,
    show_seconds,
};

/// Compiles and runs the guide's example with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plan.md")]
struct Guide;
