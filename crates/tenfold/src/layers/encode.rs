//! A tensor to layers: the first as the options say, each other one of what those before it have left.

use std::borrow::Cow;

use super::decode::add;
use super::open::check;
use super::params::{LayersParams, MAX_LAYERS, working};
use super::sum::{Working, widen};
use crate::blob::{CodecParams, FIXED, Head, Parts, Sealed, assemble, write};
use crate::engine::{Cpu, Engine};
use crate::error::{Error, Result};
use crate::options::{DecodeOptions, EncodeOptions, Goal, Limits};
use crate::prepare::Transform;
use crate::simd::Isa;
use crate::view::{Dtype, TensorView};
use crate::workers::Workers;
use crate::{encode as encode_one, lossless};

/// Values that a worker does at a time.
const PIECE: usize = 1 << 16;

/// Encodes a tensor of floats whose options ask for residuals; `options` have been checked.
pub(crate) fn encode(view: &TensorView<'_>, options: &EncodeOptions, workers: &Workers) -> Result<Parts> {
    match view.dtype() {
        dtype if !dtype.is_float() => Err(Error::InvalidArgument(format!(
            "{dtype} tensors are only coded losslessly, which leaves no residual"
        ))),
        Dtype::F64 => encode_in::<f64>(view, options, workers),
        _ => encode_in::<f32>(view, options, workers),
    }
}

fn encode_in<R: Working>(view: &TensorView<'_>, options: &EncodeOptions, workers: &Workers) -> Result<Parts> {
    // 1. The tensor in its working precision.
    let data = worked(view, workers)?;
    let whole = TensorView::new(R::DTYPE, view.shape(), &data)?;

    // 2. The first layer.
    let each = options_of_layers(options, view.dtype());
    let mut layers = vec![encode_one(&whole, &each[0])?];

    // 3. Residuals, each of the sum of what a reader will have.
    let decoding = decoding(options);
    let mut sum = vec![R::of(0.0); view.len()];
    let mut next = Vec::new();
    for options in &each[1..] {
        let room = if layers.len() == 1 { &mut sum } else { &mut next };
        room.resize(view.len(), R::of(0.0));
        // Behind the first, `next` holds the residual itself, which is not needed any more.
        Cpu.decode_into(&layers[layers.len() - 1], &decoding, bytemuck::cast_slice_mut(room))?;
        if layers.len() > 1 {
            add(&mut sum, &next, workers)?;
        }
        left(&whole, &sum, &mut next, workers)?;
        let view = TensorView::new(R::DTYPE, view.shape(), bytemuck::cast_slice(&next))?;
        layers.push(encode_one(&view, options)?);
    }

    // 4. The blob around them.
    let head = head_of(view.dtype(), view.shape(), view.len(), layers.len());
    assemble(&head, layers.into_iter().map(Sealed::new).collect(), workers)
}

fn head_of(dtype: Dtype, shape: &[usize], values: usize, layers: usize) -> Head {
    let params = CodecParams::Layers(LayersParams::new(layers, values));
    Head { dtype, shape: shape.to_vec(), transforms: Vec::new(), params }
}

/// The header of a blob of layers that others have made.
pub(crate) fn header(dtype: Dtype, shape: &[usize], layers: &[&[u8]]) -> Result<Vec<u8>> {
    if !dtype.is_float() || !(2..=MAX_LAYERS).contains(&layers.len()) {
        let count = layers.len();
        return Err(Error::InvalidArgument(format!("{count} layers of a tensor of {dtype}")));
    }
    let limits = Limits { max_bytes: u64::MAX, max_dims: usize::MAX };
    let mut values = 0;
    for layer in layers {
        values = check(layer, dtype, shape, &limits)?.values;
    }
    let sealed: Vec<_> = layers.iter().map(|layer| (layer.len(), crc32fast::hash(layer))).collect();
    write(&head_of(dtype, shape, values, layers.len()), sealed.into_iter())
}

/// Options of each layer of a tensor, the first one's first.
pub(crate) fn options_of_layers(options: &EncodeOptions, dtype: Dtype) -> Vec<EncodeOptions> {
    let plain = EncodeOptions { residual: Vec::new(), ..options.clone() };
    let first = EncodeOptions { goal: goal_of(options.goal, dtype), ..plain.clone() };
    let residual =
        |&goal: &Goal| EncodeOptions { goal: goal_of(goal, dtype), transforms: Vec::new(), ..plain.clone() };
    std::iter::once(first).chain(options.residual.iter().map(residual)).collect()
}

/// A goal for a layer: what speaks of the tensor's bytes means those of the tensor, whose elements may be narrower than a layer's.
fn goal_of(goal: Goal, dtype: Dtype) -> Goal {
    match goal {
        Goal::Ratio(ratio) => Goal::Bits(dtype.size() as f64 * 8.0 / ratio),
        goal => goal,
    }
}

/// How the layers are decoded again; their size is the caller's own.
fn decoding(options: &EncodeOptions) -> DecodeOptions {
    let bases = options.transforms.iter().filter_map(|s| match s {
        Transform::Basis(rotation) => rotation.basis().cloned(),
        _ => None,
    });
    let limits = Limits { max_bytes: u64::MAX, max_dims: usize::MAX };
    DecodeOptions::default()
        .with_threads(options.threads)
        .with_limits(limits)
        .with_bases(bases.collect())
        .with_stop(options.stop.clone())
}

/// The elements as working values.
fn worked<'a>(view: &TensorView<'a>, workers: &Workers) -> Result<Cow<'a, [u8]>> {
    let dtype = view.dtype();
    if dtype == working(dtype) {
        return Ok(Cow::Borrowed(view.data()));
    }
    let isa = Isa::detect();
    let mut out = vec![0u8; view.len() * size_of::<f32>()];
    let pieces: Vec<(&mut [u8], &[u8])> =
        out.chunks_mut(PIECE * size_of::<f32>()).zip(view.data().chunks(PIECE * dtype.size())).collect();
    workers.for_pieces(pieces, Vec::new, |values: &mut Vec<f32>, _, (out, data)| {
        values.resize(data.len() / dtype.size(), 0.0);
        widen(isa, dtype, data, values);
        out.copy_from_slice(bytemuck::cast_slice(values));
        Ok(())
    })?;
    Ok(Cow::Owned(out))
}

/// What the sum of layers has left of a tensor of working values.
fn left<R: Working>(whole: &TensorView<'_>, sum: &[R], out: &mut Vec<R>, workers: &Workers) -> Result<()> {
    out.resize(sum.len(), R::of(0.0));
    let data = whole.data().chunks(PIECE * size_of::<R>());
    let pieces: Vec<_> = out.chunks_mut(PIECE).zip(sum.chunks(PIECE)).zip(data).collect();
    workers.for_pieces(
        pieces,
        || (),
        |(), _, ((out, sum), data): ((&mut [R], &[R]), &[u8])| {
            // The caller's bytes lie where they lie.
            let values = data.chunks_exact(size_of::<R>()).map(bytemuck::pod_read_unaligned::<R>);
            out.iter_mut().zip(sum).zip(values).for_each(|((o, &s), v)| *o = v.left(s));
            Ok(())
        },
    )
}

/// Bytes that a blob of so many layers never exceeds.
pub(crate) fn max_len(dtype: Dtype, shape: &[usize], values: usize, layers: usize) -> usize {
    let layer = lossless::max_len(working(dtype), values) + 10 * shape.len();
    // Number of transforms, number of layers, padding, directory, checksum.
    let header = FIXED + 10 * shape.len() + 5 + 8 * layers + 4;
    header.saturating_add(layer.saturating_mul(layers))
}
