//! What a lane keeps for its next stream: decoders, since making one takes 40 to 160 ms.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenfold_cuda::Device;

use super::decoder::{Counts, Decoder, Shape};
use crate::cuvid::Cuvid;
use crate::error::Result;

/// Idle decoders, the one used last at the end.
pub(super) struct Cache {
    idle: Vec<Decoder>,
    /// Bytes of the device's memory that idle decoders may keep.
    most: u64,
}

impl Cache {
    pub(super) fn new(most: u64) -> Cache {
        Cache { idle: Vec::new(), most }
    }

    /// A decoder for a shape: one that is set up for it, one that can be, or a new one.
    pub(super) fn take(
        &mut self,
        api: &'static Cuvid,
        device: &Device,
        counts: &Arc<Counts>,
        shape: Shape,
    ) -> Result<Decoder> {
        if let Some(at) = self.idle.iter().rposition(|d| d.shape == shape) {
            counts.reused.fetch_add(1, Ordering::AcqRel);
            return Ok(self.idle.remove(at));
        }
        if let Some(at) = self.idle.iter().rposition(|d| d.can_become(&shape)) {
            let mut decoder = self.idle.remove(at);
            // A driver that will not gets a new decoder to make; this one is closed.
            if decoder.reconfigure(shape).is_ok() {
                return Ok(decoder);
            }
        }
        self.make_room(shape.bytes());
        Decoder::create(api, device, counts, shape).or_else(|error| {
            if self.idle.is_empty() {
                return Err(error);
            }
            // Perhaps idle ones hold what it needs.
            self.idle.clear();
            Decoder::create(api, device, counts, shape)
        })
    }

    /// Keeps a decoder for later.
    pub(super) fn put(&mut self, decoder: Decoder) {
        self.make_room(decoder.shape.bytes());
        if decoder.shape.bytes() <= self.most {
            self.idle.push(decoder);
        }
    }

    /// Closes the decoders that were used longest ago until there is room for one more.
    fn make_room(&mut self, bytes: u64) {
        let held = |idle: &[Decoder]| idle.iter().map(|d| d.shape.bytes()).sum::<u64>();
        while !self.idle.is_empty() && held(&self.idle) + bytes > self.most {
            self.idle.remove(0);
        }
    }
}
