//! The planner's choice between raw and ways of coding, for programs that send tensors themselves.

use pyo3::prelude::*;
use tenfold_plan::{Cost, Hosts, Link, Payload, Rates, choose};

use crate::errors::ArgumentError;

/// Name, cost of encoding and of decoding as seconds a call and a byte, ratio, and nmse if it is known.
type Way = (String, (f64, f64), (f64, f64), f64, Option<f64>);

fn refused(error: tenfold_plan::Error) -> PyErr {
    ArgumentError::new_err(error.to_string())
}

fn cost(what: &str, (fixed, per_byte): (f64, f64)) -> PyResult<Cost> {
    if !(fixed >= 0.0 && per_byte >= 0.0 && fixed.is_finite() && per_byte.is_finite()) {
        return Err(ArgumentError::new_err(format!(
            "the cost of {what} is {fixed} s a call and {per_byte} s a byte; neither may be negative or infinite"
        )));
    }
    Ok(Cost { fixed, per_byte })
}

/// The number of the chosen way (None is raw), the reason as a word and as a sentence, and the seconds that the choice
/// and raw take.
#[pyfunction]
pub fn choose_way(
    nbytes: u64,
    chunk: u64,
    ways: Vec<Way>,
    link: (f64, f64),
    cores: (usize, usize),
) -> PyResult<(Option<usize>, String, &'static str, f64, f64)> {
    let link = Link::new(link.0).and_then(|made| made.with_latency(link.1)).map_err(refused)?;
    let mut rates = Vec::with_capacity(ways.len());
    for (name, encode, decode, ratio, nmse) in ways {
        // The rates are replaced by costs, which have a part that does not depend on the size.
        let mut way = Rates::stated(&name, 1.0, 1.0, ratio).map_err(refused)?;
        (way.encode, way.decode, way.nmse) = (cost("encoding", encode)?, cost("decoding", decode)?, nmse);
        rates.push(way);
    }
    let payload = Payload::new(nbytes).with_chunk(chunk);
    let choice = choose(&link, &payload, &rates, &Hosts::apart(cores.0, cores.1));
    let (seconds, raw) = (choice.forecast.seconds, choice.raw.seconds);
    // The word that reports have.
    let word = serde_json::to_value(choice.reason).ok().and_then(|v| v.as_str().map(str::to_owned));
    Ok((choice.way, word.unwrap_or_default(), choice.reason.text(), seconds, raw))
}

/// Seconds a call and a byte, from two measurements of bytes and seconds.
#[pyfunction]
pub fn fit_cost(small: (f64, f64), large: (f64, f64)) -> (f64, f64) {
    let found = Cost::fit(small, large);
    (found.fixed, found.per_byte)
}

/// Bytes a second, from a text such as `100Mb/s`.
#[pyfunction]
pub fn parse_bandwidth(text: &str) -> PyResult<f64> {
    tenfold_plan::parse_bandwidth(text).map_err(refused)
}
