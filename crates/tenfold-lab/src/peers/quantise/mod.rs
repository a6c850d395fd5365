//! Quantisers: values to small codes and side values, and back. What the codes then cost is the business
//! of a [`Coder`](super::Coder); the two meet in [`Combined`](super::Combined).

mod hadamard;
mod lloyd;
mod mx;
mod nf4;
mod rtn;
mod side;

pub use lloyd::Lloyd;
pub use mx::MxFormat;
pub use nf4::Nf4;
pub use rtn::Rtn;

use super::PeerError;
use super::plain::corrupt;

/// What a quantiser makes of a tensor.
pub(super) struct Codes {
    /// One code a value, each below 2^width.
    pub codes: Vec<u8>,
    /// Scales and the like.
    pub side: Vec<u8>,
}

/// A quantiser with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantiser {
    /// Round to nearest.
    Rtn(Rtn),
    /// Quantiles of a normal distribution, four bits.
    Nf4(Nf4),
    /// OCP microscaling.
    Mx(MxFormat),
    /// Signed Hadamard transform of the rows, then round to nearest.
    HadamardRtn(Rtn),
    /// Signed Hadamard transform of the rows, twice, then the Lloyd–Max levels of a Gaussian.
    HadamardLloyd(Lloyd),
}

/// Bytes of [`Quantiser::settings`].
pub(super) const SETTINGS: usize = 5;

impl Quantiser {
    /// Name with settings.
    pub fn name(&self) -> String {
        match self {
            Quantiser::Rtn(q) => q.name(),
            Quantiser::Nf4(q) => q.name(),
            Quantiser::Mx(q) => q.name().to_string(),
            Quantiser::HadamardRtn(q) => format!("hadamard {}", q.name()),
            Quantiser::HadamardLloyd(q) => format!("hadamard lloyd{}", q.bits),
        }
    }

    /// Bits of a code.
    pub fn width(&self) -> u8 {
        match self {
            Quantiser::Rtn(q) | Quantiser::HadamardRtn(q) => q.bits,
            Quantiser::Nf4(_) => 4,
            Quantiser::Mx(q) => q.width(),
            Quantiser::HadamardLloyd(q) => q.bits,
        }
    }

    /// Bits of codes and side values for each value, with codes of fixed length and rows that are long.
    pub fn nominal_bits(&self) -> f64 {
        let side = match self {
            Quantiser::Rtn(q) | Quantiser::HadamardRtn(q) => q.side_bits(),
            Quantiser::Nf4(q) => q.side_bits(),
            Quantiser::Mx(_) => 8.0 / mx::BLOCK as f64,
            Quantiser::HadamardLloyd(_) => 0.0,
        };
        f64::from(self.width()) + side
    }

    /// The same quantiser with codes of another width, if it has such.
    pub fn with_width(&self, width: u8) -> Option<Self> {
        let other = match *self {
            Quantiser::Rtn(q) => Quantiser::Rtn(Rtn { bits: width, ..q }),
            Quantiser::HadamardRtn(q) => Quantiser::HadamardRtn(Rtn { bits: width, ..q }),
            Quantiser::HadamardLloyd(_) => Quantiser::HadamardLloyd(Lloyd { bits: width }),
            Quantiser::Nf4(_) | Quantiser::Mx(_) => *self,
        };
        (other.width() == width && other.check().is_ok()).then_some(other)
    }

    /// Whether the settings make sense.
    pub(super) fn check(&self) -> Result<(), PeerError> {
        match self {
            Quantiser::Rtn(q) | Quantiser::HadamardRtn(q) => q.check(),
            Quantiser::HadamardLloyd(q) => q.check(),
            Quantiser::Nf4(_) | Quantiser::Mx(_) => Ok(()),
        }
    }

    /// Quantises rows of `row` values. The settings have passed [`Quantiser::check`].
    pub(super) fn quantise(&self, mut values: Vec<f64>, row: usize) -> Result<Codes, PeerError> {
        Ok(match self {
            Quantiser::Rtn(q) => q.quantise(&values),
            Quantiser::Nf4(q) => q.quantise(&values),
            Quantiser::Mx(q) => q.quantise(&values),
            Quantiser::HadamardRtn(q) => {
                hadamard::forward(&mut values, row, 1)?;
                q.quantise(&values)
            }
            Quantiser::HadamardLloyd(q) => {
                hadamard::forward(&mut values, row, 2)?;
                q.quantise(&values, row)
            }
        })
    }

    /// Bytes of side values for `n` values in rows of `row`.
    pub(super) fn side_len(&self, n: usize, row: usize) -> usize {
        match self {
            Quantiser::Rtn(q) | Quantiser::HadamardRtn(q) => q.side_len(n),
            Quantiser::Nf4(q) => q.side_len(n),
            Quantiser::Mx(_) => n.div_ceil(mx::BLOCK),
            Quantiser::HadamardLloyd(_) => 4 + 2 * n.div_ceil(row),
        }
    }

    /// Takes the values back; `side` has the length of [`Quantiser::side_len`].
    pub(super) fn restore(&self, codes: &[u8], side: &[u8], row: usize) -> Result<Vec<f64>, PeerError> {
        match self {
            Quantiser::Rtn(q) => q.restore(codes, side),
            Quantiser::Nf4(q) => q.restore(codes, side),
            Quantiser::Mx(q) => Ok(q.restore(codes, side)),
            Quantiser::HadamardRtn(q) => {
                let mut values = q.restore(codes, side)?;
                hadamard::inverse(&mut values, row, 1)?;
                Ok(values)
            }
            Quantiser::HadamardLloyd(q) => {
                let mut values = q.restore(codes, side, row)?;
                hadamard::inverse(&mut values, row, 2)?;
                Ok(values)
            }
        }
    }

    /// The settings as bytes.
    pub(super) fn settings(&self) -> [u8; SETTINGS] {
        let rtn = |id, q: &Rtn| {
            let [low, high] = q.group.to_le_bytes();
            [id, q.bits, u8::from(q.symmetric), low, high]
        };
        match self {
            Quantiser::Rtn(q) => rtn(0, q),
            Quantiser::Nf4(q) => [1, u8::from(q.wide), 0, 0, 0],
            Quantiser::Mx(q) => [2, q.id(), 0, 0, 0],
            Quantiser::HadamardRtn(q) => rtn(3, q),
            Quantiser::HadamardLloyd(q) => [4, q.bits, 0, 0, 0],
        }
    }

    /// The settings, read back and checked.
    pub(super) fn from_settings(settings: [u8; SETTINGS]) -> Result<Self, PeerError> {
        let [id, a, b, low, high] = settings;
        let rtn = Rtn { bits: a, symmetric: b == 1, group: u16::from_le_bytes([low, high]) };
        let quantiser = match id {
            0 => Quantiser::Rtn(rtn),
            1 => Quantiser::Nf4(Nf4 { wide: a == 1 }),
            2 => Quantiser::Mx(MxFormat::from_id(a).ok_or_else(|| corrupt(format!("MX format {a}")))?),
            3 => Quantiser::HadamardRtn(rtn),
            4 => Quantiser::HadamardLloyd(Lloyd { bits: a }),
            _ => return Err(corrupt(format!("quantiser {id}"))),
        };
        // Fields that say nothing must be as the encoder writes them, so that damage is noticed.
        if quantiser.check().is_err() || quantiser.settings() != settings {
            return Err(corrupt(format!("settings {settings:?}")));
        }
        Ok(quantiser)
    }
}
