//! Layers: a coarse tensor and what it leaves, each a whole blob, which a reader adds up.
//!
//! The only code that makes layers and adds them, for every engine and wherever it keeps its values. An engine brings
//! [`Single`]: blobs of one layer, and a kernel for each operation on working values. Normative: docs/format.md, 'Layers'.

use std::borrow::{Borrow, BorrowMut, Cow};
use std::ops::Range;
use std::sync::Arc;

use crate::blob::{CodecParams, FIXED, Frame, Head, LayersParams, MAX_LAYERS, header_len, write};
use crate::error::{Error, Result};
use crate::format::BlobInfo;
use crate::lossless;
use crate::options::{DecodeOptions, EncodeOptions, Goal, Limits};
use crate::prepare::{Basis, Named, Preparation, Transform};
use crate::view::{Dtype, byte_len};

/// Bytes of a blob that are fetched to look at its header; most headers are shorter.
const PEEK: usize = 1 << 16;

/// An engine of blobs that have one layer, and the arithmetic of layers, in whatever memory it works.
///
/// Working values are f32, f64 for tensors of f64. Operations take them by their dtype, one after the other in memory.
pub trait Single {
    /// Bytes of a tensor or a blob: the host's, a device's.
    type Bytes: ?Sized;
    /// Memory that the engine took for such bytes.
    type Room: Borrow<Self::Bytes> + BorrowMut<Self::Bytes>;

    /// How many bytes there are.
    fn len_of(&self, bytes: &Self::Bytes) -> usize;

    /// Brings some bytes to the host.
    fn fetch<'a>(&'a self, bytes: &'a Self::Bytes, range: Range<usize>) -> Result<Cow<'a, [u8]>>;

    /// Makes room for exactly so many bytes, in the memory that is there if it suffices.
    fn make_room<'r>(&self, room: &'r mut Option<Self::Room>, len: usize) -> Result<&'r mut Self::Bytes>;

    /// Encodes a tensor into a blob of one layer; `options` have no residuals.
    fn encode_one(&self, tensor: &Elements<'_, Self::Bytes>, options: &EncodeOptions) -> Result<Self::Room>;

    /// Decodes some values of a layer, whole rows of them, into exactly their bytes.
    fn decode_one(
        &self,
        layer: &Layer,
        blob: &Self::Bytes,
        values: Range<usize>,
        out: &mut Self::Bytes,
    ) -> Result<()>;

    /// Makes working values of elements narrower than f32. What is not finite keeps its sign and its mantissa.
    fn widen(&self, dtype: Dtype, elements: &Self::Bytes, out: &mut Self::Bytes) -> Result<()>;

    /// Rounds working values to elements narrower than f32: the inverse of [`Single::widen`] for what is not finite.
    fn round(&self, dtype: Dtype, values: &Self::Bytes, out: &mut Self::Bytes) -> Result<()>;

    /// Adds a layer to the sum of those before it. Finite sums stay finite, and what is not finite stays what it is.
    fn add(&self, dtype: Dtype, sum: &mut Self::Bytes, next: &Self::Bytes) -> Result<()>;

    /// Subtracts a sum of layers from a tensor. The difference is finite, and 0 where either is not.
    fn subtract(
        &self,
        dtype: Dtype,
        whole: &Self::Bytes,
        sum: &Self::Bytes,
        out: &mut Self::Bytes,
    ) -> Result<()>;
}

/// A tensor in an engine's memory.
pub struct Elements<'a, B: ?Sized> {
    /// Element type.
    pub dtype: Dtype,
    /// Outermost dimension first.
    pub shape: &'a [usize],
    /// The elements in row-major order.
    pub bytes: &'a B,
}

/// A layer of a blob, or a blob that is its own only layer: its header, read and checked, and where its bytes are.
#[derive(Debug)]
pub struct Layer {
    pub(crate) frame: Frame,
    bytes: Range<usize>,
}

impl Layer {
    /// Where its bytes are in the blob.
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// What its header says. Bases that the decoder was given are in the transforms.
    pub fn info(&self) -> BlobInfo {
        BlobInfo::from_frame(&self.frame)
    }
}

