//! Pages in a basis: the coordinates of all of them at once, with one product of matrices.
//!
//! Rows are bf16. Coordinates are rounded to bf16 before they are multiplied, as docs/format.md allows a reader that says
//! so; sums are f32.

use std::sync::{Arc, OnceLock};

use tenfold::format::Codec;
use tenfold::prepare::{Basis, Positions as Rows, Rope, Rotation, Transform};
use tenfold::{Dtype, EncodeOptions, format};

use super::rope::{DeviceRope, Runs};
use crate::abi::{BEFORE_NOTHING, BEFORE_ROPE, CType, MAX_ROPE, OpenBasis};
use crate::decode::{DecodeRequest, DecodeSettings, decode_with, decode_workspace_len};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Matrix, Product, Stream};
use crate::encode::{
    Behind, EncodeBatch, PagePlans, Planning, Positions, encode_batch, encode_batch_workspace_len, make_plans,
};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::pieces::{ALIGN, Pieces, bytes_of, too_large};

/// Scratch memory of a product.
pub(crate) const PRODUCT_BYTES: usize = 32 << 20;

/// A basis with its matrices on a device, and the rotary positions before it, if there are any.
pub struct DeviceBasis {
    device: Device,
    columns: usize,
    rank: usize,
    /// The fingerprint.
    name: [u32; 4],
    /// As bf16, the row that products start from.
    means: Buffer,
    vectors: Buffer,
    /// What makes coordinates, a row for each column, and the coordinates of a row of zeros. Only of a basis that can encode.
    forward: Option<(Buffer, Buffer)>,
    /// Side by side, as a decoder reads them, and a byte each, as an encoder does.
    scales: Option<(Buffer, Buffer)>,
    /// The transforms as a header has them, and the basis's own without their number.
    transforms: Buffer,
    step: Vec<u8>,
    rope: Option<Turned>,
    /// Plans for pages of any size.
    plans: OnceLock<PagePlans>,
}

/// Rotary positions before a basis.
struct Turned {
    rope: DeviceRope,
    /// Their step up to the first position.
    content: Vec<u8>,
}

impl std::fmt::Debug for DeviceBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBasis of {} vectors for {} columns", self.rank, self.columns)
    }
}

fn to_halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect()
}

/// Scales side by side.
pub(crate) fn pack_scales(scales: &[u8]) -> Vec<u8> {
    let bits = format::MAX_SCALE_BITS as usize;
    let mut out = vec![0u8; (scales.len() * bits).div_ceil(8)];
    for (i, &scale) in scales.iter().enumerate() {
        (0..bits)
            .filter(|b| scale >> b & 1 == 1)
            .for_each(|b| out[(i * bits + b) / 8] |= 1 << ((i * bits + b) % 8));
    }
    out
}

/// Coordinates of a row of zeros: what the means come to, the other way round.
fn map_zeros(basis: &Basis) -> Vec<u8> {
    let mut sums = vec![0f64; basis.rank()];
    for (&mean, row) in basis.means().iter().zip(basis.forward_columns().chunks_exact(basis.rank())) {
        let near = |v: f32| f64::from(half::bf16::from_f32(v).to_f32());
        sums.iter_mut().zip(row).for_each(|(sum, &v)| *sum -= f64::from(mean) * near(v));
    }
    sums.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect()
}

