//! What `libnvcuvid` exports.

mod decoder;
mod parser;

use std::ffi::{c_int, c_uint, c_ulonglong};

use tenfold_nvcodec::cuvid::abi::{
    CHROMA_420, CHROMA_MONOCHROME, CODEC_AV1, CODEC_H264, CODEC_HEVC, CreateInfo, CuResult, DecodeCaps,
    DecodeStatus, DecoderHandle, Packet, ParserHandle, ParserParams, PicParams, ProcParams, ReconfigureInfo,
    SURFACE_NV12, SURFACE_P016,
};
use tenfold_video::Standard;

use crate::control::Counts;
use crate::faults::{self, Fault};

pub(crate) const SUCCESS: CuResult = 0;
pub(crate) const INVALID_VALUE: CuResult = 1;
pub(crate) const OUT_OF_MEMORY: CuResult = 2;
pub(crate) const NO_DEVICE: CuResult = 100;
pub(crate) const MAP_FAILED: CuResult = 205;
pub(crate) const INVALID_HANDLE: CuResult = 400;
pub(crate) const LAUNCH_FAILED: CuResult = 719;
pub(crate) const NOT_SUPPORTED: CuResult = 801;

/// What a standard's engine takes.
pub(crate) struct Limits {
    pub standard: Standard,
    pub chroma: &'static [c_int],
    pub depths: &'static [u32],
    pub min: u32,
    pub max: u32,
}

/// Like the engine of a card for games: H.265 not below 144, AV1 in profile 0.
pub(crate) fn limits(codec: c_int) -> Option<Limits> {
    let (standard, chroma, depths, min, max): (_, &[c_int], &[u32], _, _) = match codec {
        CODEC_H264 => (Standard::H264, &[CHROMA_420], &[8], 48, 4096),
        CODEC_HEVC => (Standard::H265, &[CHROMA_420], &[8, 10, 12], 144, 8192),
        CODEC_AV1 => (Standard::Av1, &[CHROMA_420, CHROMA_MONOCHROME], &[8, 10], 128, 8192),
        _ => return None,
    };
    Some(Limits { standard, chroma, depths, min, max })
}

pub(crate) fn count(counts: &mut Counts) {
    decoder::count(counts);
    counts.parsers = parser::count();
}

/// # Safety
/// As NVIDIA's: `caps` is a structure of that type.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidGetDecoderCaps(caps: *mut DecodeCaps) -> CuResult {
    // SAFETY: the caller's promise.
    let Some(caps) = (unsafe { caps.as_mut() }) else { return INVALID_VALUE };
    caps.supported = 0;
    let found = limits(caps.codec).filter(|_| faults::get(Fault::NoDecoder) == 0);
    let depth = caps.depth_minus8 + 8;
    if let Some(limits) = found.filter(|l| l.chroma.contains(&caps.chroma) && l.depths.contains(&depth)) {
        caps.supported = 1;
        caps.engines = faults::get(Fault::DecodeEngines) as u8;
        caps.outputs = if depth == 8 { 1 << SURFACE_NV12 } else { 1 << SURFACE_P016 };
        (caps.max_width, caps.max_height) = (limits.max, limits.max);
        (caps.min_width, caps.min_height) = (limits.min as u16, limits.min as u16);
        caps.max_blocks = (limits.max / 16).pow(2);
    }
    SUCCESS
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidCreateDecoder(
    handle: *mut DecoderHandle,
    info: *mut CreateInfo,
) -> CuResult {
    // SAFETY: the caller's promise.
    let (Some(handle), Some(info)) = (unsafe { (handle.as_mut(), info.as_ref()) }) else {
        return INVALID_VALUE;
    };
    match decoder::create(info) {
        Ok(new) => {
            *handle = new as DecoderHandle;
            SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidDestroyDecoder(handle: DecoderHandle) -> CuResult {
    decoder::destroy(handle as u64)
}

/// # Safety
/// As NVIDIA's: the picture's stream has as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidDecodePicture(handle: DecoderHandle, picture: *mut PicParams) -> CuResult {
    // SAFETY: the caller's promise.
    let Some(picture) = (unsafe { picture.as_ref() }) else { return INVALID_VALUE };
    if picture.stream.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let stream = unsafe { std::slice::from_raw_parts(picture.stream, picture.stream_len as usize) };
    decoder::decode(handle as u64, picture, stream)
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidGetDecodeStatus(
    handle: DecoderHandle,
    index: c_int,
    status: *mut DecodeStatus,
) -> CuResult {
    // SAFETY: the caller's promise.
    let Some(status) = (unsafe { status.as_mut() }) else { return INVALID_VALUE };
    match decoder::status(handle as u64, index) {
        Ok(found) => {
            status.status = found;
            SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidReconfigureDecoder(
    handle: DecoderHandle,
    info: *mut ReconfigureInfo,
) -> CuResult {
    // SAFETY: the caller's promise.
    let Some(info) = (unsafe { info.as_ref() }) else { return INVALID_VALUE };
    decoder::reconfigure(handle as u64, info)
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidMapVideoFrame64(
    handle: DecoderHandle,
    index: c_int,
    address: *mut c_ulonglong,
    pitch: *mut c_uint,
    params: *mut ProcParams,
) -> CuResult {
    // SAFETY: the caller's promise.
    let (Some(address), Some(pitch), Some(params)) =
        (unsafe { (address.as_mut(), pitch.as_mut(), params.as_ref()) })
    else {
        return INVALID_VALUE;
    };
    match decoder::map(handle as u64, index, params) {
        Ok((at, bytes)) => {
            (*address, *pitch) = (at, bytes);
            SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidUnmapVideoFrame64(
    handle: DecoderHandle,
    address: c_ulonglong,
) -> CuResult {
    decoder::unmap(handle as u64, address)
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidCreateVideoParser(
    handle: *mut ParserHandle,
    params: *mut ParserParams,
) -> CuResult {
    // SAFETY: the caller's promise.
    let (Some(handle), Some(params)) = (unsafe { (handle.as_mut(), params.as_ref()) }) else {
        return INVALID_VALUE;
    };
    match parser::create(params) {
        Ok(new) => {
            *handle = new as ParserHandle;
            SUCCESS
        }
        Err(code) => code,
    }
}

/// # Safety
/// As NVIDIA's: the packet has as many bytes as it says, and the parser's functions may be called.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidParseVideoData(handle: ParserHandle, packet: *mut Packet) -> CuResult {
    // SAFETY: the caller's promise.
    let Some(packet) = (unsafe { packet.as_ref() }) else { return INVALID_VALUE };
    let data: &[u8] = if packet.data.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(packet.data, packet.len as usize) }
    };
    // SAFETY: as above.
    unsafe { parser::parse(handle as u64, packet, data) }
}

/// # Safety
/// As NVIDIA's.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn cuvidDestroyVideoParser(handle: ParserHandle) -> CuResult {
    parser::destroy(handle as u64)
}
