//! The parser: a stream in, calls of the client's functions out.
//!
//! Between parser and decoder NVIDIA's picture parameters carry what the headers say. Here they carry a number under which the
//! parameter sets are kept.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenfold_nvcodec::cuvid::abi::{
    CHROMA_420, CHROMA_MONOCHROME, CuResult, PACKET_END_OF_PICTURE, PACKET_END_OF_STREAM, Packet,
    ParserParams, PicParams, Rect, VideoFormat,
};
use tenfold_video::codec::{Chroma, Format, stream};

use super::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, limits};
use crate::control::violation;
use crate::faults::{self, Fault};
use crate::streams::{Part, cut};

/// Marks the parameters of pictures that this parser made.
const MAGIC: u32 = 0x7e4f_01d5;

/// `CUVIDPARSERDISPINFO`.
#[repr(C)]
struct DisplayInfo {
    index: c_int,
    progressive: c_int,
    top_field_first: c_int,
    repeat_first_field: c_int,
    timestamp: i64,
}

struct Parser {
    params: ParserParams,
    sets: Vec<u8>,
    /// Number and format of the sets that the client was told of.
    told: Option<(u32, Format)>,
    /// Whether the sets changed since.
    fresh: bool,
    surfaces: u32,
    next: u32,
    /// Units of a picture that may go on.
    waiting: Vec<u8>,
    ended: bool,
}

// SAFETY: pointers of the client's, which only go back to the client, on the thread that calls.
unsafe impl Send for Parser {}

type Parsers = HashMap<u64, Arc<Mutex<Parser>>>;

static PARSERS: Mutex<Option<Parsers>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(0x1000);
/// Parameter sets and their format, by number less one.
static SETS: Mutex<Vec<(Vec<u8>, Format)>> = Mutex::new(Vec::new());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn count() -> u64 {
    lock(&PARSERS).as_ref().map_or(0, |p| p.len() as u64)
}

/// Parameter sets that a picture was parsed with.
pub(super) fn sets_of(picture: &PicParams) -> Option<(Vec<u8>, Format)> {
    let words = &picture.of_codec.0;
    if words[0] != MAGIC {
        return None;
    }
    lock(&SETS).get((words[1] as usize).checked_sub(1)?).cloned()
}

fn number_of(sets: &[u8], format: Format) -> u32 {
    let mut all = lock(&SETS);
    let at = all.iter().position(|s| s.0 == sets).unwrap_or_else(|| {
        all.push((sets.to_vec(), format));
        all.len() - 1
    });
    at as u32 + 1
}

pub(super) fn create(params: &ParserParams) -> Result<u64, CuResult> {
    if limits(params.codec).is_none() {
        return Err(NOT_SUPPORTED);
    }
    if params.on_sequence.is_none() || params.on_decode.is_none() {
        violation("cuvidCreateVideoParser: no function for sequences or pictures");
        return Err(INVALID_VALUE);
    }
    if params.max_surfaces == 0 {
        violation("cuvidCreateVideoParser: no surfaces");
        return Err(INVALID_VALUE);
    }
    let parser = Parser {
        params: *params,
        sets: Vec::new(),
        told: None,
        fresh: false,
        surfaces: params.max_surfaces,
        next: 0,
        waiting: Vec::new(),
        ended: false,
    };
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    lock(&PARSERS).get_or_insert_default().insert(handle, Arc::new(Mutex::new(parser)));
    Ok(handle)
}

pub(super) fn destroy(handle: u64) -> CuResult {
    match lock(&PARSERS).get_or_insert_default().remove(&handle) {
        Some(_) => SUCCESS,
        None => {
            violation("cuvidDestroyVideoParser: no such parser");
            INVALID_HANDLE
        }
    }
}

/// # Safety
/// The client's functions may be called with its pointer.
pub(super) unsafe fn parse(handle: u64, packet: &Packet, data: &[u8]) -> CuResult {
    let found = lock(&PARSERS).get_or_insert_default().get(&handle).cloned();
    let Some(parser) = found else {
        violation("cuvidParseVideoData: no such parser");
        return INVALID_HANDLE;
    };
    let Ok(mut parser) = parser.try_lock() else {
        violation("cuvidParseVideoData: two threads in one parser");
        return INVALID_VALUE;
    };
    if parser.ended && !data.is_empty() {
        // NVIDIA's starts anew after the end of a stream.
        parser.ended = false;
    }
    // SAFETY: the caller's promise.
    unsafe { parser.feed(packet, data) }
}

