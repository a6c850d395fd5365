//! Blobs on a device to tensors on it.
//!
//! A call queues a few kernels on the caller's stream and returns: headers are read and checked on the device,
//! then tiles are decoded, a warp each. What came of it lies in a [`Status`] a blob, on the device too.

mod grid;
mod request;
mod transpose;

use std::ops::Range;

use tenfold::Dtype;
use tenfold::engine::{Capabilities, ErrorKind};
use tenfold::format::{BlobInfo, Codec};
use tenfold::prepare::Transform;

use crate::abi::{
    self, CType, ITEMS_PER_LAUNCH, Item, Kernel, OPEN_THREADS, ORDER_CODED, ORDER_TENSOR, OpenArgs,
    OpenBasis, PAIRS_ALL, PAIRS_NONE, PLACE_THREADS, PLACED_PER_LAUNCH, PlaceArgs, RUN, SMALL_THREADS,
    TRANSPOSED_NO, TRANSPOSED_YES, TilesArgs, WORK_BYTES,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::status::Status;

use grid::Grid;
pub use request::{DecodeRequest, DecodeSettings, Order, lane_values};
pub(crate) use transpose::{Decoded, transpose};

/// Shared memory of a small blob's block: thirteen on a multiprocessor of 228 KiB, or five. A launch takes as long as its
/// slowest blob, so there are few of them.
const SMALL_SHARED: [u32; 2] = [16_000, 45_000];
/// How blobs are listed.
const PLACE: Shape = Shape::new(1, PLACE_THREADS, 0);

impl PlaceArgs {
    /// For blobs that have a block each, if their outputs lie one after the other.
    fn new(requests: &[DecodeRequest]) -> Option<PlaceArgs> {
        let first = requests.first()?;
        let base = requests.iter().map(|r| r.blob.address).min()?;
        let near = |r: &DecodeRequest| {
            let by = r.blob.address - base;
            by.is_multiple_of(16) && by / 16 <= u64::from(u32::MAX) && u32::try_from(r.blob.len).is_ok()
        };
        let regular = |(i, r): (usize, &DecodeRequest)| {
            let alike = (r.dtype, r.values, r.codec, r.pairs, r.out.len)
                == (first.dtype, (0, None), first.codec, None, first.out.len);
            let plain = r.order == Order::Tensor && r.transposed.is_none();
            alike && plain && near(r) && r.out.address == first.out.address + (i * first.out.len) as u64
        };
        requests.iter().enumerate().all(regular).then(|| PlaceArgs {
            base,
            out: first.out.address,
            out_len: first.out.len as u64,
            dtype: first.dtype.id() as u32,
            codec: first.codec.map_or(0, codec_id),
            ..PlaceArgs::ZERO
        })
    }
}

/// Transforms that are undone where values are decoded, each once.
const UNDONE: [&str; 5] = ["means", "column weights", "row weights", "kept elements", "transposed"];

/// What [`decode`] and [`encode`](crate::encode()) do by themselves, without waiting for the device. [`DeviceCodec`](crate::DeviceCodec)
/// and [`CudaEngine`](crate::CudaEngine) do all that the native format has.
pub fn capabilities() -> Capabilities {
    let mut can = Capabilities::native();
    for codecs in [&mut can.encodes, &mut can.decodes] {
        codecs.retain(|codec| matches!(codec, Codec::Planes | Codec::Levels));
    }
    // The range of a tensor is unknown before the device has seen it.
    can.goals.retain(|goal| *goal != "round_bits");
    can.does.clear();
    can.undoes.retain(|transform| UNDONE.contains(transform));
    can.feeds = false;
    can
}

/// Whether [`decode`] decodes a blob by itself; if not, the error says why.
pub fn can_decode(info: &BlobInfo) -> tenfold::engine::Result<()> {
    capabilities().check_decode("cuda", info)?;
    let names: Vec<&str> = info.transforms.iter().map(Transform::name).collect();
    let reason = match (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
        Some(i) => format!("the blob has {} twice, which a chain undoes", names[i]),
        None if matches!(info.transforms[..], [Transform::Kept(_), Transform::Transposed, ..]) => {
            "the blob has kept elements and is transposed, which a chain undoes".into()
        }
        None => return Ok(()),
    };
    Err(tenfold::Error::Engine { kind: ErrorKind::Unsupported, reason })
}

/// Whether [`decode`] writes the values of a blob as a dtype: as their own, or levels as any float of at most 32 bits.
pub fn can_convert(info: &BlobInfo, dtype: Dtype) -> bool {
    let narrow = |dtype: Dtype| dtype.is_float() && dtype.size() <= 4;
    dtype == info.dtype || info.codec == Codec::Levels && narrow(dtype) && narrow(info.dtype)
}

/// Stored number of a codec that decodes on a device; another number is refused there.
fn codec_id(codec: Codec) -> u32 {
    match codec {
        Codec::Planes => tenfold::format::CODEC_PLANES as u32,
        Codec::Levels => tenfold::format::CODEC_LEVELS as u32,
        _ => u32::MAX,
    }
}

/// Bytes of workspace that one blob takes beside its item.
fn work_len(blob: usize) -> usize {
    (WORK_BYTES + (blob / 8 / RUN + 2) * 8).next_multiple_of(16)
}

/// Bytes of workspace that [`decode`] needs for these blobs: a few beside each, and as many as the tensor has for one that is known
/// to be transposed and is to be in the tensor's order.
pub fn decode_workspace_len(requests: &[DecodeRequest]) -> usize {
    turned_at(requests, requests.len())
}

/// Where in the workspace the values of a request wait to be transposed, behind all items and what blobs take beside theirs.
fn turned_at(requests: &[DecodeRequest], index: usize) -> usize {
    let listed = (size_of::<Item>() * requests.len()).next_multiple_of(16);
    let works = requests.iter().map(|r| work_len(r.blob.len)).sum::<usize>();
    listed + works + requests[..index].iter().map(|r| r.turned_len().next_multiple_of(16)).sum::<usize>()
}

/// Queues the decoding of blobs on the device. It neither allocates nor waits.
///
/// `status` has room for one [`Status`] a blob. An error here means that nothing or only part was queued; what is
/// wrong with a blob is in its status.
///
/// # Safety
/// All memory is memory of this device, is as long as it says, does not overlap, and is neither freed nor used
/// otherwise until the stream has passed this call.
pub unsafe fn decode(
    device: &Device,
    requests: &[DecodeRequest],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { decode_with(device, requests, &OpenBasis::ZERO, settings, status, workspace, stream) }
}

/// Queues the first half of [`decode`]: headers are read and checked, and what they say is left in the workspace. Then
/// [`decode_opened`] decodes the blobs, as often as wanted.
///
/// # Safety
/// As for [`decode`].
pub unsafe fn open(
    device: &Device,
    requests: &[DecodeRequest],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let Some(call) = Call::new(device, requests, settings, status, workspace, stream)? else { return Ok(()) };
    // SAFETY: the caller's.
    unsafe { call.open(&OpenBasis::ZERO, 0..requests.len()) }
}

/// Queues the second half of [`decode`], for blobs that [`open`] was given with the same requests, settings, status and workspace.
///
/// Statuses stay as they are where nothing is wrong. Tiles may have been elsewhere in between, as where many blobs come to one
/// place in turn, and may be damaged; a header that is no longer what it was is not noticed by itself.
///
/// # Safety
/// As for [`decode`], and the workspace is as [`open`] or an earlier call left it.
pub unsafe fn decode_opened(
    device: &Device,
    requests: &[DecodeRequest],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let Some(call) = Call::new(device, requests, settings, status, workspace, stream)? else { return Ok(()) };
    // SAFETY: the caller's.
    unsafe { call.tiles() }
}

/// The same without undoing transforms.
///
/// # Safety
/// As for [`decode`]; scales and positions are memory of the device too.
pub(crate) unsafe fn decode_with(
    device: &Device,
    requests: &[DecodeRequest],
    basis: &OpenBasis,
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    // SAFETY: the caller's.
    unsafe {
        decode_parts(device, requests, &[(*basis, requests.len())], settings, status, workspace, stream)
    }
}

/// The same for requests behind several bases: each with the number of its requests, which follow one another. All tiles are
/// decoded together.
///
/// # Safety
/// As for [`decode_with`].
pub(crate) unsafe fn decode_parts(
    device: &Device,
    requests: &[DecodeRequest],
    parts: &[(OpenBasis, usize)],
    settings: &DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let Some(call) = Call::new(device, requests, settings, status, workspace, stream)? else { return Ok(()) };
    let mut first = 0;
    // SAFETY: the caller's.
    unsafe {
        for (basis, count) in parts {
            call.open(basis, first..first + count)?;
            first += count;
        }
        call.tiles()
    }
}

/// What both halves of decoding have to know; their memory is large enough.
struct Call<'a> {
    device: &'a Device,
    requests: &'a [DecodeRequest],
    settings: &'a DecodeSettings,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
    grid: Grid,
    count: u32,
}

