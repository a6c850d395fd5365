//! Pages behind a basis: the coordinates of all of them at once, and one product of matrices around that.
//!
//! Rows are bf16. Coordinates are rounded to bf16 before they are multiplied, as docs/format.md allows a reader that says
//! so; sums are f32.

use tenfold::prepare::Basis;
use tenfold::{Codec, Dtype, EncodeOptions, format};

use crate::decode::{DecodeRequest, DecodeSettings, Named, decode_with, decode_workspace_len};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Matrix, Product, Shape, Stream};
use crate::encode::{Behind, EncodeBatch, encode_batch, encode_batch_workspace_len};
use crate::error::{Error, Result};
use crate::memory::Buffer;

/// Scratch memory of a product.
const PRODUCT_BYTES: usize = 32 << 20;
/// What pieces of a workspace start at multiples of.
const ALIGN: usize = 256;

/// As the kernels have it.
#[repr(C)]
struct Args {
    from: u64,
    to: u64,
    means: u64,
    rows: u64,
    columns: u32,
    unused: u32,
}

/// A basis with its matrices on a device.
pub struct DeviceBasis {
    device: Device,
    columns: usize,
    rank: usize,
    name: [u8; 16],
    means: Buffer,
    vectors: Buffer,
    /// What makes coordinates: a row for each column. Only of a basis that can encode.
    forward: Option<Buffer>,
    /// Side by side, as a decoder reads them, and a byte each, as an encoder does.
    scales: Option<(Buffer, Buffer)>,
}

impl std::fmt::Debug for DeviceBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBasis of {} vectors for {} columns", self.rank, self.columns)
    }
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect()
}

/// Scales side by side.
fn packed(scales: &[u8]) -> Vec<u8> {
    let bits = format::MAX_SCALE_BITS as usize;
    let mut out = vec![0u8; (scales.len() * bits).div_ceil(8)];
    for (i, &scale) in scales.iter().enumerate() {
        (0..bits)
            .filter(|b| scale >> b & 1 == 1)
            .for_each(|b| out[(i * bits + b) / 8] |= 1 << ((i * bits + b) % 8));
    }
    out
}

impl DeviceBasis {
    /// Copies a basis to a device. Fails with [`Error::NoDevice`] where there is no cuBLAS.
    pub fn new(device: &Device, basis: &Basis) -> Result<DeviceBasis> {
        device.driver.can_multiply()?;
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let forward = match basis.can_encode() {
            true => Some(Buffer::from_slice(device, &halves(basis.forward_columns()))?),
            false => None,
        };
        let scales = match basis.scales() {
            [] => None,
            scales => {
                Some((Buffer::from_slice(device, &packed(scales))?, Buffer::from_slice(device, scales)?))
            }
        };
        Ok(DeviceBasis {
            device: device.clone(),
            columns: basis.cols(),
            rank: basis.rank(),
            name: basis.fingerprint().0,
            means: Buffer::from_slice(device, &bytes(basis.means()))?,
            vectors: Buffer::from_slice(device, &halves(basis.vectors()))?,
            forward,
            scales,
        })
    }

    /// Columns of the rows that it is for.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Vectors.
    pub fn rank(&self) -> usize {
        self.rank
    }

    fn named(&self) -> Named {
        let scales = self.scales.as_ref().map_or(0, |s| s.0.slice().address);
        Named { columns: self.columns as u32, rank: self.rank as u32, name: self.name, scales }
    }

    /// Queues one of the kernels that go over rows.
    unsafe fn rows(
        &self,
        kernel: &'static str,
        from: u64,
        to: u64,
        rows: usize,
        stream: Stream,
    ) -> Result<()> {
        let (rows, columns) = (rows as u64, self.columns as u32);
        let args = Args { from, to, means: self.means.slice().address, rows, columns, unused: 0 };
        let work = (rows * u64::from(columns)).div_ceil(8 * 256).max(1);
        let grid = work.min(self.device.properties().multiprocessors as u64 * 16) as u32;
        // SAFETY: the caller's.
        unsafe { self.device.launch(kernel, Shape::new(grid, 256, 0), &args, stream) }
    }
}

/// A workspace, dealt out piece by piece.
struct Pieces {
    at: usize,
}

impl Pieces {
    fn take(&mut self, bytes: usize) -> usize {
        let here = self.at;
        self.at = here.saturating_add(bytes).saturating_add(ALIGN - 1) / ALIGN * ALIGN;
        here
    }
}

fn too_large() -> Error {
    Error::InvalidArgument("more bytes than there are addresses".into())
}

fn bytes_of(rows: usize, columns: usize, size: usize) -> Result<usize> {
    rows.checked_mul(columns).and_then(|n| n.checked_mul(size)).ok_or_else(too_large)
}

/// Queues the decoding of blobs behind a basis to their coordinates: a tensor of the basis's number of columns, in f32,
/// f16 or bf16 as the requests say. Rotary positions before the basis are the caller's to turn again.
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
    unsafe { decode_with(&basis.device, requests, basis.named(), settings, status, workspace, stream) }
}

/// Where the blobs' coordinates go, for pages of `rows` rows one after the other.
fn requests(basis: &DeviceBasis, blobs: &[DeviceSlice], rows: usize, to: u64) -> Vec<DecodeRequest> {
    let bytes = rows * basis.rank * 2;
    let request = |(i, &blob): (usize, &DeviceSlice)| {
        let out = DeviceSlice::new(to + (i * bytes) as u64, bytes);
        DecodeRequest::new(blob, out, Dtype::Bf16).with_codec(Codec::Levels)
    };
    blobs.iter().enumerate().map(request).collect()
}

