//! zfp: blocks of 4, 4² or 4³ values, an integer transform, bit planes. Through `zfp-rs`, whose streams are
//! those of the C library.
//!
//! Bytes: dtype and shape, mode (1), its parameter (2 or 4), the stream in words of 8 bytes.

use tenfold::{Tensor, TensorView};
use zfp_rs::{
    ZfpBitStream, ZfpConfig, ZfpDimensionality, ZfpExecution, ZfpField, ZfpFieldMut, ZfpScalarType,
    ZfpStreamAlignment,
};

use super::{fold_shape, spread};
use crate::peers::header::{self, Cursor};
use crate::peers::plain::{self, corrupt};
use crate::peers::{Abilities, Fidelity, Peer, PeerError, Rate};

/// What is held fixed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ZfpMode {
    /// Bits a value. A block's exponent is the least that can be had: half a bit in two dimensions.
    Rate(f64),
    /// Largest error, in standard deviations of the tensor. Rounded down to a power of two.
    Accuracy(f64),
}

/// zfp in a mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zfp {
    /// What is held fixed.
    pub mode: ZfpMode,
    /// Threads; 0 for all cores.
    pub threads: u32,
}

/// The mode as stored.
#[derive(Clone, Copy)]
enum Stored {
    /// Bits of a block.
    Rate(u32),
    /// Exponent of the tolerance.
    Accuracy(i16),
}

impl Zfp {
    fn execution(&self) -> ZfpExecution {
        match self.threads {
            1 => ZfpExecution::Serial,
            threads => ZfpExecution::Rayon { threads, chunk_size: 0 },
        }
    }

    fn choose_stored(&self, values: &[f64], dims: usize) -> Result<Stored, PeerError> {
        let refused = || PeerError::Unsupported(format!("{:?}", self.mode));
        match self.mode {
            ZfpMode::Rate(bits) => {
                let d = dimensionality(dims);
                let asked = ZfpConfig::fixed_rate(bits, ZfpScalarType::F32, d, ZfpStreamAlignment::Unaligned);
                Ok(Stored::Rate(asked.map_err(|_| refused())?.max_bits()))
            }
            ZfpMode::Accuracy(share) if share > 0.0 && share.is_finite() => {
                // Within i16: finite f32 times a finite share, and the clamp for extreme shares.
                let exponent = (share * spread(values)).log2().floor().clamp(-1000.0, 1000.0);
                Ok(Stored::Accuracy(exponent as i16))
            }
            ZfpMode::Accuracy(_) => Err(refused()),
        }
    }
}

impl Stored {
    fn config(self, dims: usize) -> Option<ZfpConfig> {
        match self {
            Stored::Rate(bits) => {
                let rate = f64::from(bits) / block_values(dims) as f64;
                let (d, align) = (dimensionality(dims), ZfpStreamAlignment::Unaligned);
                ZfpConfig::fixed_rate(rate, ZfpScalarType::F32, d, align).ok()
            }
            Stored::Accuracy(exponent) => Some(ZfpConfig::fixed_accuracy(2f64.powi(i32::from(exponent)))),
        }
    }
}

impl Peer for Zfp {
    fn name(&self) -> String {
        match self.mode {
            ZfpMode::Rate(bits) => format!("zfp rate {bits}"),
            ZfpMode::Accuracy(share) => format!("zfp accuracy {share:.3} σ"),
        }
    }

    fn abilities(&self) -> Abilities {
        let rate = match self.mode {
            ZfpMode::Rate(_) => Rate::Any,
            ZfpMode::Accuracy(_) => Rate::Free,
        };
        Abilities { fidelity: Fidelity::Lossy, rate, timed: true }
    }

    fn on_threads(&self, threads: usize) -> Option<Box<dyn Peer>> {
        let threads = u32::try_from(threads).ok()?;
        Some(Box::new(Zfp { threads, ..*self }))
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        match self.mode {
            ZfpMode::Rate(_) => Some(Box::new(Zfp { mode: ZfpMode::Rate(bits), ..*self })),
            ZfpMode::Accuracy(_) => None,
        }
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let failed = |e: String| PeerError::Failed(format!("zfp: {e}"));
        let values = plain::finite(view)?;
        if values.is_empty() {
            return Err(PeerError::Unsupported("zfp on an empty tensor".to_string()));
        }
        let dims = fold_shape(view.shape());
        let stored = self.choose_stored(&values, dims.len())?;
        let config = stored.config(dims.len()).ok_or_else(|| failed("no such mode".to_string()))?;
        let mut out = header::start(view)?;
        match stored {
            Stored::Rate(bits) => {
                out.push(0);
                out.extend(bits.to_le_bytes());
            }
            Stored::Accuracy(exponent) => {
                out.push(1);
                out.extend(exponent.to_le_bytes());
            }
        }
        let singles: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        let field = match dims[..] {
            [a, b, c] => ZfpField::new(&singles, [c, b, a]),
            [a, b] => ZfpField::new(&singles, [b, a]),
            _ => ZfpField::new(&singles, [singles.len()]),
        }
        .map_err(|e| failed(e.to_string()))?;
        let room = config
            .maximum_size(ZfpScalarType::F32, field.dims())
            .ok_or_else(|| failed("too large".to_string()))?;
        let mut stream = ZfpBitStream::new(room).map_err(|e| failed(e.to_string()))?;
        stream
            .compress_with_execution(&config, &field, self.execution())
            .map_err(|e| failed(e.to_string()))?;
        out.extend(stream.as_bytes());
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { shape, values: n, rest, .. } = header::read(bytes)?;
        let mut cursor = Cursor(rest);
        let stored = match cursor.array()? {
            [0] => Stored::Rate(cursor.u32()?),
            [1] => Stored::Accuracy(i16::from_le_bytes(cursor.array()?)),
            [mode] => return Err(corrupt(format!("mode {mode}"))),
        };
        let dims = fold_shape(&shape);
        let config = stored.config(dims.len()).ok_or_else(|| corrupt("parameters"))?;
        let stream = cursor.0;
        // Words of 8 bytes, and each block takes at least a bit.
        let most = stream.len().saturating_mul(8 * block_values(dims.len()));
        if stream.is_empty() || stream.len() % 8 != 0 || n == 0 || n > most {
            return Err(corrupt(format!("{n} values in {} bytes", stream.len())));
        }
        let mut values = vec![0f32; n];
        let mut field = match dims[..] {
            [a, b, c] => ZfpFieldMut::new(&mut values, [c, b, a]),
            [a, b] => ZfpFieldMut::new(&mut values, [b, a]),
            _ => ZfpFieldMut::new(&mut values, [n]),
        }
        .map_err(|e| corrupt(e.to_string()))?;
        let mut reader = ZfpBitStream::from_bytes(stream).map_err(|e| corrupt(e.to_string()))?;
        let read = reader
            .decompress_with_execution(&config, &mut field, self.execution())
            .map_err(|e| corrupt(e.to_string()))?;
        if read != stream.len() {
            return Err(corrupt(format!("{read} bytes read of {}", stream.len())));
        }
        Ok(plain::tensor(shape, values))
    }
}

fn dimensionality(dims: usize) -> ZfpDimensionality {
    match dims {
        1 => ZfpDimensionality::D1,
        2 => ZfpDimensionality::D2,
        _ => ZfpDimensionality::D3,
    }
}

/// Values of a block.
fn block_values(dims: usize) -> usize {
    1 << (2 * dims)
}
