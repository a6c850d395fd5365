//! The fake driver. It has one state for the process, so tests take turns.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cuvid::Cuvid;
use crate::cuvid::abi::*;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    Nothing,
    /// The engine does nothing of the sort.
    Unsupported,
    /// It takes only smaller pictures.
    Small,
    /// The parser finds another width.
    Width,
    /// The parser finds another depth.
    Depth,
    /// Parameter sets change before the second picture.
    Change,
    /// The last picture never comes.
    Missing,
    /// One comes twice.
    Twice,
    /// Opening a decoder fails.
    Create(c_int),
    /// So does mapping a picture.
    Map(c_int),
    /// A decoded picture has this status.
    Status(c_int),
    /// One sample is another than was written, and nobody says so.
    Sample,
    /// Mapping takes this long.
    Slow(Duration),
}

/// What the fake has seen.
#[derive(Default)]
pub struct World {
    pub fault: Fault,
    pub open: usize,
    pub most_open: usize,
    pub parsers: usize,
    /// Calls that no driver would forgive.
    pub violations: Vec<String>,
    pub packets: usize,
}

static WORLD: Mutex<World> = Mutex::new(World {
    fault: Fault::Nothing,
    open: 0,
    most_open: 0,
    parsers: 0,
    violations: Vec::new(),
    packets: 0,
});
static TURN: Mutex<()> = Mutex::new(());

pub fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test's turn with the driver; checks at the end that nothing was left behind.
pub struct Turn(#[allow(dead_code)] MutexGuard<'static, ()>);

pub fn turn(fault: Fault) -> Turn {
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *world() = World { fault, ..World::default() };
    Turn(guard)
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let world = world();
            assert_eq!((world.open, world.parsers), (0, 0), "decoders and parsers that are still open");
            assert!(world.violations.is_empty(), "{:?}", world.violations);
        }
    }
}

pub fn set(fault: Fault) {
    world().fault = fault;
}

fn violate(what: impl Into<String>) -> CuResult {
    world().violations.push(what.into());
    1
}

/// Sample `i` of the picture of a number.
pub fn sample(seed: u32, i: u32, depth: u8) -> u16 {
    let x = (seed ^ i.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    ((x ^ x >> 15) & ((1 << depth) - 1)) as u16
}

/// What the slice of a picture's access unit holds: a unit header of an IDR picture and the number, never zero bytes.
pub fn access_unit(seed: u32) -> Vec<u8> {
    let digits = (0..8).map(|i| 0x80 | (seed >> (4 * i) & 15) as u8);
    [0, 0, 1, 0x26, 1].into_iter().chain(digits).collect()
}

fn seed_of(data: &[u8]) -> Option<u32> {
    let at = data.windows(5).position(|w| w == [0, 0, 1, 0x26, 1])? + 5;
    let digits = data.get(at..at + 8)?;
    Some(digits.iter().enumerate().map(|(i, d)| u32::from(d & 15) << (4 * i)).sum())
}

struct FakeParser {
    params: ParserParams,
    surfaces: c_int,
    next: c_int,
    pictures: usize,
    last: Option<u32>,
}

struct FakeDecoder {
    info: CreateInfo,
    seeds: BTreeMap<c_int, u32>,
    mapped: BTreeMap<u64, Vec<u8>>,
}

pub fn cuvid() -> &'static Cuvid {
    Box::leak(Box::new(Cuvid {
        caps,
        create,
        destroy,
        decode,
        status,
        reconfigure,
        map,
        unmap,
        create_parser,
        parse,
        destroy_parser,
        _library: None,
    }))
}

unsafe extern "system" fn caps(caps: *mut DecodeCaps) -> CuResult {
    let caps = unsafe { &mut *caps };
    let fault = world().fault;
    let known = (caps.codec == CODEC_HEVC || caps.codec == CODEC_H264) && caps.chroma == CHROMA_420;
    if !known || fault == Fault::Unsupported {
        return 0;
    }
    (caps.supported, caps.engines, caps.outputs) = (1, 3, 3);
    (caps.min_width, caps.min_height) = (144, 144);
    (caps.max_width, caps.max_height) = if fault == Fault::Small { (200, 200) } else { (8192, 8192) };
    caps.max_blocks = 262_144;
    0
}

