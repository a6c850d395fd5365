//! pco, a compressor of numerical columns: bins and offsets in the place of bytes.

use ::pco::ChunkConfig;
use ::pco::data_types::Number;
use ::pco::standalone::{simple_compress, simple_decompress};
use half::f16;
use tenfold::{Dtype, Tensor, TensorView};

use super::lossless;
use crate::peers::plain::corrupt;
use crate::peers::{Abilities, Peer, PeerError, header};

/// Values of a chunk by default, and bytes that a chunk takes at least.
const CHUNK: usize = 1 << 18;
const LEAST: usize = 4;

/// pco at its default level.
#[derive(Debug, Clone, Copy)]
pub struct Pco;

impl Peer for Pco {
    fn name(&self) -> String {
        "pco".to_string()
    }

    fn abilities(&self) -> Abilities {
        lossless(true)
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let mut out = header::start(view)?;
        let data = view.data();
        out.extend(match view.dtype() {
            Dtype::F64 => compress(data, f64::from_le_bytes),
            Dtype::F32 => compress(data, f32::from_le_bytes),
            Dtype::F16 => compress(data, f16::from_le_bytes),
            Dtype::Bf16 => compress(data, |b| to_ordered(u16::from_le_bytes(b))),
            Dtype::F8E4M3 | Dtype::F8E5M2 => compress(data, |[b]: [u8; 1]| b),
            other => return Err(PeerError::Unsupported(format!("pco on {other}"))),
        }?);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let header::Header { dtype, shape, values, rest } = header::read(bytes)?;
        if values > (rest.len() / LEAST + 1).saturating_mul(CHUNK) {
            return Err(corrupt(format!("{values} values in {} bytes", rest.len())));
        }
        let data = match dtype {
            Dtype::F64 => expand(rest, values, f64::to_le_bytes),
            Dtype::F32 => expand(rest, values, f32::to_le_bytes),
            Dtype::F16 => expand(rest, values, f16::to_le_bytes),
            Dtype::Bf16 => expand(rest, values, |v: u16| from_ordered(v).to_le_bytes()),
            Dtype::F8E4M3 | Dtype::F8E5M2 => expand(rest, values, |v: u8| [v]),
            other => return Err(corrupt(format!("dtype {other}"))),
        }?;
        Ok(Tensor { dtype, shape, data })
    }
}

/// Bits of a bf16, which pco has no type for, as an integer in the order of the values.
fn to_ordered(bits: u16) -> u16 {
    if bits >> 15 == 1 { !bits } else { bits | 1 << 15 }
}

/// Undoes [`to_ordered`].
fn from_ordered(number: u16) -> u16 {
    if number >> 15 == 1 { number & !(1 << 15) } else { !number }
}

fn compress<T: Number, const N: usize>(data: &[u8], number: fn([u8; N]) -> T) -> Result<Vec<u8>, PeerError> {
    let (words, _) = data.as_chunks::<N>();
    let numbers: Vec<T> = words.iter().map(|&w| number(w)).collect();
    simple_compress(&numbers, &ChunkConfig::default()).map_err(|e| PeerError::Failed(e.to_string()))
}

fn expand<T: Number, const N: usize>(
    bytes: &[u8],
    n: usize,
    word: fn(T) -> [u8; N],
) -> Result<Vec<u8>, PeerError> {
    let numbers = simple_decompress::<T>(bytes).map_err(|e| corrupt(e.to_string()))?;
    if numbers.len() != n {
        return Err(corrupt(format!("{} values instead of {n}", numbers.len())));
    }
    Ok(numbers.into_iter().flat_map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_values() {
        let values = [f32::NEG_INFINITY, -3.0, -1e-30, -0.0, 0.0, 1e-30, 7.0, f32::INFINITY];
        let numbers = values.map(|v| to_ordered(half::bf16::from_f32(v).to_bits()));
        assert!(numbers.is_sorted());
        assert!((0..=u16::MAX).all(|b| from_ordered(to_ordered(b)) == b));
    }
}
