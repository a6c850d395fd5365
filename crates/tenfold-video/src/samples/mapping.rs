//! Centre and step of each part of a tensor: value = base·centre + unit·step·(sample − middle).
//!
//! `base` and `unit` are exact and shared; centre and step of a part are bf16 numbers beside them, so that
//! many parts cost little. A tensor with one part stores none: its centre and step are 1.

use half::bf16;

use super::clip;

/// Who shares a centre and a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scaling {
    /// The whole tensor.
    #[default]
    Tensor,
    /// Each group of so many rows.
    Rows(usize),
    /// Each column (channel).
    Columns,
}

impl Scaling {
    /// Parts of a tensor of rows × columns; none where the tensor is the only one.
    pub fn parts(self, rows: usize, cols: usize) -> usize {
        match self {
            Scaling::Tensor => 0,
            Scaling::Rows(group) => rows.div_ceil(group.max(1)),
            Scaling::Columns => cols,
        }
    }

    /// The part of a value; 0 where there are none.
    fn part(self, i: usize, cols: usize) -> usize {
        match self {
            Scaling::Tensor => 0,
            Scaling::Rows(group) => i / cols.max(1) / group.max(1),
            Scaling::Columns => i % cols.max(1),
        }
    }
}

/// How values became samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// Who shares a centre and a scale.
    pub scaling: Scaling,
    /// Factor of the centres.
    pub base: f64,
    /// Factor of the steps.
    pub unit: f64,
    /// Centre and step of each part; empty for [`Scaling::Tensor`].
    pub parts: Vec<(bf16, bf16)>,
}

impl Mapping {
    /// Chooses centres and steps. With `clips` a part is clipped where that costs less squared error than
    /// reaching its largest value.
    pub fn choose(values: &[f64], cols: usize, scaling: Scaling, depth: u8, clips: bool) -> Self {
        let rows = values.len() / cols.max(1);
        let count = scaling.parts(rows, cols).max(1);
        let mut members: Vec<Vec<f64>> = vec![Vec::new(); count];
        values.iter().enumerate().for_each(|(i, &v)| members[scaling.part(i, cols).min(count - 1)].push(v));
        let mean = |m: &[f64]| m.iter().sum::<f64>() / m.len().max(1) as f64;
        let centres: Vec<f64> = members.iter().map(|m| mean(m)).collect();
        let base = centres.iter().fold(0.0, |a: f64, c| a.max(c.abs()));
        let base = if count == 1 && scaling == Scaling::Tensor { centres[0] } else { base };
        // The centre as it will be stored; the step then suits the rest.
        let stored = |c: f64| bf16::from_f64(if base == 0.0 { 0.0 } else { c / base });
        let steps: Vec<f64> = members
            .iter_mut()
            .zip(&centres)
            .map(|(m, &c)| {
                let centre = if scaling == Scaling::Tensor { base } else { base * stored(c).to_f64() };
                m.iter_mut().for_each(|v| *v = (*v - centre).abs());
                if clips { clip::best_step(m, depth) } else { clip::whole_step(m, depth) }
            })
            .collect();
        let unit = steps.iter().fold(0.0, |a: f64, &s| a.max(s));
        let unit = if unit.is_normal() { unit } else { f64::MIN_POSITIVE };
        let parts = match scaling {
            Scaling::Tensor => Vec::new(),
            _ => {
                let step = |s: f64| bf16::from_f64(if s > 0.0 { s / unit } else { 1.0 });
                centres.iter().zip(&steps).map(|(&c, &s)| (stored(c), step(s))).collect()
            }
        };
        Mapping { scaling, base, unit, parts }
    }

    /// The same with larger steps: the continuous knob beside a codec's integer quantiser.
    pub fn coarsen(&self, factor: f64) -> Self {
        Mapping { unit: self.unit * factor, ..self.clone() }
    }

    /// The same with one size of step for all parts.
    pub fn with_step(&self, step: f64) -> Self {
        let parts = self.parts.iter().map(|&(centre, _)| (centre, bf16::ONE)).collect();
        Mapping { unit: step, parts, ..self.clone() }
    }

    /// Centre and step of the part that holds value `i`.
    fn centre_and_step(&self, i: usize, cols: usize) -> (f64, f64) {
        match self.parts.get(self.scaling.part(i, cols)) {
            Some((centre, step)) => (self.base * centre.to_f64(), self.unit * step.to_f64()),
            None => (self.base, self.unit),
        }
    }

    /// Samples of the values `first …` of the tensor, clipped to the depth.
    pub fn to_samples(&self, values: &[f64], first: usize, cols: usize, depth: u8) -> Vec<u16> {
        let top = f64::from((1u32 << depth) - 1);
        let middle = f64::from(1u32 << (depth - 1));
        let sample = |(i, v): (usize, &f64)| {
            let (centre, step) = self.centre_and_step(first + i, cols);
            ((v - centre) / step + middle).round().clamp(0.0, top) as u16
        };
        values.iter().enumerate().map(sample).collect()
    }

    /// Values of the samples `first …` of the tensor.
    pub fn to_values(&self, samples: &[u16], first: usize, cols: usize, depth: u8, out: &mut [f64]) {
        let middle = f64::from(1u32 << (depth - 1));
        for (i, (o, &s)) in out.iter_mut().zip(samples).enumerate() {
            let (centre, step) = self.centre_and_step(first + i, cols);
            *o = centre + step * (f64::from(s) - middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<f64> {
        (0..64 * 48).map(|i| (i as f64 * 1.7).sin() * (1.0 + (i % 48) as f64) + (i / 480) as f64).collect()
    }

    #[test]
    fn samples_come_back_close_whoever_shares_a_scale() {
        let values = values();
        for scaling in [Scaling::Tensor, Scaling::Rows(5), Scaling::Rows(1000), Scaling::Columns] {
            for depth in [8, 12] {
                let m = Mapping::choose(&values, 48, scaling, depth, false);
                assert_eq!(m.parts.len(), scaling.parts(64, 48));
                let mut back = vec![0.0; values.len()];
                m.to_values(&m.to_samples(&values, 0, 48, depth), 0, 48, depth, &mut back);
                for (i, (a, b)) in values.iter().zip(&back).enumerate() {
                    // bf16 steps may fall short of the range by 1/256.
                    let bound = m.centre_and_step(i, 48).1 * (0.51 + f64::from(1u32 << depth) / 512.0);
                    assert!((a - b).abs() <= bound, "{scaling:?} {depth}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn constants_and_extremes_are_held() {
        for value in [0.0, -3.25, 1e300, 1e-310] {
            let m = Mapping::choose(&[value; 8], 4, Scaling::Tensor, 8, true);
            let mut back = [0.0; 8];
            m.to_values(&m.to_samples(&[value; 8], 0, 4, 8), 0, 4, 8, &mut back);
            assert!(back.iter().all(|b| (b - value).abs() <= value.abs() * 1e-12), "{value} {back:?}");
        }
    }
}
