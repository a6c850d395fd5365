//! The model of time: what a link, engines and a payload take together, and which way is the quickest.
//!
//! | file | holds |
//! |---|---|
//! | `link` | bandwidth and latency |
//! | `rates` | what a way of coding costs, and what it saves |
//! | `hosts` | cores of the two ends, and what moving bytes costs them |
//! | `time` | seconds of stages that overlap, or follow one another |
//! | `lanes` | some chunks coded, the others raw meanwhile |
//! | `choose` | the choice, and the bandwidth at which a way breaks even |

mod choose;
mod hosts;
mod lanes;
mod link;
mod rates;
mod time;

pub use choose::{Choice, FREE, MARGIN, Reason, break_even, choose};
pub use hosts::Hosts;
pub use lanes::{Lanes, best_lanes, forecast_lanes};
pub use link::{Link, PACKET};
pub use rates::{Cost, Payload, Rates, Size};
pub use time::{Forecast, Overlap, Stage, forecast, forecast_raw};
