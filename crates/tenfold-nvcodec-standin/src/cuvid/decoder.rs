//! The decoder: pictures into surfaces, surfaces mapped into memory.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenfold_nvcodec::cuvid::abi::{
    CHROMA_420, CHROMA_MONOCHROME, CreateInfo, CuResult, PicParams, ProcParams, ReconfigureInfo,
    STATUS_CONCEALED, STATUS_ERROR, SURFACE_NV12, SURFACE_P016,
};
use tenfold_video::Standard;
use tenfold_video::codec::Chroma;

use super::{
    INVALID_HANDLE, INVALID_VALUE, LAUNCH_FAILED, MAP_FAILED, NO_DEVICE, NOT_SUPPORTED, OUT_OF_MEMORY,
    SUCCESS, limits, parser,
};
use crate::control::{Counts, violation};
use crate::faults::{self, Fault};
use crate::software;

const STATUS_INVALID: c_int = 0;
const STATUS_SUCCESS: c_int = 2;
/// Bytes that rows of mapped pictures are a multiple of.
const PITCH: usize = 512;
/// What memory holds once it is no longer the client's.
const STALE: u8 = 0xee;

/// A decoded picture.
struct Surface {
    samples: Vec<u16>,
    width: usize,
    height: usize,
    status: c_int,
}

/// Memory that a picture is mapped into; kept until the next is mapped, so that late reads find rubbish.
struct Output {
    memory: Vec<u8>,
    mapped: bool,
}

struct Decoder {
    standard: Standard,
    chroma: c_int,
    depth: u8,
    width: usize,
    height: usize,
    max_width: usize,
    max_height: usize,
    target: (usize, usize),
    surfaces: Vec<Option<Surface>>,
    outputs: Vec<Output>,
    max_outputs: usize,
}

type Decoders = HashMap<u64, Arc<Mutex<Decoder>>>;

static DECODERS: Mutex<Option<Decoders>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0x100_0000);
static CREATED: AtomicU64 = AtomicU64::new(0);
static DECODED: AtomicU64 = AtomicU64::new(0);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn count(counts: &mut Counts) {
    let open: Vec<_> = lock(&DECODERS).get_or_insert_default().values().cloned().collect();
    counts.decoders = open.len() as u64;
    counts.maps = open.iter().map(|d| lock(d).mapped() as u64).sum();
    counts.decoders_created = CREATED.load(Ordering::Relaxed);
    counts.decoded = DECODED.load(Ordering::Relaxed);
}

fn find(handle: u64, call: &str) -> Result<Arc<Mutex<Decoder>>, CuResult> {
    lock(&DECODERS).get_or_insert_default().get(&handle).cloned().ok_or_else(|| {
        violation(format!("{call}: no such decoder"));
        INVALID_HANDLE
    })
}

fn refuse(what: &str) -> CuResult {
    violation(what);
    INVALID_VALUE
}

pub(super) fn create(info: &CreateInfo) -> Result<u64, CuResult> {
    if faults::happens(Fault::NoDecoder) {
        return Err(NO_DEVICE);
    }
    let limits = limits(info.codec).ok_or(NOT_SUPPORTED)?;
    let depth = u32::try_from(info.depth_minus8).map_or(0, |d| d + 8);
    if !limits.chroma.contains(&info.chroma) || !limits.depths.contains(&depth) {
        return Err(NOT_SUPPORTED);
    }
    let sides = [info.width, info.height];
    if sides.iter().any(|&s| s < limits.min.into() || s > limits.max.into()) {
        return Err(NOT_SUPPORTED);
    }
    let output = if depth == 8 { SURFACE_NV12 } else { SURFACE_P016 };
    if info.output != output {
        return Err(refuse("cuvidCreateDecoder: an output format that does not fit the depth"));
    }
    if !(1..=32).contains(&info.decode_surfaces) || !(1..=64).contains(&info.output_surfaces) {
        return Err(refuse("cuvidCreateDecoder: no surfaces, or too many"));
    }
    if info.target_width == 0 || info.target_height == 0 {
        return Err(refuse("cuvidCreateDecoder: no target size"));
    }
    let (max_width, max_height) = (info.max_width.max(info.width), info.max_height.max(info.height));
    if max_width > limits.max.into() || max_height > limits.max.into() {
        return Err(NOT_SUPPORTED);
    }
    if software::decoder(limits.standard).is_none() {
        return Err(NOT_SUPPORTED);
    }
    let mut all = lock(&DECODERS);
    let all = all.get_or_insert_default();
    if all.len() as i64 >= faults::get(Fault::MaxDecoders) {
        return Err(OUT_OF_MEMORY);
    }
    let decoder = Decoder {
        standard: limits.standard,
        chroma: info.chroma,
        depth: depth as u8,
        width: info.width as usize,
        height: info.height as usize,
        max_width: max_width as usize,
        max_height: max_height as usize,
        target: (info.target_width as usize, info.target_height as usize),
        surfaces: (0..info.decode_surfaces).map(|_| None).collect(),
        outputs: Vec::new(),
        max_outputs: info.output_surfaces as usize,
    };
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    all.insert(handle, Arc::new(Mutex::new(decoder)));
    CREATED.fetch_add(1, Ordering::Relaxed);
    Ok(handle)
}

