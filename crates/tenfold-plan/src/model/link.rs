//! What a link carries.

use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::unit;

/// Payload of one packet of TCP over Ethernet.
pub const PACKET: u64 = 1448;

/// A link between two hosts, one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Seconds from the end of sending to the end of receiving. Default: 0.
    pub latency: f64,
    /// Bytes of one packet: a link does not become faster below. Default: [`PACKET`].
    pub packet: u64,
}

impl Link {
    /// A link of so many bytes a second.
    pub fn new(bytes_per_second: f64) -> Result<Link> {
        if !(bytes_per_second > 0.0 && bytes_per_second.is_finite()) {
            return Err(Error::InvalidArgument(format!(
                "a link of {bytes_per_second} bytes a second carries nothing"
            )));
        }
        Ok(Link { bytes_per_second, latency: 0.0, packet: PACKET })
    }

    /// Sets the latency, in seconds.
    pub fn with_latency(mut self, seconds: f64) -> Result<Link> {
        if !(seconds >= 0.0 && seconds.is_finite()) {
            return Err(Error::InvalidArgument(format!("a latency of {seconds} seconds is none")));
        }
        self.latency = seconds;
        Ok(self)
    }

    /// Sets the bytes of one packet.
    pub fn with_packet(mut self, bytes: u64) -> Link {
        self.packet = bytes;
        self
    }

    /// Seconds that so many bytes occupy it.
    pub fn seconds(&self, bytes: f64) -> f64 {
        bytes / self.bytes_per_second
    }
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Link> {
        Link::new(unit::bandwidth(text)?)
    }
}