/// A blob whose header was read and checked, and those of the layers to decode.
#[derive(Debug)]
pub struct Opened {
    /// Element type of the tensor.
    pub dtype: Dtype,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Number of values.
    pub values: usize,
    pub(crate) layers: Vec<Layer>,
    /// What the directory says of each layer; nothing where the blob is its own only layer.
    checksums: Vec<u32>,
}

impl Opened {
    /// The header of a blob that has no layers.
    pub(crate) fn single(&self) -> Option<&Frame> {
        self.checksums.is_empty().then(|| &self.layers[0].frame)
    }

    /// Checks what the blob's directory says of its layers. Their own checksums cover every byte that is decoded; this finds
    /// layers that are whole and another blob's.
    pub fn check_layers(&self) -> Result<()> {
        let differs = |(layer, &sum): (&Layer, &u32)| layer.frame.checksum() != sum;
        if !cfg!(fuzzing) && self.layers.iter().zip(&self.checksums).any(differs) {
            return Err(Error::Corrupt("tile checksum"));
        }
        Ok(())
    }

    /// The values of some rows, and the shape that they have together.
    pub fn rows(&self, rows: Range<usize>) -> Result<(Range<usize>, Vec<usize>)> {
        let cols = self.shape.last().copied().unwrap_or(1);
        let all = crate::view::rows_of(&self.shape);
        if rows.start > rows.end || rows.end > all {
            let Range { start, end } = rows;
            return Err(Error::InvalidArgument(format!("rows {start}..{end} of a tensor with {all} rows")));
        }
        let at = |row: usize| row.saturating_mul(cols).min(self.values);
        Ok((at(rows.start)..at(rows.end), vec![rows.len(), cols]))
    }
}

/// A blob in pieces, which follow one another.
#[derive(Debug)]
pub struct Pieces<B> {
    /// The header before the layers; empty where there is a single blob.
    pub header: Vec<u8>,
    /// Blobs of one layer each.
    pub layers: Vec<B>,
}

/// Memory that sums are made in, kept from one call to the next.
pub struct Scratch<R> {
    sum: Option<R>,
    next: Option<R>,
}

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Scratch { sum: None, next: None }
    }
}

/// An engine of single blobs that makes and adds layers too.
///
/// ```
/// use tenfold::engine::{Cpu, Engine};
/// use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};
/// let values: Vec<f32> = (0..8192).map(|i| (i as f32 * 0.7).sin()).collect();
/// let view = TensorView::from_slice(&values, &[64, 128])?;
/// // The CPU's engine is a `Layered` one.
/// let blob = Cpu.encode(&view, &EncodeOptions::new(Goal::Bits(3.0)).with_residual(Goal::Bits(3.0)))?;
/// let coarse = Cpu.decode(&blob, &DecodeOptions::default().with_layers(1))?;
/// assert_ne!(Cpu.decode(&blob, &DecodeOptions::default())?, coarse);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub struct Layered<E>(pub E);

