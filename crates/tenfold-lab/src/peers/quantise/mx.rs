//! OCP microscaling, version 1.0: blocks of 32 values share a power of two (E8M0), elements are floats
//! of four to eight bits or 8-bit integers.
//!
//! The shared exponent is that of the largest magnitude less the largest exponent of the element format;
//! elements are rounded to nearest even and saturate.

use super::Codes;

/// Values of a block.
pub(super) const BLOCK: usize = 32;

/// Shared exponents are stored with this bias; the byte 255 is NaN.
const SCALE_BIAS: i32 = 127;

/// An element format. Codes are sign, exponent, mantissa from the highest bit; integers two's complement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MxFormat {
    /// MXFP8 with 4 exponent bits; S.1111.111 is NaN.
    E4m3,
    /// MXFP8 with 5 exponent bits; the highest exponent holds infinities and NaN.
    E5m2,
    /// MXFP6 with 2 exponent bits.
    E2m3,
    /// MXFP6 with 3 exponent bits.
    E3m2,
    /// MXFP4.
    E2m1,
    /// MXINT8: integers over 64.
    Int8,
}

/// Layout of a float format.
struct Float {
    mantissa: u8,
    bias: i32,
    /// Code of the largest finite magnitude.
    most: u8,
}

impl MxFormat {
    const ALL: [MxFormat; 6] =
        [MxFormat::E4m3, MxFormat::E5m2, MxFormat::E2m3, MxFormat::E3m2, MxFormat::E2m1, MxFormat::Int8];

    pub(super) fn id(self) -> u8 {
        self as u8
    }

    pub(super) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            MxFormat::E4m3 => "mxfp8 e4m3",
            MxFormat::E5m2 => "mxfp8 e5m2",
            MxFormat::E2m3 => "mxfp6 e2m3",
            MxFormat::E3m2 => "mxfp6 e3m2",
            MxFormat::E2m1 => "mxfp4 e2m1",
            MxFormat::Int8 => "mxint8",
        }
    }

    pub(super) fn width(self) -> u8 {
        match self {
            MxFormat::E4m3 | MxFormat::E5m2 | MxFormat::Int8 => 8,
            MxFormat::E2m3 | MxFormat::E3m2 => 6,
            MxFormat::E2m1 => 4,
        }
    }

    fn float(self) -> Option<Float> {
        let (mantissa, bias, most) = match self {
            MxFormat::E4m3 => (3, 7, 0x7e),
            MxFormat::E5m2 => (2, 15, 0x7b),
            MxFormat::E2m3 => (3, 1, 0x1f),
            MxFormat::E3m2 => (2, 3, 0x1f),
            MxFormat::E2m1 => (1, 1, 0x07),
            MxFormat::Int8 => return None,
        };
        Some(Float { mantissa, bias, most })
    }

    /// Exponent of the largest element: that of 448, 57344, 7.5, 28, 6 and 127/64.
    fn top_exponent(self) -> i32 {
        self.float().map_or(0, |f| i32::from(f.most >> f.mantissa) - f.bias)
    }

    /// Values of all codes.
    fn table(self) -> Vec<f64> {
        let Some(f) = self.float() else {
            return (0..=255u8).map(|c| f64::from(c as i8) / 64.0).collect(); // the byte is signed
        };
        let sign = 1u8 << (self.width() - 1);
        (0..=u8::MAX >> (8 - self.width()))
            .map(|code| {
                let magnitude = f.value(code & (sign - 1));
                if code & sign == 0 { magnitude } else { -magnitude }
            })
            .collect()
    }

    /// The code nearest to a value that is scaled already.
    fn round(self, v: f64) -> u8 {
        let Some(f) = self.float() else {
            // −128 stays unused: the range is symmetric.
            return (v * 64.0).round_ties_even().clamp(-127.0, 127.0) as i8 as u8;
        };
        let code = f.round(v.abs());
        // Minus zero would only be a second name for zero.
        if v < 0.0 && code != 0 { code | 1 << (self.width() - 1) } else { code }
    }

    pub(super) fn quantise(self, values: &[f64]) -> Codes {
        let mut side = Vec::with_capacity(values.len().div_ceil(BLOCK));
        let mut codes = Vec::with_capacity(values.len());
        for block in values.chunks(BLOCK) {
            let most = block.iter().fold(0f64, |m, v| m.max(v.abs()));
            let shared = if most > 0.0 { exponent(most) - self.top_exponent() } else { -SCALE_BIAS };
            let shared = shared.clamp(-SCALE_BIAS, SCALE_BIAS);
            side.push((shared + SCALE_BIAS) as u8);
            let inverse = 2f64.powi(-shared);
            codes.extend(block.iter().map(|v| self.round(v * inverse)));
        }
        Codes { codes, side }
    }

    pub(super) fn restore(self, codes: &[u8], side: &[u8]) -> Vec<f64> {
        let table = self.table();
        let mut out = Vec::with_capacity(codes.len());
        for (block, &shared) in codes.chunks(BLOCK).zip(side) {
            let scale = if shared == u8::MAX { f64::NAN } else { 2f64.powi(i32::from(shared) - SCALE_BIAS) };
            out.extend(block.iter().map(|&c| scale * table[usize::from(c) & (table.len() - 1)]));
        }
        out
    }
}

impl Float {
    /// Value of a code without its sign.
    fn value(&self, code: u8) -> f64 {
        let (exponent, mantissa) = (i32::from(code >> self.mantissa), code & ((1 << self.mantissa) - 1));
        let unit = 2f64.powi(-i32::from(self.mantissa));
        match exponent {
            0 => f64::from(mantissa) * unit * 2f64.powi(1 - self.bias),
            _ if code > self.most => {
                // Only the 8-bit formats have codes beyond the largest number; E5M2's first is infinity.
                if self.mantissa == 2 && mantissa == 0 { f64::INFINITY } else { f64::NAN }
            }
            _ => (1.0 + f64::from(mantissa) * unit) * 2f64.powi(exponent - self.bias),
        }
    }

    /// The code nearest to a magnitude, ties to even.
    fn round(&self, v: f64) -> u8 {
        let least = 1 - self.bias;
        let e = if v > 0.0 { exponent(v).max(least) } else { least };
        let steps = (v * 2f64.powi(i32::from(self.mantissa) - e)).round_ties_even();
        // With the hidden bit in `steps` the exponent field starts one lower; a carry moves it up.
        let code = f64::from((e - least) << self.mantissa) + steps;
        code.min(f64::from(self.most)) as u8
    }
}

/// ⌊log₂ v⌋ of a positive, finite number.
fn exponent(v: f64) -> i32 {
    if v < f64::MIN_POSITIVE {
        return -1023; // below anything that a scale reaches
    }
    (v.to_bits() >> 52) as i32 - 1023
}

#[cfg(test)]
mod tests;
