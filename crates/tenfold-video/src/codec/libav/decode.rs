//! Pictures out of a decoder.

use std::ffi::{CString, c_int};

use ffmpeg_sys_next as ffi;

use super::super::{Chroma, Format, stream};
use super::handles::{self, Buffer, Context, Frame, Packet, check};
use super::spec::{LibavDecoder, needs};
use super::{device, formats};
use crate::error::{Error, Result};

/// Samples beyond the picture's own that a decoder may add on each side to fill its blocks.
const MARGIN: usize = 256;

/// Decodes pictures one after the other.
pub(super) fn run(
    decoder: &LibavDecoder,
    format: &Format,
    parameter_sets: &[u8],
    pictures: &[&[u8]],
    out: &mut [u16],
) -> Result<()> {
    let broken = |reason: String| Error::Stream { standard: decoder.standard, reason };
    if out.len() != format.samples().saturating_mul(pictures.len()) {
        return Err(broken(format!("{} samples for {} pictures", out.len(), pictures.len())));
    }
    stream::check(decoder.standard, format, parameter_sets, pictures)?;
    let mut session = Session::open(decoder, format)?;
    let mut rooms = out.chunks_exact_mut(format.samples().max(1));
    for (i, picture) in pictures.iter().enumerate() {
        // Parameter sets go before every picture, so that each stands alone whatever the decoder keeps.
        let packet = Packet::from_parts(&[parameter_sets, picture]).map_err(broken)?;
        session.send(Some((packet, i as i64))).map_err(broken)?;
        session.receive(format, &mut rooms).map_err(broken)?;
    }
    session.send(None).map_err(broken)?;
    session.receive(format, &mut rooms).map_err(broken)?;
    match rooms.len() {
        0 => Ok(()),
        missing => Err(broken(format!("{missing} of {} pictures are missing", pictures.len()))),
    }
}

/// Whether the decoder is there. That a library lists a hardware decoder says nothing of the machine: those
/// decode a picture of middle gray.
pub(super) fn probe(decoder: &LibavDecoder) -> Result<()> {
    let format = Format { width: 256, height: 256, depth: 8, chroma: Chroma::Constant };
    if !decoder.is_hardware() {
        return Session::open(decoder, &format).map(|_| ());
    }
    let gray = stream::gray(decoder.standard);
    let mut out = vec![0; format.samples()];
    let missing = |reason: String| Error::NotAvailable { name: decoder.name.to_string(), reason };
    let (sets, picture) = stream::split(decoder.standard, gray).map_err(missing)?;
    let found = run(decoder, &format, &sets, &[&picture], &mut out);
    found.map_err(|e| match e {
        Error::Stream { reason, .. } | Error::NotAvailable { reason, .. } => {
            missing(format!("{reason}; {}", needs(decoder.name)))
        }
        other => other,
    })?;
    if out.iter().all(|&s| s == 128) {
        Ok(())
    } else {
        Err(missing("a test picture decodes to wrong samples".into()))
    }
}

/// An open decoder.
struct Session {
    context: Context,
    _device: Option<Buffer>,
    on_device: bool,
}

impl Session {
    fn open(decoder: &LibavDecoder, format: &Format) -> Result<Self> {
        handles::silence();
        let missing = |reason: String| Error::NotAvailable { name: decoder.name.to_string(), reason };
        let absent = || {
            format!(
                "this machine's libavcodec has no decoder {}; install an FFmpeg that has it",
                decoder.library
            )
        };
        let name = CString::new(decoder.library).map_err(|_| missing(absent()))?;
        // SAFETY: the name is a valid string; the result is null or lives for ever.
        let codec = unsafe { ffi::avcodec_find_decoder_by_name(name.as_ptr()) };
        if codec.is_null() {
            return Err(missing(absent()));
        }
        let mut context = Context::new(codec).map_err(missing)?;
        let device = match decoder.device {
            Some(device) => Some(device.open().map_err(missing)?),
            None => None,
        };
        // SAFETY: the context is valid and not yet open.
        unsafe {
            let c = &mut *context.0;
            c.thread_count = 1;
            // The decoder's own limit: no stream makes it allocate larger pictures than ours are.
            let pixels = (format.width + MARGIN).saturating_mul(format.height + MARGIN);
            c.max_pixels = i64::try_from(pixels).unwrap_or(i64::MAX);
            c.err_recognition =
                (ffi::AV_EF_EXPLODE | ffi::AV_EF_CRCCHECK | ffi::AV_EF_BITSTREAM | ffi::AV_EF_BUFFER)
                    as c_int;
            c.flags |= ffi::AV_CODEC_FLAG_LOW_DELAY as c_int;
            c.pkt_timebase = ffi::AVRational { num: 1, den: 25 };
            if let Some(device) = &device {
                c.hw_device_ctx = device.share();
            }
        }
        let options = match decoder.library {
            "libdav1d" => vec![("filmgrain", "0".to_string())],
            _ => Vec::new(),
        };
        context.open(&options).map_err(missing)?;
        Ok(Session { context, on_device: device.is_some(), _device: device })
    }

    /// Sends a coded picture with its number, or the end.
    fn send(&mut self, picture: Option<(Packet, i64)>) -> Result<(), String> {
        let code = match picture {
            // SAFETY: the context is open; a null packet starts draining.
            None => unsafe { ffi::avcodec_send_packet(self.context.0, std::ptr::null()) },
            // SAFETY: context and packet are valid; the decoder takes a reference of its own.
            Some((packet, number)) => unsafe {
                (*packet.0).pts = number;
                (*packet.0).dts = number;
                ffi::avcodec_send_packet(self.context.0, packet.0)
            },
        };
        check(code).map(|_| ())
    }

    /// Takes all pictures that are ready.
    fn receive(
        &mut self,
        format: &Format,
        rooms: &mut std::slice::ChunksExactMut<'_, u16>,
    ) -> Result<(), String> {
        loop {
            let frame = Frame::new()?;
            // SAFETY: the context is open, the frame is empty.
            let code = unsafe { ffi::avcodec_receive_frame(self.context.0, frame.0) };
            if code == ffi::AVERROR(ffi::EAGAIN) || code == ffi::AVERROR_EOF {
                return Ok(());
            }
            check(code)?;
            // SAFETY: the frame was filled.
            let (damaged, placed) = unsafe {
                let f = &*frame.0;
                let bad = f.decode_error_flags != 0 || f.flags & ffi::AV_FRAME_FLAG_CORRUPT as c_int != 0;
                (bad, !f.hw_frames_ctx.is_null())
            };
            if damaged {
                return Err("a picture is damaged".to_string());
            }
            if self.on_device && !placed {
                return Err("the device does not decode this kind of stream".to_string());
            }
            let room = rooms.next().ok_or("more pictures than there should be")?;
            formats::read(&device::download(frame)?, format, room)?;
        }
    }
}