impl<E: Single> Layered<E> {
    /// Encodes a tensor: as one blob, or as layers where the options ask for residuals. The options have been validated.
    pub fn encode(
        &self,
        tensor: &Elements<'_, E::Bytes>,
        options: &EncodeOptions,
    ) -> Result<Pieces<E::Room>> {
        let (engine, dtype, shape) = (&self.0, tensor.dtype, tensor.shape);
        if options.residual.is_empty() {
            return Ok(Pieces { header: Vec::new(), layers: vec![engine.encode_one(tensor, options)?] });
        }
        if !dtype.is_float() {
            return Err(Error::InvalidArgument(format!(
                "{dtype} tensors are only coded losslessly, which leaves no residual"
            )));
        }
        // 1. The tensor in its working precision.
        let (working, values) = (working(dtype), engine.len_of(tensor.bytes) / dtype.size());
        let len = values * working.size();
        let mut widened = None;
        let whole = if working == dtype {
            tensor.bytes
        } else {
            let room = engine.make_room(&mut widened, len)?;
            engine.widen(dtype, tensor.bytes, room)?;
            room
        };

        // 2. The first layer. What it was prepared with is undone by the same bases.
        let each = options_of_layers(options, dtype);
        let bases: Vec<Arc<Basis>> = options.prepare.stated().iter().filter_map(basis_of).collect();
        let encode = |bytes: &E::Bytes, options: &EncodeOptions| {
            let blob = engine.encode_one(&Elements { dtype: working, shape, bytes }, options)?;
            let all = 0..engine.len_of(blob.borrow());
            let layer = self.open_layer(blob.borrow(), all, (dtype, shape), &NO_LIMITS, &bases)?;
            Ok::<_, Error>((layer, blob))
        };
        let mut made = vec![encode(whole, &each[0])?];

        // 3. Residuals, each of the sum of what a reader will have by then.
        let (mut sum, mut next) = (None, None);
        let (sum, next) = (engine.make_room(&mut sum, len)?, engine.make_room(&mut next, len)?);
        for options in &each[1..] {
            let (layer, blob) = &made[made.len() - 1];
            if made.len() == 1 {
                engine.decode_one(layer, blob.borrow(), 0..values, sum)?;
            } else {
                engine.decode_one(layer, blob.borrow(), 0..values, next)?;
                engine.add(working, sum, next)?;
            }
            engine.subtract(working, whole, sum, next)?;
            made.push(encode(next, options)?);
        }

        // 4. The header before them.
        let params = CodecParams::Layers(LayersParams::new(made.len(), values));
        let head = Head { dtype, shape: shape.to_vec(), transforms: Vec::new(), params };
        let directory: Vec<_> =
            made.iter().map(|(layer, _)| (layer.bytes.len(), layer.frame.checksum())).collect();
        let header = write(&head, directory.into_iter())?;
        Ok(Pieces { header, layers: made.into_iter().map(|(_, blob)| blob).collect() })
    }

    /// Reads the header of a blob, and of those layers that the options ask for, before memory is taken for anything else.
    pub fn open(&self, blob: &E::Bytes, options: &DecodeOptions) -> Result<Opened> {
        let len = self.0.len_of(blob);
        let mut frame = Frame::parse_native(&self.header(blob, 0..len)?, &options.limits)?;
        frame.check_len(len)?;
        frame.resolve(&options.bases)?;
        let (dtype, shape, values) = (frame.head.dtype, frame.head.shape.clone(), frame.values);
        let (layers, checksums) = match &frame.head.params {
            CodecParams::Layers(params) => {
                let wanted =
                    if options.layers == 0 { params.count } else { options.layers.min(params.count) };
                let layer = |(bytes, sum)| {
                    let layer =
                        self.open_layer(blob, bytes, (dtype, &shape), &options.limits, &options.bases);
                    Ok((layer?, sum))
                };
                frame.parts().take(wanted).map(layer).collect::<Result<Vec<_>>>()?.into_iter().unzip()
            }
            _ => (vec![Layer { frame, bytes: 0..len }], Vec::new()),
        };
        Ok(Opened { dtype, shape, values, layers, checksums })
    }

    /// Decodes some values of a blob, whole rows of them, into exactly their bytes.
    pub fn decode(
        &self,
        opened: &Opened,
        blob: &E::Bytes,
        values: Range<usize>,
        out: &mut E::Bytes,
        scratch: &mut Scratch<E::Room>,
    ) -> Result<()> {
        let (engine, dtype, working) = (&self.0, opened.dtype, working(opened.dtype));
        if opened.single().is_some() {
            return engine.decode_one(&opened.layers[0], blob, values, out);
        }
        let len = values.len() * working.size();
        if dtype == working {
            return self.add_layers(opened, blob, values, out, &mut scratch.next);
        }
        let sum = engine.make_room(&mut scratch.sum, len)?;
        self.add_layers(opened, blob, values, sum, &mut scratch.next)?;
        engine.round(dtype, sum, out)
    }

    fn add_layers(
        &self,
        opened: &Opened,
        blob: &E::Bytes,
        values: Range<usize>,
        sum: &mut E::Bytes,
        next: &mut Option<E::Room>,
    ) -> Result<()> {
        let (engine, working) = (&self.0, working(opened.dtype));
        for (i, layer) in opened.layers.iter().enumerate() {
            if i == 0 {
                engine.decode_one(layer, blob, values.clone(), sum)?;
                continue;
            }
            let next = engine.make_room(next, values.len() * working.size())?;
            engine.decode_one(layer, blob, values.clone(), next)?;
            engine.add(working, sum, next)?;
        }
        Ok(())
    }

