//! The decoder's half works, and finds what callers do wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::null_mut;

use tenfold_nvcodec::cuvid::abi::{
    CHROMA_420, CODEC_AV1, CODEC_H264, CODEC_HEVC, CreateInfo, DecodeCaps, DecodeStatus, DecoderHandle,
    PACKET_END_OF_PICTURE, Packet, ParserHandle, ParserParams, PicParams, ProcParams, VideoFormat,
};
use tenfold_nvcodec_standin::cuvid::{
    cuvidCreateDecoder, cuvidCreateVideoParser, cuvidDecodePicture, cuvidDestroyDecoder,
    cuvidDestroyVideoParser, cuvidGetDecodeStatus, cuvidGetDecoderCaps, cuvidMapVideoFrame64,
    cuvidParseVideoData, cuvidUnmapVideoFrame64,
};
use tenfold_nvcodec_standin::{Fault, Standin};
use tenfold_video::Standard;
use tenfold_video::codec::stream;

/// What a client keeps between calls.
#[derive(Default)]
struct Client {
    decoder: Option<DecoderHandle>,
    picture: Option<Box<PicParams>>,
    size: (u32, u32),
}

unsafe extern "system" fn on_sequence(user: *mut c_void, format: *mut VideoFormat) -> c_int {
    // SAFETY: the pointer that was given to the parser, and what the parser gives.
    let (client, format) = unsafe { (&mut *user.cast::<Client>(), &*format) };
    let mut info = CreateInfo {
        width: format.coded_width.into(),
        height: format.coded_height.into(),
        decode_surfaces: 4,
        codec: format.codec,
        chroma: format.chroma,
        flags: 4,
        target_width: (format.display.right - format.display.left) as c_ulong,
        target_height: (format.display.bottom - format.display.top) as c_ulong,
        output_surfaces: 1,
        ..CreateInfo::default()
    };
    let mut decoder = null_mut();
    // SAFETY: both live.
    assert_eq!(unsafe { cuvidCreateDecoder(&mut decoder, &mut info) }, 0);
    client.decoder = Some(decoder);
    client.size = (info.target_width as u32, info.target_height as u32);
    4
}

unsafe extern "system" fn on_decode(user: *mut c_void, picture: *mut PicParams) -> c_int {
    // SAFETY: as above.
    let client = unsafe { &mut *user.cast::<Client>() };
    // SAFETY: as above.
    assert_eq!(unsafe { cuvidDecodePicture(client.decoder.unwrap(), picture) }, 0);
    // SAFETY: as above.
    client.picture = Some(Box::new(unsafe { *picture }));
    1
}

/// Parses a gray picture; false where this build has no decoder.
fn parse(codec: c_int, standard: Standard, client: &mut Client) -> ParserHandle {
    let mut params = ParserParams {
        codec,
        max_surfaces: 4,
        user: (&raw mut *client).cast(),
        on_sequence: Some(on_sequence),
        on_decode: Some(on_decode),
        ..ParserParams::default()
    };
    let data = stream::gray(standard);
    let mut packet = Packet {
        flags: PACKET_END_OF_PICTURE,
        len: data.len() as c_ulong,
        data: data.as_ptr(),
        timestamp: 0,
    };
    let mut parser = null_mut();
    // SAFETY: all live.
    unsafe {
        assert_eq!(cuvidCreateVideoParser(&mut parser, &mut params), 0);
        assert_eq!(cuvidParseVideoData(parser, &mut packet), 0);
    }
    parser
}

fn runs(standard: Standard) -> bool {
    let found = tenfold_video::decoders().iter().any(|d| d.standard() == standard && d.probe().is_ok());
    if !found {
        println!("skipped: this build has no decoder of {standard}");
    }
    found
}

#[test]
fn a_picture_is_decoded_and_mapped() {
    for (codec, standard) in
        [(CODEC_H264, Standard::H264), (CODEC_HEVC, Standard::H265), (CODEC_AV1, Standard::Av1)]
    {
        if !runs(standard) {
            continue;
        }
        let mut client = Client::default();
        let parser = parse(codec, standard, &mut client);
        assert_eq!(client.size, (256, 256));
        let (decoder, index) = (client.decoder.unwrap(), client.picture.as_ref().unwrap().index);
        let mut params = ProcParams { progressive: 1, ..ProcParams::default() };
        let (mut address, mut pitch) = (0, 0);
        let mut status = DecodeStatus::default();
        // SAFETY: all live; the mapped picture has 256 rows of luma and 128 of chroma.
        unsafe {
            assert_eq!(cuvidMapVideoFrame64(decoder, index, &mut address, &mut pitch, &mut params), 0);
            assert_eq!(cuvidGetDecodeStatus(decoder, index, &mut status), 0);
            assert_eq!(status.status, 2);
            let rows = std::slice::from_raw_parts(address as *const u8, pitch as usize * 384);
            assert!(
                rows.chunks(pitch as usize).all(|row| row[..256].iter().all(|&s| s == 128)),
                "{standard}"
            );
            assert_eq!(cuvidUnmapVideoFrame64(decoder, address), 0);
            assert_eq!(cuvidDestroyDecoder(decoder), 0);
            assert_eq!(cuvidDestroyVideoParser(parser), 0);
        }
    }
}

#[test]
fn abilities_are_those_of_an_engine() {
    let ask = |codec, chroma, depth: u32| {
        let mut caps = DecodeCaps { codec, chroma, depth_minus8: depth - 8, ..DecodeCaps::default() };
        // SAFETY: it lives.
        assert_eq!(unsafe { cuvidGetDecoderCaps(&mut caps) }, 0);
        (caps.supported, caps.engines, caps.min_width, caps.max_height)
    };
    assert_eq!(ask(CODEC_HEVC, CHROMA_420, 8), (1, 3, 144, 8192));
    assert_eq!(ask(CODEC_HEVC, 0, 8).0, 0);
    assert_eq!(ask(CODEC_H264, CHROMA_420, 10).0, 0);
    assert_eq!(ask(CODEC_AV1, CHROMA_420, 10).0, 1);
    assert_eq!(ask(1, CHROMA_420, 8).0, 0);
}

#[test]
fn the_library_is_loaded_and_tells_what_was_wrong() {
    let standin = Standin::load();
    standin.reset();
    assert_eq!((standin.violations(), standin.counts().decoders), (vec![], 0));
    type Destroy = unsafe extern "system" fn(DecoderHandle) -> c_int;
    // SAFETY: loaded already; the function's type.
    unsafe {
        let library = libloading::Library::new(standin.path()).unwrap();
        let destroy = library.get::<Destroy>("cuvidDestroyDecoder").unwrap();
        assert_ne!(destroy(16 as DecoderHandle), 0);
    }
    assert_eq!(standin.violations(), ["cuvidDestroyDecoder: no such decoder"]);
    standin.set(Fault::MaxDecoders, 1);
    standin.reset();
    assert!(standin.violations().is_empty());
}