impl DeviceBasis {
    /// Copies a basis to a device. Fails with [`Error::NoDevice`] if there is no cuBLAS.
    pub fn new(device: &Device, basis: &Basis) -> Result<DeviceBasis> {
        device.driver.can_multiply()?;
        let copy = |bytes: &[u8]| Buffer::from_slice(device, bytes);
        let forward = match basis.can_encode() {
            true => Some((copy(&to_halves(basis.forward_columns()))?, copy(&map_zeros(basis))?)),
            false => None,
        };
        let scales = match basis.scales() {
            [] => None,
            scales => Some((copy(&pack_scales(scales))?, copy(scales)?)),
        };
        let fingerprint = basis.fingerprint().0.as_chunks().0.to_vec();
        let transforms = format::transforms(&[Transform::Basis(Rotation::named(&Arc::new(basis.clone())))])?;
        Ok(DeviceBasis {
            device: device.clone(),
            columns: basis.cols(),
            rank: basis.rank(),
            name: std::array::from_fn(|i| u32::from_le_bytes(fingerprint[i])),
            means: copy(&to_halves(basis.means()))?,
            vectors: copy(&to_halves(basis.vectors()))?,
            forward,
            scales,
            transforms: copy(&transforms)?,
            step: transforms[1..].to_vec(),
            rope: None,
            plans: OnceLock::new(),
        })
    }

    /// The same for rows whose rotary positions are undone first, as keys have them. Pages bring their first positions
    /// ([`EncodePages::with_positions`]), those of `rope` mean nothing; blobs tell theirs.
    pub fn with_rope(mut self, rope: &Rope) -> Result<DeviceBasis> {
        if !self.columns.is_multiple_of(rope.head()) {
            return Err(Error::InvalidArgument(format!(
                "heads of {} columns do not divide the {} columns of the basis",
                rope.head(),
                self.columns
            )));
        }
        let rope = rope.clone().with_positions(Rows::From(0))?;
        let step = format::transforms(&[Transform::Rope(rope.clone())])?;
        // Its number, its length in one byte, and what it says, at the end the position.
        let content = step[3..step.len() - 1].to_vec();
        self.transforms = Buffer::from_slice(&self.device, &[&[2], &step[1..], &self.step].concat())?;
        self.rope = Some(Turned { rope: DeviceRope::new(&self.device, &rope)?, content });
        Ok(self)
    }

    /// Makes plans for pages of any size at any step, once: some milliseconds, and two thirds of a megabyte on the device. False for a basis that
    /// does not know the deviations of its coordinates.
    pub fn prepare_plans(&self) -> Result<bool> {
        let Some((_, scales)) = &self.scales else { return Ok(false) };
        if self.plans.get().is_none() {
            let plans = make_plans(&self.device, self.rank, scales.slice().address)?;
            // Another thread may have been faster, with the same.
            let _ = self.plans.set(plans);
        }
        Ok(true)
    }

    /// Whether plans for pages are there.
    pub fn has_plans(&self) -> bool {
        self.plans.get().is_some()
    }

    /// Its plans, and where the scales of its coordinates are, if there are some.
    pub(super) fn plans(&self) -> Option<(&PagePlans, u64)> {
        let (plans, (_, scales)) = (self.plans.get()?, self.scales.as_ref()?);
        Some((plans, scales.slice().address))
    }

