//! Pixel formats: which of libavcodec's hold our pictures, and samples in and out of frames.

use std::ffi::{CString, c_int};
use std::ptr;

use ffmpeg_sys_next as ffi;
use ffmpeg_sys_next::AVPixelFormat::{self, *};

use super::super::{Chroma, Format};
use super::device::Device;
use super::handles::{self, Frame, check};
use super::spec::LibavEncoder;
use crate::error::{Error, Result};

/// Candidates for a depth and a kind of picture, the preferred first.
fn candidates(depth: u8, chroma: Chroma) -> &'static [AVPixelFormat] {
    match (chroma, depth) {
        (Chroma::None, 8) => &[AV_PIX_FMT_GRAY8],
        (Chroma::None, 10) => &[AV_PIX_FMT_GRAY10LE],
        (Chroma::None, 12) => &[AV_PIX_FMT_GRAY12LE],
        (Chroma::Constant, 8) => &[AV_PIX_FMT_YUV420P, AV_PIX_FMT_NV12],
        (Chroma::Constant, 10) => &[AV_PIX_FMT_YUV420P10LE, AV_PIX_FMT_P010LE],
        (Chroma::Constant, 12) => &[AV_PIX_FMT_YUV420P12LE],
        _ => &[],
    }
}

/// The encoder, if this libavcodec was built with it.
pub(super) fn find(encoder: &LibavEncoder) -> Result<*const ffi::AVCodec> {
    handles::silence();
    let missing = || Error::NotAvailable {
        name: encoder.name.to_string(),
        reason: format!(
            "this machine's libavcodec has no {}; install an FFmpeg that has it",
            encoder.library
        ),
    };
    let name = CString::new(encoder.library).map_err(|_| missing())?;
    // SAFETY: the name is a valid string; the result is null or lives for ever.
    let codec = unsafe { ffi::avcodec_find_encoder_by_name(name.as_ptr()) };
    if codec.is_null() { Err(missing()) } else { Ok(codec) }
}

/// Formats that an encoder lists.
fn list_formats(codec: *const ffi::AVCodec) -> Vec<AVPixelFormat> {
    let mut formats = Vec::new();
    // SAFETY: the list ends with AV_PIX_FMT_NONE.
    unsafe {
        let mut at = (*codec).pix_fmts;
        while !at.is_null() && *at != AV_PIX_FMT_NONE {
            formats.push(*at);
            at = at.add(1);
        }
    }
    formats
}

/// Depths and kinds of pictures of an encoder.
pub(super) fn find_formats(encoder: &LibavEncoder) -> Result<(Vec<u8>, Vec<Chroma>)> {
    let codec = find(encoder)?;
    let has = |depth, chroma| pick_from(&list_formats(codec), encoder.device, depth, chroma).is_some();
    let kinds = [Chroma::None, Chroma::Constant];
    let depths: Vec<u8> = [8, 10, 12].into_iter().filter(|&d| kinds.iter().any(|&c| has(d, c))).collect();
    let chroma: Vec<Chroma> = kinds.into_iter().filter(|&c| depths.iter().any(|&d| has(d, c))).collect();
    if depths.is_empty() {
        let reason = format!("{} takes no pixel format of ours", encoder.library);
        return Err(Error::NotAvailable { name: encoder.name.to_string(), reason });
    }
    Ok((depths, chroma))
}

/// What the encoder takes for a picture format; for a device, what is uploaded to it.
pub(super) fn pick(encoder: &LibavEncoder, depth: u8, chroma: Chroma) -> Result<AVPixelFormat> {
    pick_from(&list_formats(find(encoder)?), encoder.device, depth, chroma).ok_or_else(|| {
        let kind = if chroma == Chroma::None { "luma alone" } else { "4:2:0" };
        Error::Refused { name: encoder.name.to_string(), reason: format!("{depth}-bit samples, {kind}") }
    })
}

fn pick_from(
    listed: &[AVPixelFormat],
    device: Option<Device>,
    depth: u8,
    chroma: Chroma,
) -> Option<AVPixelFormat> {
    match device {
        // Uploads go through the two formats that every driver has.
        Some(_) => match (depth, chroma) {
            (8, Chroma::Constant) => Some(AV_PIX_FMT_NV12),
            (10, Chroma::Constant) => Some(AV_PIX_FMT_P010LE),
            _ => None,
        },
        None => candidates(depth, chroma).iter().copied().find(|c| listed.contains(c)),
    }
}

/// A frame with room for a picture.
pub(super) fn allocate(pixel: AVPixelFormat, format: &Format) -> Result<Frame, String> {
    let frame = Frame::new()?;
    // SAFETY: the frame is valid; the sides were checked against the encoder's limits.
    unsafe {
        (*frame.0).format = pixel as c_int;
        (*frame.0).width = format.width as c_int;
        (*frame.0).height = format.height as c_int;
        check(ffi::av_frame_get_buffer(frame.0, 0))?;
    }
    Ok(frame)
}