unsafe extern "system" fn create(handle: *mut DecoderHandle, info: *mut CreateInfo) -> CuResult {
    let info = unsafe { *info };
    if let Fault::Create(code) = world().fault {
        return code;
    }
    if info.display.right as u64 != info.target_width as u64
        || info.intra_only != 1
        || info.decode_surfaces < 2
    {
        return violate("a decoder that scales, predicts or has no surfaces");
    }
    let decoder = FakeDecoder { info, seeds: BTreeMap::new(), mapped: BTreeMap::new() };
    unsafe { *handle = Box::into_raw(Box::new(decoder)).cast() };
    let mut world = world();
    world.open += 1;
    world.most_open = world.most_open.max(world.open);
    0
}

unsafe fn decoder<'a>(handle: DecoderHandle) -> &'a mut FakeDecoder {
    unsafe { &mut *handle.cast() }
}

unsafe extern "system" fn destroy(handle: DecoderHandle) -> CuResult {
    let decoder = unsafe { Box::from_raw(handle.cast::<FakeDecoder>()) };
    if !decoder.mapped.is_empty() {
        violate("a decoder was closed with pictures mapped");
    }
    world().open -= 1;
    0
}

unsafe extern "system" fn decode(handle: DecoderHandle, picture: *mut PicParams) -> CuResult {
    let (decoder, picture) = unsafe { (decoder(handle), &*picture) };
    if picture.index < 0 || picture.index as u64 >= decoder.info.decode_surfaces as u64 {
        return violate("a surface that is none");
    }
    if decoder.seeds.insert(picture.index, picture.of_codec.0[0]).is_some() {
        return violate("a surface was used again before it was mapped");
    }
    0
}

unsafe extern "system" fn status(_: DecoderHandle, _: c_int, status: *mut DecodeStatus) -> CuResult {
    let code = if let Fault::Status(code) = world().fault { code } else { 2 };
    unsafe { (*status).status = code };
    0
}

unsafe extern "system" fn reconfigure(handle: DecoderHandle, info: *mut ReconfigureInfo) -> CuResult {
    let (decoder, info) = unsafe { (decoder(handle), &*info) };
    if info.width as u64 > decoder.info.max_width as u64
        || info.decode_surfaces as u64 > decoder.info.decode_surfaces as u64
    {
        return violate("a decoder was made larger than it may be");
    }
    (decoder.info.width, decoder.info.height) = (info.width.into(), info.height.into());
    (decoder.info.target_width, decoder.info.target_height) =
        (info.target_width.into(), info.target_height.into());
    0
}

unsafe extern "system" fn map(
    handle: DecoderHandle,
    index: c_int,
    address: *mut c_ulonglong,
    pitch: *mut c_uint,
    _: *mut ProcParams,
) -> CuResult {
    let decoder = unsafe { decoder(handle) };
    let fault = world().fault;
    match fault {
        Fault::Map(code) => return code,
        Fault::Slow(time) => std::thread::sleep(time),
        _ => {}
    }
    let Some(seed) = decoder.seeds.remove(&index) else { return violate("a surface without a picture") };
    if decoder.mapped.len() as u64 >= decoder.info.output_surfaces as u64 {
        return violate("more pictures are mapped than may be");
    }
    let (width, height) = (decoder.info.target_width as u32, decoder.info.target_height as u32);
    let depth = decoder.info.depth_minus8 as u8 + 8;
    let size = if depth > 8 { 2 } else { 1 };
    let lines = (width as usize * size).next_multiple_of(256) + 256;
    let mut bytes = vec![0x77u8; lines * height as usize * 3 / 2];
    for y in 0..height {
        for x in 0..width {
            let mut s = sample(seed, y * width + x, depth);
            if fault == Fault::Sample && (x, y) == (17, 101) {
                s ^= 1;
            }
            let at = y as usize * lines + x as usize * size;
            match size {
                1 => bytes[at] = s as u8,
                _ => bytes[at..at + 2].copy_from_slice(&(s << (16 - depth)).to_le_bytes()),
            }
        }
    }
    let at = bytes.as_ptr() as u64;
    unsafe { (*address, *pitch) = (at, lines as c_uint) };
    decoder.mapped.insert(at, bytes);
    0
}

