//! Pictures through an encoder.

use std::ffi::c_int;

use ffmpeg_sys_next as ffi;

use super::super::{Chroma, Coded, Format, Quality, Settings, Standard, stream};
use super::handles::{Buffer, Context, Packet, check};
use super::options;
use super::spec::{self, LibavEncoder};
use super::{device, formats};
use crate::error::{Error, Result};

/// Codes pictures one after the other.
pub(super) fn run(encoder: &LibavEncoder, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
    let failed = |reason: String| Error::Codec { name: encoder.name.to_string(), reason };
    let mut session = Session::open(encoder, settings)?;
    let mut packets = Vec::with_capacity(pictures.len());
    for (i, samples) in pictures.iter().enumerate() {
        session.send(Some((samples, i as i64))).map_err(failed)?;
        session.receive(&mut packets).map_err(failed)?;
    }
    session.send(None).map_err(failed)?;
    session.receive(&mut packets).map_err(failed)?;
    if packets.len() != pictures.len() {
        return Err(failed(format!("{} pictures came back of {}", packets.len(), pictures.len())));
    }
    sort(encoder.standard, &session.extradata(), packets).map_err(failed)
}

/// One small picture, to see whether the encoder really is there.
pub(super) fn probe(encoder: &LibavEncoder, depth: u8, chroma: Chroma) -> Result<()> {
    let format = Format { width: 256, height: 256, depth, chroma };
    let settings = Settings {
        format,
        quality: Quality::Qp(encoder.max_qp / 2),
        effort: tenfold::Effort::Fast,
        inter: false,
    };
    let samples = vec![1u16 << (depth - 1); format.samples()];
    run(encoder, &settings, &[&samples]).map(|_| ()).map_err(|e| match e {
        Error::Codec { name, reason } | Error::NotAvailable { name, reason } => {
            Error::NotAvailable { reason: format!("{reason}; {}", spec::needs(encoder.name)), name }
        }
        other => other,
    })
}

/// Parameter sets apart, everything that is neither them nor a picture gone.
fn sort(standard: Standard, extradata: &[u8], packets: Vec<Vec<u8>>) -> Result<Coded, String> {
    let mut parameter_sets = match standard {
        // Extradata has a box of its own around the sequence header in some libraries; every picture that
        // stands alone repeats it anyway.
        Standard::Av1 => Vec::new(),
        _ => stream::split(standard, extradata)?.0,
    };
    let mut pictures = Vec::with_capacity(packets.len());
    for packet in &packets {
        let (sets, picture) = stream::split(standard, packet)?;
        if parameter_sets.is_empty() {
            parameter_sets = sets;
        } else if !sets.is_empty() && sets != parameter_sets {
            return Err("the parameter sets changed between pictures".to_string());
        }
        pictures.push(picture);
    }
    if parameter_sets.is_empty() && !packets.is_empty() {
        return Err("no parameter sets in the stream".to_string());
    }
    Ok(Coded { parameter_sets, pictures })
}

/// An open encoder.
struct Session<'a> {
    context: Context,
    pixel: ffi::AVPixelFormat,
    /// The pool of frames on a device, where there is one.
    pool: Option<Buffer>,
    settings: &'a Settings,
}

impl<'a> Session<'a> {
    fn open(encoder: &LibavEncoder, settings: &'a Settings) -> Result<Self> {
        let missing = |reason: String| Error::NotAvailable { name: encoder.name.to_string(), reason };
        let codec = formats::find(encoder)?;
        let format = &settings.format;
        let pixel = formats::pick(encoder, format.depth, format.chroma)?;
        let mut context = Context::new(codec).map_err(missing)?;
        let qp = options::qp(settings) as c_int;
        // SAFETY: the context is valid and not yet open; sides were checked against the encoder's limits.
        unsafe {
            let c = &mut *context.0;
            c.width = format.width as c_int;
            c.height = format.height as c_int;
            c.pix_fmt = pixel;
            c.time_base = ffi::AVRational { num: 1, den: 25 };
            c.framerate = ffi::AVRational { num: 25, den: 1 };
            c.thread_count = 1;
            c.max_b_frames = 0;
            // SVT counts the pictures of a group, the others those that follow a key picture.
            c.gop_size = match (settings.inter, encoder.library) {
                (true, _) => 250,
                (false, "libsvtav1") => 1,
                (false, _) => 0,
            };
            c.flags |= ffi::AV_CODEC_FLAG_GLOBAL_HEADER as c_int;
            if matches!(encoder.name, "qsv" | "vaapi") {
                c.global_quality = if encoder.name == "qsv" { qp * ffi::FF_QP2LAMBDA } else { qp };
                c.flags |= if encoder.name == "qsv" { ffi::AV_CODEC_FLAG_QSCALE as c_int } else { 0 };
            }
            if encoder.library == "libaom-av1" {
                (c.qmin, c.qmax) = (qp, qp);
            }
        }
        let pool = match encoder.device {
            Some(device) => Some(device.attach(&mut context, pixel, format).map_err(missing)?),
            None => None,
        };
        context.open(&options::list(encoder, settings)).map_err(missing)?;
        Ok(Session { context, pixel, pool, settings })
    }

    /// Sends a picture with its number, or the end.
    fn send(&mut self, picture: Option<(&[u16], i64)>) -> Result<(), String> {
        let Some((samples, number)) = picture else {
            // SAFETY: the context is open; a null frame starts draining.
            return check(unsafe { ffi::avcodec_send_frame(self.context.0, std::ptr::null()) }).map(|_| ());
        };
        let frame = formats::allocate(self.pixel, &self.settings.format)?;
        formats::fill(&frame, samples, &self.settings.format)?;
        // SAFETY: the frame is valid.
        unsafe { (*frame.0).pts = number };
        let frame = match &self.pool {
            Some(pool) => device::upload(pool, &frame)?,
            None => frame,
        };
        // SAFETY: context and frame are valid; the encoder takes a reference of its own.
        check(unsafe { ffi::avcodec_send_frame(self.context.0, frame.0) }).map(|_| ())
    }

    /// Takes all packets that are ready.
    fn receive(&mut self, packets: &mut Vec<Vec<u8>>) -> Result<(), String> {
        loop {
            let packet = Packet::new()?;
            // SAFETY: the context is open, the packet is empty.
            let code = unsafe { ffi::avcodec_receive_packet(self.context.0, packet.0) };
            if code == ffi::AVERROR(ffi::EAGAIN) || code == ffi::AVERROR_EOF {
                return Ok(());
            }
            check(code)?;
            packets.push(packet.bytes().to_vec());
        }
    }

    fn extradata(&self) -> Vec<u8> {
        // SAFETY: extradata and its size describe a buffer of the context.
        unsafe {
            let c = &*self.context.0;
            match usize::try_from(c.extradata_size) {
                Ok(size) if !c.extradata.is_null() => std::slice::from_raw_parts(c.extradata, size).to_vec(),
                _ => Vec::new(),
            }
        }
    }
}