    /// Columns of the rows that it is for.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Vectors.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes of what blobs say of transforms, those of a position at its shortest.
    pub(super) fn transforms_len(&self) -> usize {
        self.transforms.slice().len
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn rope(&self) -> Option<&DeviceRope> {
        self.rope.as_ref().map(|turned| &turned.rope)
    }

    /// As decoders of pages have it, which leave the position of each page's first row where it is stated.
    pub(super) fn open_pages(&self, positions: DeviceSlice) -> OpenBasis {
        let mut opened = self.open();
        opened.before = BEFORE_NOTHING;
        if let Some(turned) = &self.rope {
            opened.before = BEFORE_ROPE;
            opened.rope_len = turned.content.len().min(MAX_ROPE) as u32;
            opened.rope.iter_mut().zip(&turned.content).for_each(|(to, &from)| *to = from);
            opened.positions = positions.into();
        }
        opened
    }

    /// What makes rows of the coordinates of so many of them.
    pub(super) fn product(
        &self,
        coordinates: DeviceSlice,
        to: DeviceSlice,
        rows: usize,
        workspace: DeviceSlice,
    ) -> Product {
        Product {
            left: coordinates.address,
            right: self.vectors.slice().address,
            to: to.address,
            rows,
            inner: self.rank,
            columns: self.columns,
            of: Matrix::Bf16,
            out: Matrix::Bf16,
            bias: self.means.slice().address,
            workspace,
            ..Product::NONE
        }
    }

    /// As decoders have it.
    fn open(&self) -> OpenBasis {
        let scales = self.scales.as_ref().map_or(0, |s| s.0.slice().address);
        let (columns, rank) = (self.columns as u32, self.rank as u32);
        OpenBasis { columns, rank, name: self.name, scales, ..OpenBasis::ZERO }
    }
}

/// Queues the decoding of blobs behind a basis to their coordinates: a tensor of the basis's number of columns, in f32,
/// f16 or bf16 as the requests say. The caller must apply rotary positions again.
///
/// # Safety
/// As for [`decode`](crate::decode).
pub unsafe fn decode_coordinates(
    basis: &DeviceBasis,
    requests: &[DecodeRequest],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's; the scales are the basis's own.
    unsafe { decode_with(&basis.device, requests, &basis.open(), settings, status, workspace, stream) }
}

/// Rows of so many pages.
pub(super) fn all_rows(rows: usize, pages: usize) -> Result<usize> {
    if rows == 0 && pages > 0 {
        return Err(Error::InvalidArgument("a page needs at least one row".into()));
    }
    rows.checked_mul(pages).ok_or_else(too_large)
}

/// Where pages of so many values each go, one after the other; behind a basis they are levels.
pub(super) fn requests(blobs: &[DeviceSlice], values: usize, to: u64, levels: bool) -> Vec<DecodeRequest> {
    let bytes = values * Dtype::Bf16.size();
    let request = |(i, &blob): (usize, &DeviceSlice)| {
        let out = DeviceSlice::new(to + (i * bytes) as u64, bytes);
        let request = DecodeRequest::new(blob, out, Dtype::Bf16);
        if levels { request.with_codec(Codec::Levels) } else { request }
    };
    blobs.iter().enumerate().map(request).collect()
}

/// Bytes of workspace that [`decode_pages`] needs.
pub fn decode_pages_workspace_len(basis: &DeviceBasis, blobs: &[DeviceSlice], rows: usize) -> Result<usize> {
    let mut pieces = Pieces::default();
    let all = all_rows(rows, blobs.len())?;
    pieces.take(PRODUCT_BYTES);
    pieces.take(bytes_of(all, basis.rank, 2)?);
    pieces.take(bytes_of(blobs.len(), 1, size_of::<u64>())?);
    pieces.take(decode_workspace_len(&requests(blobs, rows * basis.rank, 0, true)));
    Ok(pieces.at)
}

/// Queues the decoding of pages of `rows` rows each, one blob a page, to rows of bf16 that lie one after the other in
/// `out`. What a blob's status refuses leaves its rows without meaning; others are not touched by that.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used otherwise
/// until the stream has passed this call; so is the basis.
#[allow(clippy::too_many_arguments)] // what `decode` has, and the pages
pub unsafe fn decode_pages(
    basis: &DeviceBasis,
    blobs: &[DeviceSlice],
    rows: usize,
    out: DeviceSlice,
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let all = all_rows(rows, blobs.len())?;
    let need = bytes_of(all, basis.columns, 2)?;
    if out.len != need || !out.address.is_multiple_of(16) || !workspace.address.is_multiple_of(ALIGN as u64) {
        return Err(Error::InvalidArgument(format!(
            "{need} bytes of pages at a multiple of 16 are decoded, {} given; a workspace starts at one of {ALIGN}",
            out.len
        )));
    }
    if all == 0 {
        return Ok(());
    }
    let mut pieces = Pieces::default();
    let scratch = workspace.part(pieces.take(PRODUCT_BYTES), PRODUCT_BYTES)?;
    let coordinates = bytes_of(all, basis.rank, 2)?;
    let coordinates = workspace.part(pieces.take(coordinates), coordinates)?;
    let positions = bytes_of(blobs.len(), 1, size_of::<u64>())?;
    let positions = workspace.part(pieces.take(positions), positions)?;
    let requests = requests(blobs, rows * basis.rank, coordinates.address, true);
    let work = workspace.part(pieces.at, decode_workspace_len(&requests))?;
    let opened = basis.open_pages(positions);
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        decode_with(&basis.device, &requests, &opened, settings, status, work, stream)?;
        let product = basis.product(coordinates, out, all, scratch);
        basis.device.driver.multiply(&product, stream)?;
        if let Some(turned) = &basis.rope {
            let runs = Runs { starts: positions, run: rows as u64 };
            turned.rope.turn_halves(out.address, out.address, all, basis.columns, runs, false, stream)?;
        }
        Ok(())
    }
}