unsafe extern "system" fn unmap(handle: DecoderHandle, address: c_ulonglong) -> CuResult {
    match unsafe { decoder(handle) }.mapped.remove(&address) {
        Some(_) => 0,
        None => violate("something was unmapped that was not mapped"),
    }
}

unsafe extern "system" fn create_parser(handle: *mut ParserHandle, params: *mut ParserParams) -> CuResult {
    let parser = FakeParser { params: unsafe { *params }, surfaces: 0, next: 0, pictures: 0, last: None };
    unsafe { *handle = Box::into_raw(Box::new(parser)).cast() };
    world().parsers += 1;
    0
}

unsafe extern "system" fn destroy_parser(handle: ParserHandle) -> CuResult {
    drop(unsafe { Box::from_raw(handle.cast::<FakeParser>()) });
    world().parsers -= 1;
    0
}

impl FakeParser {
    /// As the gray stream's parameter sets have it: 256 × 256 samples of 8 bits.
    fn describe(&mut self, fault: Fault) -> bool {
        let depth_minus8 = if fault == Fault::Depth { 2 } else { 0 };
        let width =
            if fault == Fault::Width || fault == Fault::Change && self.pictures > 0 { 272 } else { 256 };
        let mut format = VideoFormat {
            codec: self.params.codec,
            progressive: 1,
            luma_depth_minus8: depth_minus8,
            chroma_depth_minus8: depth_minus8,
            min_surfaces: 2,
            coded_width: width,
            coded_height: 256,
            display: Rect { left: 0, top: 0, right: width as c_int, bottom: 256 },
            chroma: CHROMA_420,
            ..VideoFormat::default()
        };
        self.surfaces = unsafe { self.params.on_sequence.unwrap()(self.params.user, &mut format) };
        self.surfaces > 0
    }

    /// A picture goes to the decoder when the packet after it comes, or the end does.
    fn flush(&mut self, times: usize) -> bool {
        let Some(seed) = self.last.take() else { return true };
        (0..times).all(|_| {
            let mut picture =
                PicParams { index: self.next % self.surfaces.max(1), intra: 1, ..PicParams::default() };
            picture.of_codec.0[0] = seed;
            self.next += 1;
            self.pictures += 1;
            let taken = unsafe { self.params.on_decode.unwrap()(self.params.user, &mut picture) };
            taken > 0
        })
    }
}

unsafe extern "system" fn parse(handle: ParserHandle, packet: *mut Packet) -> CuResult {
    let (parser, packet) = unsafe { (&mut *handle.cast::<FakeParser>(), &*packet) };
    let fault = world().fault;
    world().packets += 1;
    let end = packet.flags & PACKET_END_OF_STREAM != 0;
    let times = match fault {
        Fault::Twice => 2,
        Fault::Missing if end => 0,
        _ => 1,
    };
    if !parser.flush(times) {
        return 999;
    }
    if end {
        return 0;
    }
    if packet.flags & PACKET_END_OF_PICTURE == 0 {
        return violate("a packet that is not one picture");
    }
    let data = unsafe { std::slice::from_raw_parts(packet.data, packet.len as usize) };
    let described = parser.surfaces == 0 || fault == Fault::Change && parser.pictures > 0;
    if described && !parser.describe(fault) {
        return 999;
    }
    parser.last = seed_of(data);
    0
}