impl<'a> Call<'a> {
    /// `None` if there is nothing to do.
    fn new(
        device: &'a Device,
        requests: &'a [DecodeRequest],
        settings: &'a DecodeSettings,
        status: DeviceSlice,
        workspace: DeviceSlice,
        stream: Stream,
    ) -> Result<Option<Call<'a>>> {
        if requests.is_empty() {
            return Ok(None);
        }
        let count = u32::try_from(requests.len()).map_err(|_| {
            Error::InvalidArgument("more blobs than one launch takes; decode fewer at a time".into())
        })?;
        let status = status.part(0, requests.len() * size_of::<Status>())?;
        let workspace = workspace.part(0, decode_workspace_len(requests))?;
        if !workspace.address.is_multiple_of(16) || !status.address.is_multiple_of(8) {
            return Err(Error::InvalidArgument(
                "a workspace must be aligned to 16 bytes, a status to 8".into(),
            ));
        }
        let grid = Grid::new(device, requests, settings.multiprocessors);
        Ok(Some(Call { device, requests, settings, status, workspace, stream, grid, count }))
    }

    /// Lists some of the blobs and reads their headers.
    ///
    /// # Safety
    /// As for [`decode`].
    unsafe fn open(&self, basis: &OpenBasis, range: Range<usize>) -> Result<()> {
        let &Call { device, requests: all, settings, status, workspace, stream, ref grid, .. } = self;
        let Some(requests) = all.get(range.clone()).filter(|some| !some.is_empty()) else { return Ok(()) };
        let count = requests.len() as u32;
        // The list of blobs, through the launch's own arguments: no copy from the host has to be waited for.
        let listed_len = (size_of::<Item>() * all.len()).next_multiple_of(16);
        let before: usize = all[..range.start].iter().map(|r| work_len(r.blob.len)).sum();
        let mut at = workspace.address + (listed_len + before) as u64;
        let items = workspace.part(size_of::<Item>() * range.start, size_of::<Item>() * requests.len())?;
        let status = status.part(size_of::<Status>() * range.start, size_of::<Status>() * requests.len())?;
        let mut args = OpenArgs {
            to: items.into(),
            status: status.into(),
            max_bytes: settings.limits.max_bytes,
            count,
            max_dims: settings.limits.max_dims.min(255) as u32,
            basis: *basis,
            ..OpenArgs::ZERO
        };
        let one_launch = requests.len() <= ITEMS_PER_LAUNCH;
        let alone = grid.blocks as usize == all.len();
        let regular = if one_launch || !alone { None } else { PlaceArgs::new(requests) };
        let listed = if regular.is_some() { &[] } else { requests };
        if let Some(mut place) = regular {
            (place.to, place.status, place.work) = (items.into(), status.into(), at);
            let mut work = 0;
            for (chunk, requests) in requests.chunks(PLACED_PER_LAUNCH).enumerate() {
                (place.first, place.count) = ((chunk * PLACED_PER_LAUNCH) as u32, requests.len() as u32);
                for (i, r) in requests.iter().enumerate() {
                    place.at[i] = ((r.blob.address - place.base) / 16) as u32;
                    place.len[i] = r.blob.len as u32;
                    place.work_at[i] = u32::try_from(work / 16).map_err(|_| {
                        Error::InvalidArgument(
                            "more blobs than one launch takes; decode fewer at a time".into(),
                        )
                    })?;
                    work += work_len(r.blob.len);
                }
                // SAFETY: the caller vouches for the memory, whose sizes were checked above.
                unsafe { device.launch(abi::blob_place_pages, PLACE, &place, stream)? };
            }
        }
        for (chunk, requests) in listed.chunks(ITEMS_PER_LAUNCH).enumerate() {
            args.first = (chunk * ITEMS_PER_LAUNCH) as u32;
            args.count = requests.len() as u32;
            let before = range.start + chunk * ITEMS_PER_LAUNCH;
            let blocks = &grid.first_block[before..];
            let mut turned = workspace.address + turned_at(all, before) as u64;
            for ((item, r), &block0) in args.items.iter_mut().zip(requests).zip(blocks) {
                let work_len = work_len(r.blob.len) as u64;
                let waits = r.turned_len() > 0;
                let coded = waits || r.order == Order::Coded;
                *item = Item {
                    blob: r.blob.address,
                    blob_len: r.blob.len as u64,
                    out: if waits { turned } else { r.out.address },
                    out_len: r.out.len as u64,
                    first: r.values.0,
                    count: r.values.1.unwrap_or(u64::MAX),
                    work: at,
                    work_len,
                    dtype: r.dtype.id() as u32,
                    block0,
                    codec: r.codec.map_or(0, codec_id),
                    pairs: r.pairs.map_or(0, |pairs| if pairs { PAIRS_ALL } else { PAIRS_NONE }),
                    transposed: r
                        .transposed
                        .map_or(0, |yes| if yes { TRANSPOSED_YES } else { TRANSPOSED_NO }),
                    order: if coded { ORDER_CODED } else { ORDER_TENSOR },
                    unused: 0,
                };
                at += work_len;
                turned += r.turned_len().next_multiple_of(16) as u64;
            }
            if !one_launch {
                // SAFETY: the caller vouches for the memory, whose sizes were checked above.
                unsafe { device.launch(abi::blob_place, PLACE, &args, stream)? };
            }
        }

        // Headers.
        let open = if one_launch { abi::blob_open } else { abi::blob_open_placed };
        // SAFETY: as above.
        unsafe { device.launch(open, Shape::new(count, OPEN_THREADS, 0), &args, stream) }
    }

    /// Decodes tiles and compares their checksums.
    ///
    /// # Safety
    /// As for [`decode_opened`].
    unsafe fn tiles(&self) -> Result<()> {
        let &Call { device, requests, settings, status, workspace, stream, ref grid, count } = self;
        // By the size of an element. Which codec a blob has only the device knows, unless
        // the caller does: all kernels are queued, and those that have nothing to do end at once.
        let mut args = TilesArgs {
            items: workspace.into(),
            status: status.into(),
            count,
            blocks: grid.blocks,
            shared: grid.shape.shared,
            check: settings.checksums as u32,
            above: 0,
            more: 0,
            small: 0,
            unused: 0,
        };
        for size in [1, 2, 4, 8] {
            let some = |codec: Codec, paired: bool| {
                let may_be = |r: &DecodeRequest| r.codec.is_none_or(|c| c == codec);
                let levels = |r: &DecodeRequest| r.dtype.is_float() && r.pairs.is_none_or(|p| p == paired);
                let coded = |r: &DecodeRequest| codec != Codec::Levels || levels(r);
                requests.iter().any(|r| r.dtype.size() == size && may_be(r) && coded(r))
            };
            let small = grid.small.filter(|_| size == 2 && some(Codec::Levels, false)).unwrap_or(0);
            let mut launch = |kernel: Kernel<TilesArgs>, shape: Shape, above: u32, more: bool| {
                (args.shared, args.above, args.more, args.small) = (shape.shared, above, more as u32, small);
                // SAFETY: as above.
                unsafe { device.launch(kernel, shape, &args, stream) }
            };
            if small > 0 {
                let mut above = 0;
                for shared in SMALL_SHARED {
                    let shape = Shape::new(small.saturating_mul(count), SMALL_THREADS, shared);
                    launch(abi::levels_small, shape, above, true)?;
                    above = shared;
                }
            }
            for (paired, kernels) in [(false, abi::levels_decode), (true, abi::pairs_decode)] {
                if !some(Codec::Levels, paired) {
                    continue;
                }
                let kernel = kernels.select(size);
                // Tables of few classes leave room for several blocks a multiprocessor.
                let mut above = 0;
                if let Some(shared) = grid.narrow {
                    launch(kernel, Shape { shared, ..grid.shape }, 0, true)?;
                    above = shared;
                }
                launch(kernel, grid.shape, above, false)?;
            }
            if some(Codec::Planes, false) {
                // Halves have a kernel of their own; the other one decodes what is not for it, or what it left.
                if size == 2 {
                    launch(abi::lossless_halves, grid.shape, 0, false)?;
                }
                launch(abi::lossless_decode.select(size), grid.shape, 0, false)?;
            }
        }
        for (i, request) in requests.iter().enumerate().filter(|(_, r)| r.turned_len() > 0) {
            let decoded = Decoded {
                item: workspace.part(size_of::<Item>() * i, size_of::<Item>())?,
                status: status.part(size_of::<Status>() * i, size_of::<Status>())?,
                values: workspace.part(turned_at(requests, i), request.turned_len())?,
            };
            // SAFETY: the caller's; pieces of the workspace do not overlap.
            unsafe { transpose(device, &decoded, request.out, request.dtype, stream)? };
        }
        Ok(())
    }
}