/// Pages to encode in a basis: bf16, one after the other, with a slot for each blob.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EncodePages {
    /// Pages.
    pub count: usize,
    /// Rows of a page.
    pub rows: usize,
    /// All pages, row by row, at a multiple of 16.
    pub pages: DeviceSlice,
    /// Memory from the first blob on, which all have equal parts of, at a multiple of 16.
    pub blobs: DeviceSlice,
    /// What to reach for each page: bytes, or a step of coordinates.
    pub options: EncodeOptions,
    /// Whether one plan is made for all pages, with a step of its own for each. About twice as fast as a plan a page, at
    /// some hundredths more error where pages are alike; for [`Effort::Fast`](tenfold::Effort::Fast), a basis that knows its coordinates'
    /// deviations, and a goal of bytes or a step. Default: no.
    pub together: bool,
    /// Whether pages have plans that the basis has ready ([`DeviceBasis::prepare_plans`]), which takes a fraction of the time; for
    /// [`Effort::Fast`](tenfold::Effort::Fast), a basis that knows its coordinates' deviations, and a step. Default: no.
    pub ready: bool,
    /// A number for each page that its step is multiplied by, as f64 one after the other; for plans that are ready. Default: none.
    pub steps: Option<DeviceSlice>,
    /// The position of each page's first row, as u64 one after the other; for a basis behind rotary positions, and only then.
    pub positions: Option<DeviceSlice>,
    /// What the blobs say that rows are: the dtype that these rows were widened or rounded from. Default: bf16.
    pub dtype: Dtype,
}

impl EncodePages {
    /// Pages, where their blobs go, and what to reach.
    pub fn new(
        count: usize,
        rows: usize,
        pages: DeviceSlice,
        blobs: DeviceSlice,
        options: EncodeOptions,
    ) -> Self {
        EncodePages {
            count,
            rows,
            pages,
            blobs,
            options,
            together: false,
            ready: false,
            steps: None,
            positions: None,
            dtype: Dtype::Bf16,
        }
    }

    /// The same with one plan for all pages, or one a page.
    pub fn with_together(mut self, together: bool) -> Self {
        self.together = together;
        self
    }

    /// The same with plans that the basis has ready, or without.
    pub fn with_ready(mut self, ready: bool) -> Self {
        self.ready = ready;
        self
    }

    /// The same with a number for each page, an f64 on the device, that its step is multiplied by. Only with plans that the basis has ready.
    pub fn with_steps(mut self, steps: DeviceSlice) -> Self {
        self.steps = Some(steps);
        self
    }

    /// The same with the position of each page's first row: as many u64, on the device. Positions are at most 2^32.
    pub fn with_positions(mut self, positions: DeviceSlice) -> Self {
        self.positions = Some(positions);
        self
    }

