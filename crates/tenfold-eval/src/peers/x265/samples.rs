//! Real values as picture samples and back.

use super::super::PeerError;
use super::super::header::Cursor;

/// Who shares a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// The tensor, with the range of least squared error after clipping.
    Tensor,
    /// Each group of so many rows, in the same way.
    RowGroups(usize),
    /// This scale (samples a unit of value) whatever the tensor. With the same quantiser for several
    /// tensors this spreads one distortion over all, which is what least squared error over a file wants.
    Fixed(f64),
}

/// Centre and scale of each group of rows: sample = (value − centre)·scale + middle.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    group: u32,
    parts: Vec<(f32, f32)>,
}

impl Mapping {
    /// Chooses the mapping for a tensor. `finer` multiplies every scale: the continuous knob beside the
    /// encoder's integer quantiser.
    pub fn choose(values: &[f64], cols: usize, scaling: Scaling, depth: u8, finer: f64) -> Self {
        let rows = values.len() / cols.max(1);
        let group = match scaling {
            Scaling::RowGroups(n) => n.clamp(1, rows.max(1)),
            _ => rows.max(1),
        };
        let parts = values.chunks((group * cols).max(1)).map(|part| {
            let centre = part.iter().sum::<f64>() / part.len() as f64;
            let scale = match scaling {
                Scaling::Fixed(scale) => scale,
                _ => best_scale(part, centre, depth),
            };
            (centre as f32, (scale * finer) as f32)
        });
        Mapping { group: u32::try_from(group).unwrap_or(u32::MAX), parts: parts.collect() }
    }

    /// Samples of the values, clipped to the depth.
    pub fn to_samples(&self, values: &[f64], cols: usize, depth: u8) -> Vec<u16> {
        let top = f64::from((1u32 << depth) - 1);
        let middle = f64::from(1u32 << (depth - 1));
        let part = self.part_len(cols);
        let chunks = values.chunks(part).zip(&self.parts);
        chunks
            .flat_map(|(chunk, &(centre, scale))| {
                let (centre, scale) = (f64::from(centre), f64::from(scale));
                chunk.iter().map(move |v| ((v - centre) * scale + middle).round().clamp(0.0, top) as u16)
            })
            .collect()
    }

    /// Values of the samples.
    pub fn to_values(&self, samples: &[u16], cols: usize, depth: u8) -> Vec<f64> {
        let middle = f64::from(1u32 << (depth - 1));
        let chunks = samples.chunks(self.part_len(cols)).zip(&self.parts);
        chunks
            .flat_map(|(chunk, &(centre, scale))| {
                let (centre, scale) = (f64::from(centre), f64::from(scale));
                chunk.iter().map(move |&s| (f64::from(s) - middle) / scale + centre)
            })
            .collect()
    }

    fn part_len(&self, cols: usize) -> usize {
        (self.group as usize).saturating_mul(cols).max(1)
    }

    /// Appends the mapping to a byte string.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.group.to_le_bytes());
        out.extend((self.parts.len() as u32).to_le_bytes());
        for (centre, scale) in &self.parts {
            out.extend(centre.to_le_bytes());
            out.extend(scale.to_le_bytes());
        }
    }

    /// Reads what [`Mapping::write`] wrote.
    pub(in crate::peers) fn read(cursor: &mut Cursor<'_>) -> Result<Self, PeerError> {
        let (group, count) = (cursor.u32()?, cursor.u32()? as usize);
        let need = count.checked_mul(8).ok_or_else(|| PeerError::Corrupt("mapping".to_string()))?;
        let mut fields = Cursor(cursor.take(need)?);
        let parts = (0..count).map(|_| Ok((fields.f32()?, fields.f32()?)));
        Ok(Mapping { group, parts: parts.collect::<Result<_, PeerError>>()? })
    }
}

/// Samples a unit of value such that rounding and clipping together cost least squared error.
pub fn best_scale(values: &[f64], centre: f64, depth: u8) -> f64 {
    let half = f64::from(1u32 << (depth - 1)) - 1.0;
    let mut sizes: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let n = sizes.len() as f64;
    let Some(&largest) = sizes.last().filter(|&&m| m > 0.0) else {
        return 1.0;
    };
    // Candidates: the largest value and what lies a geometric number of values below it.
    let mut best = (f64::INFINITY, half / largest);
    let (mut i, mut beyond, mut beyond_sq) = (sizes.len(), 0.0, 0.0);
    let mut next = 0usize;
    while i > 0 {
        i -= 1;
        let clip = sizes[i];
        let above = (sizes.len() - 1 - i) as f64;
        if sizes.len() - 1 - i >= next && clip > 0.0 {
            let clipped = beyond_sq - 2.0 * clip * beyond + above * clip * clip;
            let rounded = (clip / half).powi(2) / 12.0 * n;
            if clipped + rounded < best.0 {
                best = (clipped + rounded, half / clip);
            }
            next = next * 9 / 8 + 1;
        }
        if above > n / 8.0 {
            break;
        }
        beyond += clip;
        beyond_sq += clip * clip;
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Fidelity;
    use crate::synth::{self, Shape};

    fn gaussian() -> Vec<f64> {
        synth::values(Shape::Gaussian, 0.05, 1 << 16, 3).iter().map(|&v| f64::from(v) + 2.0).collect()
    }

    #[test]
    fn samples_come_back_close() {
        let values = gaussian();
        for scaling in [Scaling::Tensor, Scaling::RowGroups(16)] {
            let m = Mapping::choose(&values, 256, scaling, 8, 1.0);
            let back = m.to_values(&m.to_samples(&values, 256, 8), 256, 8);
            let nmse = Fidelity::of(&values, &back).nmse();
            // ±4.3 σ over 256 levels: (8.6/255)²/12 = 1e-4.
            assert!(nmse < 1.5e-4, "{nmse}");
        }
    }

    #[test]
    fn one_outlier_is_clipped_when_that_is_cheaper() {
        let mut values = gaussian();
        let plain = best_scale(&values, 2.0, 8);
        values[77] = 2.3; // 6 σ: following it would cost more than clipping it
        assert!(best_scale(&values, 2.0, 8) > 0.8 * plain);
        values[77] = 2000.0; // clipping this would cost everything
        assert!(best_scale(&values, 2.0, 8) < 0.001 * plain);
    }

    #[test]
    fn mapping_round_trips() {
        let m = Mapping::choose(&gaussian(), 256, Scaling::RowGroups(10), 8, 1.0);
        let mut bytes = Vec::new();
        m.write(&mut bytes);
        assert_eq!(Mapping::read(&mut Cursor(&bytes)).unwrap(), m);
        assert!(Mapping::read(&mut Cursor(&bytes[..bytes.len() - 1])).is_err());
    }
}