impl Parser {
    unsafe fn feed(&mut self, packet: &Packet, data: &[u8]) -> CuResult {
        let Some(limits) = limits(self.params.codec) else { return NOT_SUPPORTED };
        for (part, unit) in cut(limits.standard, data) {
            if matches!(part, Part::Set | Part::First) && !self.waiting.is_empty() {
                // SAFETY: the caller's promise.
                let code = unsafe { self.finish(packet.timestamp) };
                if code != SUCCESS {
                    return code;
                }
            }
            match part {
                Part::Set => self.take_set(unit),
                Part::First | Part::More => {
                    self.waiting.extend_from_slice(unit);
                }
                Part::Other => {}
            }
        }
        let whole = packet.flags & (PACKET_END_OF_PICTURE | PACKET_END_OF_STREAM) != 0;
        self.ended |= packet.flags & PACKET_END_OF_STREAM != 0;
        if whole && !self.waiting.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { self.finish(packet.timestamp) };
        }
        SUCCESS
    }

    /// Takes a parameter set; the first of a run takes the place of those that a picture was parsed with.
    fn take_set(&mut self, unit: &[u8]) {
        if !self.fresh {
            self.sets.clear();
            self.fresh = true;
        }
        self.sets.extend_from_slice(unit);
    }

    /// Tells the client of the picture that waits, and of its sequence if that is new.
    ///
    /// # Safety
    /// As of [`parse`].
    unsafe fn finish(&mut self, timestamp: i64) -> CuResult {
        let picture = std::mem::take(&mut self.waiting);
        let Some(limits) = limits(self.params.codec) else { return NOT_SUPPORTED };
        if self.fresh {
            self.fresh = false;
            // NVIDIA's parser passes over what it cannot read.
            let Ok(format) = stream::read_format(limits.standard, &self.sets) else { return SUCCESS };
            let number = number_of(&self.sets, format);
            if self.told.is_none_or(|t| t.1 != format) {
                // SAFETY: the caller's promise.
                let answer = unsafe { self.tell_sequence(&format) };
                if answer <= 0 {
                    return INVALID_VALUE;
                }
                if answer > 1 {
                    self.surfaces = answer as u32;
                }
            }
            self.told = Some((number, format));
        }
        let Some((number, _)) = self.told else { return SUCCESS };
        if faults::happens(Fault::LosePicture) {
            return SUCCESS;
        }
        let index = (self.next % self.surfaces) as c_int;
        self.next += 1;
        // SAFETY: the caller's promise.
        unsafe { self.tell_picture(index, number, &picture, timestamp) }
    }

    unsafe fn tell_sequence(&self, format: &Format) -> c_int {
        let wider = if faults::happens(Fault::WrongSize) { 16 } else { 0 };
        let (width, height) = (format.width as u32 + wider, format.height as u32);
        let unit = if self.params.codec == super::CODEC_H264 { 16 } else { 8 };
        let mut found = VideoFormat {
            codec: self.params.codec,
            frame_rate: [0, 0],
            progressive: 1,
            luma_depth_minus8: format.depth - 8,
            chroma_depth_minus8: format.depth - 8,
            min_surfaces: 4,
            coded_width: width.next_multiple_of(unit),
            coded_height: height.next_multiple_of(unit),
            display: Rect { left: 0, top: 0, right: width as c_int, bottom: height as c_int },
            chroma: if format.chroma == Chroma::None { CHROMA_MONOCHROME } else { CHROMA_420 },
            ..VideoFormat::default()
        };
        match self.params.on_sequence {
            // SAFETY: the caller's promise.
            Some(call) => unsafe { call(self.params.user, &mut found) },
            None => 0,
        }
    }

    unsafe fn tell_picture(&self, index: c_int, number: u32, picture: &[u8], timestamp: i64) -> CuResult {
        let mut found = PicParams {
            index,
            stream_len: picture.len() as u32,
            stream: picture.as_ptr(),
            slices: 1,
            slice_offsets: &0,
            reference: 1,
            intra: 1,
            ..PicParams::default()
        };
        (found.of_codec.0[0], found.of_codec.0[1]) = (MAGIC, number);
        // SAFETY: the caller's promise.
        let answer = self.params.on_decode.map_or(0, |call| unsafe { call(self.params.user, &mut found) });
        if answer == 0 {
            return INVALID_VALUE;
        }
        if let Some(call) = self.params.on_display {
            let mut shown =
                DisplayInfo { index, progressive: 1, top_field_first: 0, repeat_first_field: 0, timestamp };
            // SAFETY: the caller's promise.
            if unsafe { call(self.params.user, (&raw mut shown).cast::<c_void>()) } == 0 {
                return INVALID_VALUE;
            }
        }
        SUCCESS
    }
}
