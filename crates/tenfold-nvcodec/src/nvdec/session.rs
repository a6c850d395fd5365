//! A lane's share of a stream: through the driver's parser into a decoder, and each picture to the stream's receiver.
//!
//! The parser calls back with what it finds. Pictures are sent to the engine as they come, a few at a time; before a surface is used
//! again, and at the end, the oldest is mapped, given to the receiver, and unmapped once the device has read it.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use tenfold_cuda::{Device, Luma, OwnedEvent, Stream as CudaStream};
use tenfold_video::Standard;

use super::cache::Cache;
use super::caps::{Caps, Kind, chroma_of, codec_of};
use super::decoder::{Counts, Decoder, MAPPED, SENT, Shape};
use super::stream::{Frame, Stream, cancelled};
use crate::cuvid::abi::{self, Packet, ParserHandle, ParserParams, PicParams, VideoFormat};
use crate::cuvid::{Cuvid, check};
use crate::error::{Error, Result};

/// What a lane works with.
pub(super) struct Bench<'a> {
    pub api: &'static Cuvid,
    pub device: &'a Device,
    pub counts: &'a Arc<Counts>,
    /// Kernels and copies of this lane.
    pub cuda: CudaStream,
    /// What the engines can do with a kind of pictures.
    pub caps: &'a dyn Fn(Kind) -> Result<Option<Caps>>,
    /// Says that the lane is alive.
    pub heard: &'a dyn Fn(Instant),
}

/// Decodes the pictures `numbers` of a stream.
pub(super) fn run(bench: &Bench<'_>, cache: &mut Cache, stream: &Stream, numbers: &[usize]) -> Result<()> {
    let caps = Caps::of_format(bench.caps, stream.standard, &stream.format)?;
    stream.start(bench.cuda)?;
    let share = Share {
        bench,
        cache,
        stream,
        numbers,
        caps,
        decoder: None,
        described: None,
        found: 0,
        sent: VecDeque::new(),
        mapped: VecDeque::new(),
        failed: None,
    };
    let mut share = Box::new(share);
    let answer = parse(&mut share);
    // An error of ours says more than the parser's that follows from it.
    let answer = match share.failed.take() {
        Some(error) => Err(error),
        None => answer,
    };
    let answer = answer.and_then(|()| share.finish());
    let released = share.release();
    let decoder = share.decoder.take();
    let answer = answer.and(released);
    // After an error nobody knows what state a decoder is in: it is closed.
    if let (Ok(()), Some(decoder)) = (&answer, decoder) {
        share.cache.put(decoder);
    }
    answer
}

/// Feeds the parser one picture after the other.
fn parse(share: &mut Share<'_>) -> Result<()> {
    let (api, stream, numbers) = (share.bench.api, share.stream, share.numbers);
    let me: *mut Share<'_> = share;
    let parser = Parser::new(api, stream.standard, me.cast())?;
    // A delimiter starts each picture of AV1; blobs leave it out.
    let delimiter: &[u8] = if stream.standard == Standard::Av1 { &[0x12, 0] } else { &[] };
    for (i, &number) in numbers.iter().enumerate() {
        if stream.is_cancelled() {
            return Err(cancelled());
        }
        let picture = stream.pictures.get(number).map_or(&[][..], Vec::as_slice);
        let sets: &[u8] = if i == 0 { &stream.parameter_sets } else { &[] };
        let bytes = [delimiter, sets, picture].concat();
        parser.feed(&bytes, abi::PACKET_END_OF_PICTURE | abi::PACKET_TIMESTAMP, i as i64)?;
    }
    parser.feed(&[], abi::PACKET_END_OF_STREAM, 0)
}

/// The driver's parser, closed when dropped.
struct Parser {
    api: &'static Cuvid,
    handle: ParserHandle,
}

impl Parser {
    /// A parser that calls back with `share`, which must outlive it.
    fn new(api: &'static Cuvid, standard: Standard, share: *mut c_void) -> Result<Parser> {
        let mut params = ParserParams {
            codec: codec_of(standard),
            // The answer to the first call-back states how many there are.
            max_surfaces: 1,
            // Damaged pictures come too: dropping one would give its place to the next.
            error_threshold: 100,
            user: share,
            on_sequence: Some(on_sequence),
            on_decode: Some(on_decode),
            on_display: Some(on_display),
            ..ParserParams::default()
        };
        let mut handle = ptr::null_mut();
        // SAFETY: both places live through the call.
        check("cuvidCreateVideoParser", unsafe { (api.create_parser)(&mut handle, &mut params) })?;
        Ok(Parser { api, handle })
    }