pub(super) fn destroy(handle: u64) -> CuResult {
    match find(handle, "cuvidDestroyDecoder") {
        Err(code) => code,
        Ok(decoder) => {
            if lock(&decoder).mapped() > 0 {
                violation("cuvidDestroyDecoder: pictures are still mapped");
            }
            lock(&DECODERS).get_or_insert_default().remove(&handle);
            SUCCESS
        }
    }
}

pub(super) fn reconfigure(handle: u64, info: &ReconfigureInfo) -> CuResult {
    let decoder = match find(handle, "cuvidReconfigureDecoder") {
        Ok(decoder) => decoder,
        Err(code) => return code,
    };
    let mut d = lock(&decoder);
    let (width, height) = (info.width as usize, info.height as usize);
    if d.mapped() > 0 {
        return refuse("cuvidReconfigureDecoder: pictures are mapped");
    }
    if width > d.max_width || height > d.max_height || width == 0 || height == 0 {
        return refuse("cuvidReconfigureDecoder: larger than the decoder was made for");
    }
    if info.target_width == 0 || info.target_height == 0 || !(1..=32).contains(&info.decode_surfaces) {
        return refuse("cuvidReconfigureDecoder: no target size, or no surfaces");
    }
    (d.width, d.height) = (width, height);
    d.target = (info.target_width as usize, info.target_height as usize);
    d.surfaces = (0..info.decode_surfaces).map(|_| None).collect();
    d.outputs.clear();
    SUCCESS
}

pub(super) fn decode(handle: u64, picture: &PicParams, stream: &[u8]) -> CuResult {
    let decoder = match find(handle, "cuvidDecodePicture") {
        Ok(decoder) => decoder,
        Err(code) => return code,
    };
    if faults::happens(Fault::DecodeDeviceLost) {
        return LAUNCH_FAILED;
    }
    let Some((sets, format)) = parser::sets_of(picture) else {
        return refuse("cuvidDecodePicture: parameters that the parser did not make");
    };
    let mut d = lock(&decoder);
    let chroma = if format.chroma == Chroma::None { CHROMA_MONOCHROME } else { CHROMA_420 };
    let fits = format.width <= d.width && format.height <= d.height;
    if !fits || format.depth != d.depth || chroma != d.chroma {
        return refuse("cuvidDecodePicture: a picture of another format than the decoder's");
    }
    let index = usize::try_from(picture.index).unwrap_or(usize::MAX);
    if index >= d.surfaces.len() {
        return refuse("cuvidDecodePicture: no such surface");
    }
    let (samples, mut status) = match software::decode(d.standard, &format, &sets, stream) {
        Ok(samples) => (samples, STATUS_SUCCESS),
        // The hardware goes on with whatever it has.
        Err(_) => (vec![1 << (format.depth - 1); format.samples()], STATUS_ERROR),
    };
    let mut surface = Surface { samples, width: format.width, height: format.height, status };
    let conceals = faults::happens(Fault::Conceal);
    if conceals || faults::happens(Fault::ConcealSilently) {
        let middle = surface.samples.len() / 2;
        surface.samples[middle] ^= 1;
        status = if conceals { STATUS_CONCEALED } else { status };
        surface.status = status;
    }
    d.surfaces[index] = Some(surface);
    DECODED.fetch_add(1, Ordering::Relaxed);
    SUCCESS
}

