//! Time of the encoder alone: one thread, the start of the program taken off.

use std::time::Instant;

use super::super::PeerError;
use super::{Geometry, Mapping, Plane, Scaling, Settings, Target, encode_set, ffmpeg};
use crate::metrics::median;

/// Side of the picture whose time stands for the start of the program.
const TINY: usize = 64;

/// Pictures ready to be coded again and again at a fixed quantiser.
pub struct SpeedTrial {
    samples: Vec<u16>,
    geometry: Geometry,
    settings: Settings,
    qp: u32,
    values: usize,
    start: f64,
    /// Bits a value at the quantiser found.
    pub bits: f64,
}

impl SpeedTrial {
    /// Finds the quantiser for a rate and measures the start of the program.
    pub fn prepare(plane: &Plane, settings: &Settings, bits: f64) -> Result<Self, PeerError> {
        let found = encode_set(std::slice::from_ref(plane), settings, Scaling::Tensor, Target::Bits(bits))?;
        let (values, cols) = (&plane.values, plane.cols);
        let mapping = Mapping::choose(values, cols, Scaling::Tensor, settings.depth, found.finer);
        let geometry = Geometry::of(values.len() / cols.max(1), cols);
        let samples = geometry.lay_out(&mapping.to_samples(values, cols, settings.depth));
        let tiny = Geometry { width: TINY, height: TINY, count: 1 };
        let mut starts = Vec::new();
        for _ in 0..3 {
            starts.push(seconds(&vec![128; TINY * TINY], &tiny, settings, found.qp)?);
        }
        let values = values.len();
        let start = median(&starts);
        Ok(SpeedTrial {
            samples,
            geometry,
            settings: settings.clone(),
            qp: found.qp,
            values,
            start,
            bits: found.bits,
        })
    }

    /// Codes once and returns values a second.
    pub fn run(&self) -> Result<f64, PeerError> {
        let whole = seconds(&self.samples, &self.geometry, &self.settings, self.qp)?;
        Ok(self.values as f64 / (whole - self.start).max(1e-6))
    }
}

fn seconds(samples: &[u16], geometry: &Geometry, settings: &Settings, qp: u32) -> Result<f64, PeerError> {
    let begin = Instant::now();
    ffmpeg::encode(samples, geometry, settings, qp)?;
    Ok(begin.elapsed().as_secs_f64())
}