    fn feed(&self, bytes: &[u8], flags: std::ffi::c_ulong, timestamp: i64) -> Result<()> {
        let mut packet = Packet { flags, len: bytes.len() as _, data: bytes.as_ptr(), timestamp };
        // SAFETY: the parser is open, the packet lives through the call, and so does what the call-backs get.
        check("cuvidParseVideoData", unsafe { (self.api.parse)(self.handle, &mut packet) })
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        // SAFETY: opened in `new`. Errors have nowhere to go.
        unsafe { (self.api.destroy_parser)(self.handle) };
    }
}

/// A lane's share of a stream while it is decoded.
struct Share<'a> {
    bench: &'a Bench<'a>,
    cache: &'a mut Cache,
    stream: &'a Stream,
    numbers: &'a [usize],
    caps: Caps,
    decoder: Option<Decoder>,
    /// What the parameter sets said: the shape, and where the picture is in it.
    described: Option<(Shape, [c_int; 4])>,
    /// Pictures that the parser has found.
    found: usize,
    /// Pictures at the engine: surface, and number in the stream.
    sent: VecDeque<(c_int, usize)>,
    /// Pictures that the device reads.
    mapped: VecDeque<(u64, OwnedEvent)>,
    failed: Option<Error>,
}

/// Runs a call-back; nothing may unwind into the driver. 0 tells the parser to stop.
fn called(user: *mut c_void, answer: impl FnOnce(&mut Share<'_>) -> Result<c_int>) -> c_int {
    // SAFETY: `parse` gave this address to the parser, and nobody else uses it while the parser runs.
    let share = unsafe { &mut *user.cast::<Share<'_>>() };
    if share.failed.is_some() {
        return 0;
    }
    let result = catch_unwind(AssertUnwindSafe(|| answer(share)))
        .unwrap_or_else(|_| Err(Error::InvalidArgument("a call-back of the parser panicked".into())));
    result.unwrap_or_else(|error| {
        share.failed = Some(error);
        0
    })
}

unsafe extern "system" fn on_sequence(user: *mut c_void, format: *mut VideoFormat) -> c_int {
    called(user, |share| {
        // SAFETY: the driver's, for the length of the call.
        let format = unsafe { format.as_ref() }.ok_or_else(|| share.broken("no parameter sets".into()))?;
        share.describe(format)
    })
}

unsafe extern "system" fn on_decode(user: *mut c_void, picture: *mut PicParams) -> c_int {
    called(user, |share| {
        if picture.is_null() {
            return Err(share.broken("a picture of nothing".into()));
        }
        // SAFETY: the driver's, for the length of the call.
        unsafe { share.send(picture) }.map(|()| 1)
    })
}

/// Pictures are mapped in the order in which they were sent.
unsafe extern "system" fn on_display(_: *mut c_void, _: *mut c_void) -> c_int {
    1
}

impl Share<'_> {
    fn broken(&self, reason: String) -> Error {
        Error::Stream { standard: self.stream.standard, reason }
    }

    /// Holds parameter sets against the blob, and gets a decoder for them. Returns how many surfaces it has.
    fn describe(&mut self, said: &VideoFormat) -> Result<c_int> {
        let format = &self.stream.format;
        let shape = Shape::new(said);
        let area = [said.display.left, said.display.top, said.display.right, said.display.bottom];
        if let Some(before) = self.described {
            if before != (shape, area) {
                return Err(self.broken("its parameter sets change between pictures".into()));
            }
            return Ok(shape.surfaces as c_int);
        }
        let kind = (said.codec, said.chroma, shape.depth);
        if kind != (codec_of(self.stream.standard), chroma_of(format.chroma), format.depth) {
            return Err(self
                .broken("the driver finds another codec, chroma layout or depth than the blob says".into()));
        }
        if format.chroma != tenfold_video::Chroma::None && said.chroma_depth_minus8 != said.luma_depth_minus8
        {
            return Err(self.broken("luma and chroma differ in depth".into()));
        }
        let [left, top, right, bottom] = area.map(i64::from);
        let coded = [0, 0, i64::from(shape.width), i64::from(shape.height)];
        let inside = left >= coded[0] && top >= coded[1] && right <= coded[2] && bottom <= coded[3];
        let sides = (i64::try_from(format.width), i64::try_from(format.height));
        if !inside || (Ok(right - left), Ok(bottom - top)) != sides {
            let reason = format!(
                "the driver finds pictures of {} × {}, not {} × {}",
                right - left,
                bottom - top,
                format.width,
                format.height
            );
            return Err(self.broken(reason));
        }
        if said.progressive == 0 {
            return Err(self.broken("its pictures are interlaced".into()));
        }
        self.caps.check_size(self.stream.standard, shape.width, shape.height)?;
        let bench = self.bench;
        self.decoder = Some(self.cache.take(bench.api, bench.device, bench.counts, shape)?);
        self.described = Some((shape, area));
        (bench.heard)(Instant::now());
        Ok(shape.surfaces as c_int)
    }

    /// Sends a picture to the engine.
    ///
    /// # Safety
    /// `picture` is the parser's, in its call-back.
    unsafe fn send(&mut self, picture: *mut PicParams) -> Result<()> {
        // SAFETY: the caller's.
        let (index, field) = unsafe { ((*picture).index, (*picture).field) };
        let Some(&number) = self.numbers.get(self.found) else {
            return Err(self.broken("more pictures than there should be".into()));
        };
        if field != 0 {
            return Err(self.broken("a picture is one field of two".into()));
        }
        if self.stream.is_cancelled() {
            return Err(cancelled());
        }
        while self.sent.len() >= SENT || self.sent.iter().any(|s| s.0 == index) {
            self.receive()?;
        }
        let decoder =
            self.decoder.as_ref().ok_or_else(|| self.broken("a picture before parameter sets".into()))?;
        // SAFETY: the caller's.
        unsafe { decoder.send(picture)? };
        self.found += 1;
        self.sent.push_back((index, number));
        Ok(())
    }

    /// Waits for the picture that was sent first, and gives it to the receiver.
    fn receive(&mut self) -> Result<()> {
        let Some((index, number)) = self.sent.pop_front() else { return Ok(()) };
        let (Some(decoder), Some((_, area))) = (&self.decoder, self.described) else {
            return Err(self.broken("a picture before parameter sets".into()));
        };
        while self.mapped.len() >= MAPPED {
            unmap_first(decoder, &mut self.mapped)?;
        }
        let bench = self.bench;
        let mapped = decoder.map(index, bench.cuda)?;
        let event = OwnedEvent::new(bench.device, false)?;
        let given = match decoder.verdict(index) {
            Ok(None) => {
                let format = &self.stream.format;
                let size = if format.depth > 8 { 2 } else { 1 };
                let start = u64::from(mapped.pitch) * area[1] as u64 + area[0] as u64 * size;
                let luma = Luma {
                    address: mapped.address + start,
                    pitch: mapped.pitch,
                    width: format.width as u32,
                    height: format.height as u32,
                    depth: u32::from(format.depth),
                };
                self.stream.give(number, &Frame { luma }, bench.cuda)
            }
            Ok(Some(reason)) => Err(self.broken(format!("picture {number}: {reason}"))),
            Err(error) => Err(error),
        };
        // Whatever happened, the device may be reading it.
        let recorded = event.record(bench.cuda);
        self.mapped.push_back((mapped.address, event));
        (bench.heard)(Instant::now());
        given.and(recorded.map_err(Error::from))
    }

    /// Receives what is left, once the parser is done.
    fn finish(&mut self) -> Result<()> {
        while !self.sent.is_empty() {
            self.receive()?;
        }
        let (found, all) = (self.found, self.numbers.len());
        if found < all {
            return Err(self.broken(format!("{} of {all} pictures are missing", all - found)));
        }
        Ok(())
    }

    /// Waits until the device has read all pictures and gives them back, also after an error.
    fn release(&mut self) -> Result<()> {
        let mut answer = Ok(());
        if let Some(decoder) = &self.decoder {
            while !self.mapped.is_empty() {
                answer = answer.and(unmap_first(decoder, &mut self.mapped));
            }
        }
        answer
    }
}

fn unmap_first(decoder: &Decoder, mapped: &mut VecDeque<(u64, OwnedEvent)>) -> Result<()> {
    let Some((address, event)) = mapped.pop_front() else { return Ok(()) };
    // Unmapped even if the wait fails: the device is lost then, and reads no more.
    let waited = event.wait();
    decoder.unmap(address)?;
    Ok(waited?)
}
