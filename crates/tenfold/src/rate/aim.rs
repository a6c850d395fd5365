//! What a target asks of trials and passes: how much, how near, and how that answers to the step.

use super::Target;
use super::encoding::{Encoding, geometry};
use super::full::WRITE_BELOW;
use crate::blob::Geometry;
use crate::engine::search::{Slope, Tolerance, tolerance};

impl Encoding<'_> {
    /// How near full passes must come.
    pub(super) fn tolerance(&self, target: Target) -> &'static Tolerance {
        use tolerance::*;
        let values = self.view.len();
        let large = values >= MANY_VALUES;
        match target {
            Target::Cap(_) if values < WRITE_BELOW => &FULL_PASS_CAP_SMALL,
            Target::Cap(_) if self.is_streamed() => &FULL_PASS_CAP_STREAMED,
            Target::Cap(_) if large => &FULL_PASS_CAP_RECKONED_LARGE,
            Target::Cap(_) => &FULL_PASS_CAP_RECKONED,
            Target::Mse(_) if large => &FULL_PASS_ERROR_LARGE,
            Target::Mse(_) => &FULL_PASS_ERROR,
            _ if large => &FULL_PASS_BYTES_LARGE,
            _ => &FULL_PASS_BYTES,
        }
    }

    /// What is wanted of a trial or a pass: bytes, or the reciprocal of an error, so that it falls as the step grows; 0 where
    /// there is nothing to reach.
    pub(super) fn want(&self, target: Target) -> f64 {
        let tolerance = self.tolerance(target);
        match target {
            Target::Bytes(_) => {
                self.payload_bits(target) / 8.0 + self.overhead(geometry(self.view.len(), self.options))
            }
            Target::Cap(cap) => tolerance.aim_at(cap as f64).max(0.0),
            Target::Mse(mse) => 1.0 / tolerance.aim_at(mse),
            _ => 0.0,
        }
    }

    /// How that answers to the step.
    pub(super) fn slope(&self, target: Target) -> Slope {
        match target {
            Target::Mse(_) => Slope::Fineness,
            _ => Slope::bytes(self.n()),
        }
    }

    /// Bits that the target leaves for symbols. Soft goals on tiny tensors keep at least half of them:
    /// a header alone is of no use to anyone.
    pub(super) fn payload_bits(&self, target: Target) -> f64 {
        let overhead = self.overhead(geometry(self.view.len(), self.options)) * 8.0;
        match target {
            Target::Cap(cap) => (cap as f64 * 8.0 - overhead).max(1.0),
            Target::Bytes(b) => (b * 8.0 - overhead).max(b * 4.0),
            _ => 0.0,
        }
    }

    /// Bytes of header, directory and lanes, without classes and tables.
    pub(super) fn overhead(&self, geometry: Geometry) -> f64 {
        let tiles = geometry.tiles(self.view.len()) as f64;
        // A lane's state takes 32 bits and holds about 8 of the message.
        48.0 + self.label.bytes as f64 + tiles * (8.0 + 4.0 + geometry.lanes as f64 * 3.0)
    }
}