pub(super) fn status(handle: u64, index: c_int) -> Result<c_int, CuResult> {
    let decoder = find(handle, "cuvidGetDecodeStatus")?;
    let d = lock(&decoder);
    let surface = usize::try_from(index).ok().and_then(|i| d.surfaces.get(i));
    let surface = surface.ok_or_else(|| refuse("cuvidGetDecodeStatus: no such surface"))?;
    Ok(surface.as_ref().map_or(STATUS_INVALID, |s| s.status))
}

pub(super) fn map(handle: u64, index: c_int, params: &ProcParams) -> Result<(u64, u32), CuResult> {
    let decoder = find(handle, "cuvidMapVideoFrame64")?;
    faults::hang(Fault::DecodeHang);
    if faults::happens(Fault::MapFails) {
        return Err(MAP_FAILED);
    }
    if params.progressive == 0 {
        violation("cuvidMapVideoFrame64: a field of a progressive picture");
    }
    lock(&decoder).map(index)
}

pub(super) fn unmap(handle: u64, address: u64) -> CuResult {
    let decoder = match find(handle, "cuvidUnmapVideoFrame64") {
        Ok(decoder) => decoder,
        Err(code) => return code,
    };
    let mut d = lock(&decoder);
    match d.outputs.iter_mut().find(|o| o.mapped && o.memory.as_ptr() as u64 == address) {
        Some(output) => {
            output.mapped = false;
            output.memory.fill(STALE);
            SUCCESS
        }
        None => refuse("cuvidUnmapVideoFrame64: not mapped"),
    }
}

impl Decoder {
    fn mapped(&self) -> usize {
        self.outputs.iter().filter(|o| o.mapped).count()
    }

    fn map(&mut self, index: c_int) -> Result<(u64, u32), CuResult> {
        let surface = usize::try_from(index).ok().and_then(|i| self.surfaces.get(i));
        let surface = match surface {
            None => return Err(refuse("cuvidMapVideoFrame64: no such surface")),
            Some(None) => return Err(refuse("cuvidMapVideoFrame64: nothing was decoded there")),
            Some(Some(surface)) => surface,
        };
        if self.mapped() >= self.max_outputs {
            violation("cuvidMapVideoFrame64: more pictures mapped than there are output surfaces");
            return Err(MAP_FAILED);
        }
        // Whole blocks may be asked for, of which the picture is the first part.
        let (width, height) = self.target;
        let blocks = |side: usize| side..=side.next_multiple_of(16);
        if !blocks(surface.width).contains(&width) || !blocks(surface.height).contains(&height) {
            return Err(refuse("cuvidMapVideoFrame64: this library does not scale"));
        }
        let bytes = if self.depth == 8 { 1 } else { 2 };
        let pitch = (width * bytes).next_multiple_of(PITCH);
        let mut memory = vec![STALE; pitch * (height + height.div_ceil(2))];
        for (to, from) in memory.chunks_exact_mut(pitch).zip(surface.samples.chunks_exact(surface.width)) {
            if bytes == 1 {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = from as u8);
            } else {
                let shift = 16 - u32::from(self.depth);
                to.as_chunks_mut::<2>().0.iter_mut().zip(from).for_each(|(to, &from)| {
                    *to = (from << shift).to_le_bytes();
                });
            }
        }
        let chroma = &mut memory[pitch * height..];
        if bytes == 1 {
            chroma.fill(0x80);
        } else {
            chroma.as_chunks_mut::<2>().0.fill([0, 0x80]);
        }
        self.outputs.retain(|o| o.mapped);
        let address = memory.as_ptr() as u64;
        self.outputs.push(Output { memory, mapped: true });
        Ok((address, pitch as u32))
    }
}
