//! Lossy deltas: the difference of two tensors, and what it makes of the first.
//!
//! A reader must get the same bits on every machine, or the result has another fingerprint: one subtraction, one addition and one
//! rounding, all to nearest, and no transform that rotates values.

use half::{bf16, f16};
use rayon::prelude::*;
use tenfold::prepare::Preparation;
use tenfold::{Dtype, Effort, EncodeOptions, Goal, Tensor, TensorView};

/// Values that a thread takes at once.
const RUN: usize = 1 << 16;

/// Whether tensors of this type have differences.
pub(super) fn takes(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
}

/// The type of the difference of two tensors of a type.
pub(super) fn dtype_of(dtype: Dtype) -> Dtype {
    if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 }
}

/// A difference that is coded: the blob, and what it makes of the base.
pub(super) struct Coded {
    pub blob: Vec<u8>,
    pub result: Vec<u8>,
}

/// Codes a difference. `None` where a value of it or of the result is not finite: only exact deltas tell those.
pub(super) fn encode(
    base: &TensorView<'_>,
    new: &TensorView<'_>,
    goal: Goal,
    effort: Effort,
    options: &tenfold::DecodeOptions,
) -> tenfold::engine::Result<Option<Coded>> {
    let dtype = base.dtype();
    let Some(data) = subtract(dtype, base.data(), new.data()) else { return Ok(None) };
    let view = TensorView::new(dtype_of(dtype), base.shape(), &data)?;
    let asked = EncodeOptions::new(goal).with_effort(effort).with_stop(options.stop.clone());
    let blob = tenfold::encode(&view, &asked.with_prepare(Preparation::None))?;
    let result = add(dtype, base.data(), &tenfold::decode(&blob, options)?);
    Ok(result.map(|result| Coded { blob, result }))
}

/// New minus old.
fn subtract(dtype: Dtype, base: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    match dtype {
        Dtype::F64 => combine::<8, 8, 8>(new, base, |new, base| {
            finite(f64::from_le_bytes(new) - f64::from_le_bytes(base)).map(f64::to_le_bytes)
        }),
        Dtype::F32 => combine::<4, 4, 4>(new, base, |new, base| {
            single(f32::from_le_bytes(new) - f32::from_le_bytes(base)).map(f32::to_le_bytes)
        }),
        Dtype::F16 => combine::<2, 2, 4>(new, base, |new, base| {
            single(f16::from_le_bytes(new).to_f32() - f16::from_le_bytes(base).to_f32()).map(f32::to_le_bytes)
        }),
        Dtype::Bf16 => combine::<2, 2, 4>(new, base, |new, base| {
            single(bf16::from_le_bytes(new).to_f32() - bf16::from_le_bytes(base).to_f32())
                .map(f32::to_le_bytes)
        }),
        _ => None,
    }
}

/// Old plus difference, rounded to the type. `None` where that is not finite, or the two do not go together.
pub(super) fn add(dtype: Dtype, base: &[u8], difference: &Tensor) -> Option<Vec<u8>> {
    let data = &difference.data;
    if !takes(dtype)
        || difference.dtype != dtype_of(dtype)
        || base.len() / dtype.size() != data.len() / difference.dtype.size()
    {
        return None;
    }
    match dtype {
        Dtype::F64 => combine::<8, 8, 8>(base, data, |base, by| {
            finite(f64::from_le_bytes(base) + f64::from_le_bytes(by)).map(f64::to_le_bytes)
        }),
        Dtype::F32 => combine::<4, 4, 4>(base, data, |base, by| {
            single(f32::from_le_bytes(base) + f32::from_le_bytes(by)).map(f32::to_le_bytes)
        }),
        Dtype::F16 => combine::<2, 4, 2>(base, data, |base, by| {
            let sum = f16::from_f32(f16::from_le_bytes(base).to_f32() + f32::from_le_bytes(by));
            sum.is_finite().then(|| sum.to_le_bytes())
        }),
        _ => combine::<2, 4, 2>(base, data, |base, by| {
            let sum = bf16::from_f32(bf16::from_le_bytes(base).to_f32() + f32::from_le_bytes(by));
            sum.is_finite().then(|| sum.to_le_bytes())
        }),
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn single(value: f32) -> Option<f32> {
    value.is_finite().then_some(value)
}

/// One value of each to one value; `None` as soon as one has none.
fn combine<const A: usize, const B: usize, const C: usize>(
    first: &[u8],
    second: &[u8],
    each: impl Fn([u8; A], [u8; B]) -> Option<[u8; C]> + Sync,
) -> Option<Vec<u8>> {
    let mut out = vec![0; first.len() / A * C];
    let runs = out.par_chunks_mut(RUN * C).zip(first.par_chunks(RUN * A)).zip(second.par_chunks(RUN * B));
    let run = |((out, first), second): ((&mut [u8], &[u8]), &[u8])| {
        let (out, first, second) =
            (out.as_chunks_mut::<C>().0, first.as_chunks::<A>().0, second.as_chunks::<B>().0);
        for ((out, &first), &second) in out.iter_mut().zip(first).zip(second) {
            *out = each(first, second)?;
        }
        Some(())
    };
    runs.map(run).collect::<Option<()>>()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_subtracted_and_added_comes_back() {
        let (old, new) = (bytes(&[1.0, -2.0, 0.5]), bytes(&[1.25, -2.0, 1e9]));
        let data = subtract(Dtype::F32, &old, &new).unwrap();
        let difference = Tensor { dtype: Dtype::F32, shape: vec![3], data };
        assert_eq!(add(Dtype::F32, &old, &difference).unwrap(), new);
        let half = |values: &[f32]| -> Vec<u8> {
            values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()
        };
        let (old, new) = (half(&[1.0, -2.0, 0.5]), half(&[1.25, -3.0, 1e9]));
        let data = subtract(Dtype::Bf16, &old, &new).unwrap();
        let difference = Tensor { dtype: Dtype::F32, shape: vec![3], data };
        assert_eq!(add(Dtype::Bf16, &old, &difference).unwrap(), new);
    }

    #[test]
    fn what_is_not_finite_has_no_difference() {
        let one = bytes(&[1.0]);
        for bad in [f32::NAN, f32::INFINITY] {
            assert_eq!(subtract(Dtype::F32, &one, &bytes(&[bad])), None);
        }
        let much = Tensor { dtype: Dtype::F32, shape: vec![1], data: bytes(&[70_000.0]) };
        assert_eq!(add(Dtype::F16, &f16::from_f32(1.0).to_le_bytes(), &much), None);
        assert_eq!(add(Dtype::F16, &[0; 4], &much), None, "another number of values");
    }
}