    /// The same with blobs of another dtype, a float of at most 32 bits.
    pub fn with_dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Bytes of each slot.
    pub fn slot(&self) -> usize {
        self.blobs.len.checked_div(self.count).unwrap_or(0) / 16 * 16
    }

    /// Refuses positions that are missing, or not needed.
    pub(super) fn check_positions(&self, basis: &DeviceBasis) -> Result<()> {
        match basis.rope.is_some() == self.positions.is_some() {
            true => Ok(()),
            false => {
                let why = "pages with rotary positions need the positions of their first rows, and others have none";
                Err(Error::InvalidArgument(why.into()))
            }
        }
    }

    /// What the steps of so many pages are multiplied by.
    pub(super) fn steps(&self, count: usize) -> Result<Option<DeviceSlice>> {
        let steps =
            self.steps.map(|steps| steps.part(0, bytes_of(count, 1, size_of::<f64>())?)).transpose()?;
        match steps {
            Some(steps) if !steps.address.is_multiple_of(8) => {
                Err(Error::InvalidArgument("steps of pages are at a multiple of 8".into()))
            }
            steps => Ok(steps),
        }
    }

    /// The batch of coordinates, which lie at an address.
    fn batch(&self, basis: &DeviceBasis, at: u64) -> Result<EncodeBatch> {
        let all = all_rows(self.rows, self.count)?;
        let coordinates = DeviceSlice::new(at, bytes_of(all, basis.rank, 4)?);
        let shape = [self.rows, basis.rank];
        let options = self.options.clone();
        let mut batch = EncodeBatch::new(self.count, coordinates, Dtype::F32, &shape, self.blobs, options);
        let scales = basis.scales.as_ref().map_or(0, |s| s.1.slice().address);
        let positions = match (&basis.rope, self.positions) {
            (None, None) => None,
            (Some(turned), Some(positions)) => {
                let positions = positions.part(0, bytes_of(self.count, 1, size_of::<u64>())?)?;
                // Behind the number of transforms: the step's own number, its length, what it says, the position.
                let at = 3 + turned.content.len();
                Some(Positions { address: positions.address, at, length_at: 2 })
            }
            (Some(_), None) => {
                let why = "pages with rotary positions need the positions of their first rows";
                return Err(Error::InvalidArgument(why.into()));
            }
            (None, Some(_)) => {
                let why = "positions were given, but the basis was not told of rotary positions; leave them out, or make the basis with them";
                return Err(Error::InvalidArgument(why.into()));
            }
        };
        if !self.dtype.is_float() || self.dtype.size() > 4 {
            let why = format!("pages are floats of at most 32 bits, not {}", self.dtype);
            return Err(Error::InvalidArgument(why));
        }
        let transforms = basis.transforms.slice();
        batch.behind = Some(Behind {
            dtype: self.dtype,
            columns: basis.columns,
            shape: None,
            transforms,
            scales,
            positions,
        });
        let steps = self.steps(self.count)?;
        if steps.is_some() && !self.ready {
            let why = "pages have steps of their own only with plans that their basis has ready";
            return Err(Error::InvalidArgument(why.into()));
        }
        batch.planning = match (self.ready, self.together) {
            (false, false) => Planning::Each,
            (false, true) => Planning::Together,
            (true, false) => {
                let why =
                    "the plans of a basis are prepared before they are used: DeviceBasis::prepare_plans";
                let plans = basis.plans.get().ok_or_else(|| Error::InvalidArgument(why.into()))?;
                plans.planning(steps.map_or(0, |steps| steps.address))
            }
            (true, true) => {
                let why = "pages have one plan together, or those that their basis has ready";
                return Err(Error::InvalidArgument(why.into()));
            }
        };
        Ok(batch)
    }
}

/// Bytes for rows whose rotary positions are undone.
fn turned_bytes(basis: &DeviceBasis, rows: usize) -> Result<usize> {
    bytes_of(rows, if basis.rope.is_some() { basis.columns } else { 0 }, 2)
}

