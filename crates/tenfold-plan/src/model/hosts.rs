//! The two ends of a link, as far as they bound it.

use serde::Serialize;

/// Cores of the two ends, and what moving bytes costs them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hosts {
    /// Cores of the sender.
    pub sender: usize,
    /// Cores of the receiver.
    pub receiver: usize,
    /// Whether both are the same machine, with the sender's cores.
    pub shared: bool,
    /// CPU seconds that each end spends to move one byte through its network stack. Default: 0.
    pub io: f64,
}

impl Hosts {
    /// Two machines.
    pub fn apart(sender: usize, receiver: usize) -> Hosts {
        Hosts { sender: sender.max(1), receiver: receiver.max(1), shared: false, io: 0.0 }
    }

    /// One machine that sends to itself.
    pub fn shared(cores: usize) -> Hosts {
        Hosts { shared: true, ..Hosts::apart(cores, cores) }
    }

    /// Sets the CPU seconds a byte of moving.
    pub fn with_io(mut self, seconds_per_byte: f64) -> Hosts {
        self.io = seconds_per_byte.max(0.0);
        self
    }

    /// Seconds that a piece of work keeps the busier end's cores busy; both pieces are CPU seconds.
    pub(crate) fn seconds(&self, sending: f64, receiving: f64) -> f64 {
        if self.shared {
            (sending + receiving) / self.sender as f64
        } else {
            (sending / self.sender as f64).max(receiving / self.receiver as f64)
        }
    }
}