/// Writes samples into the luma plane and the middle value into all others.
pub(super) fn fill(frame: &Frame, samples: &[u16], format: &Format) -> Result<(), String> {
    let layout = Layout::from_frame(frame)?;
    // SAFETY: the frame's planes have `linesize` bytes a row and at least the rows of the format, as
    // av_frame_get_buffer made them; the frame is made writable first.
    unsafe {
        check(ffi::av_frame_make_writable(frame.0))?;
        let f = &mut *frame.0;
        for (y, row) in samples.chunks_exact(format.width).enumerate() {
            let line = f.data[0].offset(y as isize * f.linesize[0] as isize);
            if layout.bytes == 1 {
                for (x, &s) in row.iter().enumerate() {
                    *line.add(x) = s as u8;
                }
            } else {
                for (x, &s) in row.iter().enumerate() {
                    line.add(2 * x).cast::<u16>().write_unaligned((s << layout.shift).to_le());
                }
            }
        }
        let middle = 1u16 << (format.depth - 1) << layout.shift;
        let rows = format.height.div_ceil(2);
        for plane in 1..4 {
            if f.data[plane].is_null() {
                continue;
            }
            for y in 0..rows {
                let line = f.data[plane].offset(y as isize * f.linesize[plane] as isize);
                let len = f.linesize[plane].unsigned_abs() as usize;
                if layout.bytes == 1 {
                    ptr::write_bytes(line, middle as u8, len);
                } else {
                    for x in 0..len / 2 {
                        line.add(2 * x).cast::<u16>().write_unaligned(middle.to_le());
                    }
                }
            }
        }
    }
    Ok(())
}

/// Reads the luma plane of a decoded frame, or says why it is not of the format.
pub(super) fn read(frame: &Frame, format: &Format, out: &mut [u16]) -> Result<(), String> {
    let layout = Layout::from_frame(frame)?;
    // SAFETY: the frame was filled by libavcodec and is not changed here.
    let f = unsafe { &*frame.0 };
    let size = (usize::try_from(f.width).unwrap_or(0), usize::try_from(f.height).unwrap_or(0));
    if size != (format.width, format.height) {
        return Err(format!("a picture of {}×{}, not {}×{}", size.0, size.1, format.width, format.height));
    }
    if layout.depth != format.depth {
        return Err(format!("samples of {} bits, not {}", layout.depth, format.depth));
    }
    for (y, row) in out.chunks_exact_mut(format.width).enumerate() {
        // SAFETY: row y < height lies in the plane, which has `linesize` bytes a row and at least
        // `width` samples in each.
        unsafe {
            let line = f.data[0].offset(y as isize * f.linesize[0] as isize);
            if layout.bytes == 1 {
                let line = std::slice::from_raw_parts(line, format.width);
                row.iter_mut().zip(line).for_each(|(o, &s)| *o = u16::from(s));
            } else {
                for (x, o) in row.iter_mut().enumerate() {
                    *o = u16::from_le(line.add(2 * x).cast::<u16>().read_unaligned()) >> layout.shift;
                }
            }
        }
    }
    Ok(())
}

/// How luma samples lie in a plane.
struct Layout {
    bytes: usize,
    shift: u32,
    depth: u8,
}

impl Layout {
    fn from_frame(frame: &Frame) -> Result<Layout, String> {
        // SAFETY: the frame is valid; a format within the enumeration that these bindings were made from
        // is one of its values.
        let descriptor = unsafe {
            let format = (*frame.0).format;
            if !(0..AV_PIX_FMT_NB as c_int).contains(&format) || (*frame.0).data[0].is_null() {
                return Err("a picture without samples".to_string());
            }
            let format = std::mem::transmute::<c_int, AVPixelFormat>(format);
            ffi::av_pix_fmt_desc_get(format).as_ref()
        };
        let descriptor = descriptor.ok_or("an unknown pixel format")?;
        let luma = descriptor.comp[0];
        let bytes = usize::try_from(luma.step).unwrap_or(0);
        let big_endian = descriptor.flags & ffi::AV_PIX_FMT_FLAG_BE as u64 != 0;
        let rgb = descriptor.flags & ffi::AV_PIX_FMT_FLAG_RGB as u64 != 0;
        if !(1..=2).contains(&bytes) || luma.plane != 0 || luma.offset != 0 || big_endian || rgb {
            return Err("a pixel format that holds no plane of luma".to_string());
        }
        Ok(Layout {
            bytes,
            shift: u32::try_from(luma.shift).unwrap_or(0),
            depth: u8::try_from(luma.depth).unwrap_or(0),
        })
    }
}