/// Bytes of workspace with which [`encode_pages`] does everything at once.
pub fn encode_pages_workspace_len(basis: &DeviceBasis, pages: &EncodePages) -> Result<usize> {
    let batch = encode_batch_workspace_len(&basis.device, &pages.batch(basis, 0)?)?;
    Ok(coordinates_len(basis, pages)? + batch.next_multiple_of(ALIGN))
}

/// Bytes of workspace for the coordinates of pages.
pub(super) fn coordinates_len(basis: &DeviceBasis, pages: &EncodePages) -> Result<usize> {
    let all = all_rows(pages.rows, pages.count)?;
    let mut pieces = Pieces::default();
    pieces.take(PRODUCT_BYTES);
    pieces.take(turned_bytes(basis, all)?);
    pieces.take(bytes_of(all, basis.rank, 4)?);
    Ok(pieces.at)
}

/// Queues the encoding of pages. A page with a value that is not finite is refused in its status: it is for a lossless
/// blob.
///
/// # Safety
/// As for [`decode_pages`].
pub unsafe fn encode_pages(
    basis: &DeviceBasis,
    pages: &EncodePages,
    statuses: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        let (coordinates, work) = queue_coordinates(basis, pages, workspace, stream)?;
        let batch = pages.batch(basis, coordinates.address)?;
        match coordinates.len {
            0 => Ok(()),
            _ => encode_batch(&basis.device, &batch, statuses, work, stream),
        }
    }
}

/// Queues the coordinates of pages, as f32; where they are, and what is left of the workspace.
///
/// # Safety
/// As for [`decode_pages`].
pub(super) unsafe fn queue_coordinates(
    basis: &DeviceBasis,
    pages: &EncodePages,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<(DeviceSlice, DeviceSlice)> {
    let Some((forward, origin)) = &basis.forward else {
        return Err(Error::InvalidArgument("a basis read from a blob is for decoding only".into()));
    };
    let all = all_rows(pages.rows, pages.count)?;
    let (bytes, coordinates) = (bytes_of(all, basis.columns, 2)?, bytes_of(all, basis.rank, 4)?);
    let aligned = workspace.address.is_multiple_of(ALIGN as u64) && pages.pages.address.is_multiple_of(16);
    if pages.pages.len != bytes || !aligned {
        return Err(Error::InvalidArgument(format!(
            "{bytes} bytes of pages at a multiple of 16 are needed, {} given; a workspace starts at one of {ALIGN}",
            pages.pages.len
        )));
    }
    let mut pieces = Pieces::default();
    let scratch = workspace.part(pieces.take(PRODUCT_BYTES), PRODUCT_BYTES)?;
    let turned = turned_bytes(basis, all)?;
    let turned = workspace.part(pieces.take(turned), turned)?;
    let coordinates = workspace.part(pieces.take(coordinates), coordinates)?;
    let rest = workspace.len.saturating_sub(pieces.at);
    let work = workspace.part(pieces.at.min(workspace.len), rest)?;
    if all == 0 {
        return Ok((coordinates, work));
    }
    let mut left = pages.pages.address;
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        if let (Some(rope), Some(positions)) = (&basis.rope, pages.positions) {
            let positions = positions.part(0, bytes_of(pages.count, 1, size_of::<u64>())?)?;
            let runs = Runs { starts: positions, run: pages.rows as u64 };
            rope.rope.turn_halves(left, turned.address, all, basis.columns, runs, true, stream)?;
            left = turned.address;
        }
        let product = Product {
            left,
            right: forward.slice().address,
            to: coordinates.address,
            rows: all,
            inner: basis.columns,
            columns: basis.rank,
            of: Matrix::Bf16,
            out: Matrix::F32,
            bias: origin.slice().address,
            workspace: scratch,
            ..Product::NONE
        };
        basis.device.driver.multiply(&product, stream)?;
    }
    Ok((coordinates, work))
}
