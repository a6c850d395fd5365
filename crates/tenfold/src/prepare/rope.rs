//! Rotary position embedding, undone before and done again behind. Normative: docs/format.md, 'Rotary positions'.
//!
//! A model turns pairs of columns of its keys by angles that grow with the token's position. Turned back, channels keep
//! their means and move together again.

use super::real::Real;
use crate::blob::bytes::{Reader, put_varint};
use crate::error::{Error, Result};

/// Which columns of a head are turned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Column k with column k + half of those that are turned (Llama, Qwen, GPT-NeoX).
    Halves,
    /// Column 2k with column 2k + 1 (GPT-J, original RoFormer).
    Neighbours,
}

/// How frequencies are changed for contexts longer than those of training.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// Not at all.
    None,
    /// Every frequency divided by this.
    Linear(f64),
    /// As Llama 3 does: low frequencies divided by a factor, high ones kept, those in between mixed.
    Llama3 {
        /// Divides low frequencies.
        factor: f64,
        /// Wavelengths above the original length over this are low.
        low: f64,
        /// Wavelengths below the original length over this are high.
        high: f64,
        /// Tokens of the original context.
        original: f64,
    },
}

impl Scaling {
    fn numbers(&self) -> Vec<f64> {
        match *self {
            Scaling::None => vec![],
            Scaling::Linear(factor) => vec![factor],
            Scaling::Llama3 { factor, low, high, original } => vec![factor, low, high, original],
        }
    }

    fn check(&self) -> bool {
        let positive = self.numbers().iter().all(|v| v.is_finite() && *v > 0.0);
        positive && !matches!(self, Scaling::Llama3 { low, high, .. } if low >= high)
    }

    fn scaled(&self, frequency: f64) -> f64 {
        match *self {
            Scaling::None => frequency,
            Scaling::Linear(factor) => frequency / factor,
            Scaling::Llama3 { factor, low, high, original } => {
                let turns = original * frequency / std::f64::consts::TAU;
                let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * ((1.0 - keep) / factor + keep)
            }
        }
    }
}

/// Positions of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Positions {
    /// Row i has position `first` + i.
    From(u64),
    /// Row i has entry i modulo their number: one for each token where rows go through tokens again and again.
    List(Vec<u64>),
}

/// Largest position: angles are still exact to a millionth there.
pub const MOST: u64 = 1 << 32;
/// Most columns of a head.
const MOST_HEAD: u64 = 1 << 16;

/// What a model's rotary embedding does.
///
/// ```
/// use tenfold::prepare::{Positions, Rope};
/// // Heads of 64 columns, base 10000, tokens 100, 101, …
/// let rope = Rope::new(64, 10_000.0)?.with_positions(Positions::From(100))?;
/// let mut row = vec![1.0f64; 128];
/// rope.forward(&mut row, 128, 0);
/// assert!((row[0] - (100f64.cos() + 100f64.sin())).abs() < 1e-9);
/// rope.inverse(&mut row, 128, 0);
/// assert!(row.iter().all(|v| (v - 1.0).abs() < 1e-9));
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pairing: Pairing,
    head: usize,
    turned: usize,
    base: f64,
    scaling: Scaling,
    positions: Positions,
}

impl Rope {
    /// Heads of so many columns, all of them turned, half with half; positions from 0.
    pub fn new(head: usize, base: f64) -> Result<Self> {
        let rope = Rope {
            pairing: Pairing::Halves,
            head,
            turned: head,
            base,
            scaling: Scaling::None,
            positions: Positions::From(0),
        };
        rope.checked()
    }

    /// Sets which columns belong together.
    pub fn with_pairing(mut self, pairing: Pairing) -> Self {
        self.pairing = pairing;
        self
    }

    /// Sets how many columns of each head are turned, from its first on.
    pub fn with_turned(mut self, turned: usize) -> Result<Self> {
        self.turned = turned;
        self.checked()
    }

    /// Sets the scaling of frequencies.
    pub fn with_scaling(mut self, scaling: Scaling) -> Result<Self> {
        self.scaling = scaling;
        self.checked()
    }

    /// Sets the positions.
    pub fn with_positions(mut self, positions: Positions) -> Result<Self> {
        self.positions = positions;
        self.checked()
    }