/// Bytes of workspace that [`decode_pages`] needs.
pub fn decode_pages_workspace_len(basis: &DeviceBasis, blobs: &[DeviceSlice], rows: usize) -> Result<usize> {
    let mut pieces = Pieces { at: 0 };
    let all = rows.checked_mul(blobs.len()).ok_or_else(too_large)?;
    pieces.take(PRODUCT_BYTES);
    pieces.take(bytes_of(all, basis.rank, 2)?);
    pieces.take(decode_workspace_len(&requests(basis, blobs, rows, 0)));
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
    let all = rows.checked_mul(blobs.len()).ok_or_else(too_large)?;
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
    let mut pieces = Pieces { at: 0 };
    let scratch = workspace.part(pieces.take(PRODUCT_BYTES), PRODUCT_BYTES)?;
    let coordinates = bytes_of(all, basis.rank, 2)?;
    let coordinates = workspace.part(pieces.take(coordinates), coordinates)?;
    let requests = requests(basis, blobs, rows, coordinates.address);
    let work = workspace.part(pieces.at, decode_workspace_len(&requests))?;
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        decode_coordinates(basis, &requests, settings, status, work, stream)?;
        basis.rows("basis_fill", 0, out.address, all, stream)?;
        let product = Product {
            left: coordinates.address,
            right: basis.vectors.slice().address,
            to: out.address,
            rows: all,
            inner: basis.rank,
            columns: basis.columns,
            out: Matrix::Bf16,
            add: true,
            workspace: scratch,
        };
        basis.device.driver.multiply(&product, stream)
    }
}

/// Pages to encode behind a basis: bf16, one after the other, and a slot for each one's blob.
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
        EncodePages { count, rows, pages, blobs, options, together: false }
    }

    /// The same with one plan for all pages, or one a page.
    pub fn with_together(mut self, together: bool) -> Self {
        self.together = together;
        self
    }

    /// Bytes of each slot.
    pub fn slot(&self) -> usize {
        self.blobs.len.checked_div(self.count).unwrap_or(0) / 16 * 16
    }

    /// The batch of coordinates, which lie at an address.
    fn batch(&self, basis: &DeviceBasis, at: u64) -> Result<EncodeBatch> {
        let all = self.rows.checked_mul(self.count).ok_or_else(too_large)?;
        let coordinates = DeviceSlice::new(at, bytes_of(all, basis.rank, 4)?);
        let shape = [self.rows, basis.rank];
        let options = self.options.clone();
        let mut batch = EncodeBatch::new(self.count, coordinates, Dtype::F32, &shape, self.blobs, options);
        // One step: a basis by its name.
        let mut content = vec![0];
        let mut rank = basis.rank;
        while rank >= 0x80 {
            content.push(rank as u8 | 0x80);
            rank >>= 7;
        }
        content.push(rank as u8);
        content.extend_from_slice(&basis.name);
        let mut steps = vec![1, format::STEP_BASIS, content.len() as u8];
        steps.extend(content);
        let scales = basis.scales.as_ref().map_or(0, |s| s.1.slice().address);
        batch.behind = Some(Behind { dtype: Dtype::Bf16, columns: basis.columns, steps, scales });
        batch.together = self.together;
        Ok(batch)
    }
}

/// Bytes of workspace with which [`encode_pages`] does everything at once.
pub fn encode_pages_workspace_len(basis: &DeviceBasis, pages: &EncodePages) -> Result<usize> {
    let all = pages.rows.checked_mul(pages.count).ok_or_else(too_large)?;
    let mut pieces = Pieces { at: 0 };
    pieces.take(PRODUCT_BYTES);
    pieces.take(bytes_of(all, basis.columns, 2)?);
    pieces.take(bytes_of(all, basis.rank, 4)?);
    pieces.take(encode_batch_workspace_len(&basis.device, &pages.batch(basis, 0)?)?);
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
    let Some(forward) = &basis.forward else {
        return Err(Error::InvalidArgument("a basis out of a blob is for decoding".into()));
    };
    let all = pages.rows.checked_mul(pages.count).ok_or_else(too_large)?;
    let (bytes, coordinates) = (bytes_of(all, basis.columns, 2)?, bytes_of(all, basis.rank, 4)?);
    let aligned = workspace.address.is_multiple_of(ALIGN as u64) && pages.pages.address.is_multiple_of(16);
    if pages.pages.len != bytes || !aligned {
        return Err(Error::InvalidArgument(format!(
            "{bytes} bytes of pages at a multiple of 16 are needed, {} given; a workspace starts at one of {ALIGN}",
            pages.pages.len
        )));
    }
    if all == 0 {
        return Ok(());
    }
    let mut pieces = Pieces { at: 0 };
    let scratch = workspace.part(pieces.take(PRODUCT_BYTES), PRODUCT_BYTES)?;
    let centered = workspace.part(pieces.take(bytes), bytes)?;
    let coordinates = workspace.part(pieces.take(coordinates), coordinates)?;
    let rest = workspace.len.saturating_sub(pieces.at);
    let work = workspace.part(pieces.at.min(workspace.len), rest)?;
    let batch = pages.batch(basis, coordinates.address)?;
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        basis.rows("basis_center", pages.pages.address, centered.address, all, stream)?;
        let product = Product {
            left: centered.address,
            right: forward.slice().address,
            to: coordinates.address,
            rows: all,
            inner: basis.columns,
            columns: basis.rank,
            out: Matrix::F32,
            add: false,
            workspace: scratch,
        };
        basis.device.driver.multiply(&product, stream)?;
        encode_batch(&basis.device, &batch, statuses, work, stream)
    }
}