    /// Reads the header of a layer of a tensor of this dtype and shape.
    fn open_layer(
        &self,
        blob: &E::Bytes,
        bytes: Range<usize>,
        (dtype, shape): (Dtype, &[usize]),
        limits: &Limits,
        bases: &[Arc<Basis>],
    ) -> Result<Layer> {
        // A layer that ends early or has something behind it is a fault of the blob around it, which has all its bytes.
        let whole = |e: Error| match e {
            Error::NotABlob | Error::Truncated { .. } => Error::Corrupt("a layer is not a whole blob"),
            e => e,
        };
        let mut frame = Frame::parse_layer(&self.header(blob, bytes.clone())?, limits).map_err(whole)?;
        frame.check_len(bytes.len()).map_err(whole)?;
        if frame.head.dtype != working(dtype) {
            return Err(Error::Corrupt("dtype of a layer"));
        }
        if frame.head.shape != shape {
            return Err(Error::Corrupt("shape of a layer"));
        }
        frame.resolve(bases)?;
        Ok(Layer { frame, bytes })
    }

    /// Bytes of the host that have the header of a blob in some bytes, if these have it.
    fn header<'a>(&'a self, blob: &'a E::Bytes, bytes: Range<usize>) -> Result<Cow<'a, [u8]>> {
        let Range { start, end } = bytes;
        let seen = self.0.fetch(blob, start..end.min(start + PEEK))?;
        match header_len(&seen) {
            Some(len) if len > seen.len() => self.0.fetch(blob, start..end.min(start.saturating_add(len))),
            _ => Ok(seen),
        }
    }
}

/// A tensor of one's own may have any size.
const NO_LIMITS: Limits = Limits { max_bytes: u64::MAX, max_dims: usize::MAX };

/// Dtype of the layers of a tensor: that of its working values.
fn working(dtype: Dtype) -> Dtype {
    if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 }
}

fn basis_of(named: &Named) -> Option<Arc<Basis>> {
    match named {
        Named::Fixed(Transform::Basis(rotation)) => rotation.basis().cloned(),
        _ => None,
    }
}

/// Options of each layer of a tensor, the first one's first.
fn options_of_layers(options: &EncodeOptions, dtype: Dtype) -> Vec<EncodeOptions> {
    // What speaks of the tensor's bytes means those of the tensor, whose elements may be narrower than a layer's.
    let goal_of = |goal| match goal {
        Goal::Ratio(ratio) => Goal::Bits(dtype.size() as f64 * 8.0 / ratio),
        goal => goal,
    };
    let plain = EncodeOptions { residual: Vec::new(), ..options.clone() };
    let first = EncodeOptions { goal: goal_of(options.goal), ..plain.clone() };
    let residual =
        |&goal: &Goal| EncodeOptions { goal: goal_of(goal), prepare: Preparation::None, ..plain.clone() };
    std::iter::once(first).chain(options.residual.iter().map(residual)).collect()
}

/// Bytes that a blob of so many layers, of this dtype and shape, never exceeds: options with n residuals make n + 1 layers.
///
/// ```
/// use tenfold::Dtype;
/// use tenfold::format::{max_encoded_len, max_layered_len};
/// let one = max_encoded_len(Dtype::F32, &[1000, 1000])?;
/// assert!(max_layered_len(Dtype::Bf16, &[1000, 1000], 2)? < 2 * one + 100);
/// # Ok::<(), tenfold::Error>(())
/// ```
pub fn max_layered_len(dtype: Dtype, shape: &[usize], layers: usize) -> Result<usize> {
    if !(2..=MAX_LAYERS).contains(&layers) {
        return Err(Error::InvalidArgument(format!("a blob has 2 to {MAX_LAYERS} layers, not {layers}")));
    }
    let bytes = byte_len(dtype, shape)
        .ok_or_else(|| Error::InvalidArgument(format!("shape {shape:?} has too many elements")))?;
    let layer = lossless::max_len(working(dtype), bytes / dtype.size()) + 10 * shape.len();
    // Number of transforms, number of layers, padding, directory, checksum.
    let header = FIXED + 10 * shape.len() + 5 + 8 * layers + 4;
    Ok(header.saturating_add(layer.saturating_mul(layers)))
}