    fn checked(self) -> Result<Self> {
        match self.fault() {
            Some(why) => Err(Error::InvalidArgument(why.into())),
            None => Ok(self),
        }
    }

    /// What is wrong with it, if anything.
    fn fault(&self) -> Option<&'static str> {
        let far = match &self.positions {
            Positions::From(first) => *first > MOST,
            Positions::List(list) => list.is_empty() || list.iter().any(|&p| p > MOST),
        };
        if self.head as u64 > MOST_HEAD
            || self.turned == 0
            || self.turned > self.head
            || !self.turned.is_multiple_of(2)
        {
            Some("a head must have 2 to 65536 columns, and an even number of them must rotate")
        } else if !(self.base.is_finite() && self.base > 1.0 && self.scaling.check()) {
            Some("rotary positions need a base above 1, positive scaling factors, and low below high")
        } else if far {
            Some("there must be at least one position, and none above 2^32")
        } else {
            None
        }
    }

    /// Columns of a head.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Columns of a head that are turned, from its first on.
    pub fn turned(&self) -> usize {
        self.turned
    }

    /// Which columns belong together.
    pub fn pairing(&self) -> Pairing {
        self.pairing
    }

    /// The positions.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Radians that each pair of columns is turned by from one position to the next.
    pub fn frequencies(&self) -> Vec<f64> {
        let frequency = |k: usize| self.scaling.scaled(self.base.powf(-2.0 * k as f64 / self.turned as f64));
        (0..self.turned / 2).map(frequency).collect()
    }

    /// Turns whole rows of `cols` values back; the first is row `first` of the tensor.
    pub fn forward<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        self.turn(values, cols, first, -1.0);
    }

    /// Turns them as the model did.
    pub fn inverse<R: Real>(&self, values: &mut [R], cols: usize, first: usize) {
        self.turn(values, cols, first, 1.0);
    }

    fn turn<R: Real>(&self, values: &mut [R], cols: usize, first: usize, sign: f64) {
        let half = self.turned / 2;
        let frequencies = self.frequencies();
        let mut factors = vec![(R::from_f64(1.0), R::from_f64(0.0)); half];
        for (i, row) in values.chunks_exact_mut(cols.max(1)).enumerate() {
            let position = self.position(first + i) as f64;
            for (f, frequency) in factors.iter_mut().zip(&frequencies) {
                let (sin, cos) = (position * frequency).sin_cos();
                *f = (R::from_f64(cos), R::from_f64(sign * sin));
            }
            for head in row.chunks_exact_mut(self.head) {
                for (k, &(cos, sin)) in factors.iter().enumerate() {
                    let (a, b) = match self.pairing {
                        Pairing::Halves => (k, k + half),
                        Pairing::Neighbours => (2 * k, 2 * k + 1),
                    };
                    let (x, y) = (head[a], head[b]);
                    head[a] = x.times(cos).plus(y.times(sin).times(R::from_f64(-1.0)));
                    head[b] = x.times(sin).plus(y.times(cos));
                }
            }
        }
    }

    fn position(&self, row: usize) -> u64 {
        match &self.positions {
            Positions::From(first) => first + row as u64,
            Positions::List(list) => list[row % list.len()],
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![self.pairing as u8];
        put_varint(&mut out, self.head as u64);
        put_varint(&mut out, self.turned as u64);
        out.extend_from_slice(&self.base.to_le_bytes());
        out.push(match self.scaling {
            Scaling::None => 0,
            Scaling::Linear(_) => 1,
            Scaling::Llama3 { .. } => 2,
        });
        self.scaling.numbers().iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        match &self.positions {
            Positions::From(first) => {
                out.push(0);
                put_varint(&mut out, *first);
            }
            Positions::List(list) => {
                out.push(1);
                put_varint(&mut out, list.len() as u64);
                list.iter().for_each(|&p| put_varint(&mut out, p));
            }
        }
        out
    }

    /// Reads the transform of a tensor of so many columns.
    pub(super) fn read(content: &[u8], cols: usize) -> Result<Self> {
        let mut r = Reader::new(content);
        let rope = Rope::read_from(&mut r);
        let fits =
            |rope: &Rope| rope.fault().is_none() && cols.is_multiple_of(rope.head) && r.rest().is_empty();
        rope.ok().flatten().filter(fits).ok_or(Error::Corrupt("rotary positions step"))
    }

    fn read_from(r: &mut Reader<'_>) -> Result<Option<Rope>> {
        let pairing = match r.u8()? {
            0 => Pairing::Halves,
            1 => Pairing::Neighbours,
            _ => return Ok(None),
        };
        let (head, turned) = (r.varint()?, r.varint()?);
        if head > MOST_HEAD || turned > head {
            return Ok(None);
        }
        let base = f64::from_le_bytes(r.array()?);
        let kind = r.u8()?;
        let mut number = || r.array().map(f64::from_le_bytes);
        let scaling = match kind {
            0 => Scaling::None,
            1 => Scaling::Linear(number()?),
            2 => Scaling::Llama3 { factor: number()?, low: number()?, high: number()?, original: number()? },
            _ => return Ok(None),
        };
        let positions = match r.u8()? {
            0 => Positions::From(r.varint()?),
            1 => {
                let count = r.varint()?;
                // Each takes a byte at least.
                if count > r.rest().len() as u64 {
                    return Ok(None);
                }
                Positions::List((0..count).map(|_| r.varint()).collect::<Result<_>>()?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Rope { pairing, head: head as usize, turned: turned as usize, base, scaling, positions }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ropes() -> Vec<Rope> {
        let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        vec![
            Rope::new(8, 10_000.0).unwrap(),
            Rope::new(8, 500_000.0)
                .unwrap()
                .with_scaling(llama3)
                .unwrap()
                .with_positions(Positions::From(77))
                .unwrap(),
            Rope::new(8, 1e4)
                .unwrap()
                .with_pairing(Pairing::Neighbours)
                .with_turned(4)
                .unwrap()
                .with_scaling(Scaling::Linear(2.0))
                .unwrap()
                .with_positions(Positions::List(vec![5, 0, 1 << 32]))
                .unwrap(),
        ]
    }

    #[test]
    fn rows_come_back_and_keep_their_energy() {
        for rope in ropes() {
            let values: Vec<f64> = (0..24 * 5).map(|i| (f64::from(i) * 0.37).sin()).collect();
            let mut turned = values.clone();
            rope.forward(&mut turned, 24, 3);
            assert!(values.iter().zip(&turned).any(|(a, b)| (a - b).abs() > 0.1));
            let energy = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
            assert!((energy(&turned) / energy(&values) - 1.0).abs() < 1e-12);
            rope.inverse(&mut turned, 24, 3);
            assert!(values.iter().zip(&turned).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }

    #[test]
    fn llama_3_keeps_high_frequencies_and_divides_low_ones() {
        let s = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        assert_eq!(s.scaled(1.0), 1.0);
        assert_eq!(s.scaled(1e-5), 1e-5 / 8.0);
        let between = s.scaled(std::f64::consts::TAU * 2.5 / 8192.0) / (std::f64::consts::TAU * 2.5 / 8192.0);
        assert!((between - (0.5 / 8.0 + 0.5)).abs() < 1e-12);
    }

    #[test]
    fn stored_form_must_make_sense() {
        for rope in ropes() {
            let stored = rope.write();
            assert_eq!(Rope::read(&stored, 24).unwrap(), rope);
            let corrupt = Err(Error::Corrupt("rotary positions step"));
            assert_eq!(Rope::read(&stored, 25), corrupt);
            for len in 0..stored.len() {
                assert_eq!(Rope::read(&stored[..len], 24), corrupt);
            }
            assert_eq!(Rope::read(&[&stored[..], &[0]].concat(), 24), corrupt);
        }
        assert!(Rope::new(7, 1e4).is_err() && Rope::new(8, 1.0).is_err() && Rope::new(0, 1e4).is_err());
        assert!(ropes()[0].clone().with_turned(10).is_err());
        assert!(ropes()[0].clone().with_positions(Positions::List(vec![])).is_err());
        assert!(ropes()[0].clone().with_scaling(Scaling::Linear(0.0)).is_err());
    }
}
