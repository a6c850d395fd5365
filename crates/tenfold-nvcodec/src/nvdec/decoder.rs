//! One decoder of the driver.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenfold_cuda::{Device, Stream};

use crate::cuvid::abi::{
    self, Area, CreateInfo, DecodeStatus, DecoderHandle, PicParams, ProcParams, ReconfigureInfo, VideoFormat,
};
use crate::cuvid::{Cuvid, check};
use crate::error::{Error, Result};

/// Pictures that may be mapped at a time.
pub(super) const MAPPED: usize = 3;
/// Pictures that are sent to the engine before the first is waited for. Two keep an engine busy.
pub(super) const SENT: usize = 4;

/// What pictures a decoder decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub codec: c_int,
    pub chroma: c_int,
    pub depth: u8,
    /// As coded: whole blocks.
    pub width: u32,
    pub height: u32,
    /// Surfaces that the stream needs at least.
    pub surfaces: u32,
}

impl Shape {
    pub(super) fn new(format: &VideoFormat) -> Shape {
        Shape {
            codec: format.codec,
            chroma: format.chroma,
            depth: format.luma_depth_minus8.saturating_add(8),
            width: format.coded_width,
            height: format.coded_height,
            surfaces: u32::from(format.min_surfaces).max(SENT as u32 + 1),
        }
    }

    /// About how much of the device's memory a decoder for such pictures takes.
    pub(super) fn bytes(&self) -> u64 {
        let samples = u64::from(self.width) * u64::from(self.height) * 3 / 2;
        let size = if self.depth > 8 { 2 } else { 1 };
        samples * size * (u64::from(self.surfaces) + MAPPED as u64) + (8 << 20)
    }

    fn area(&self) -> Area {
        let side = |v: u32| i16::try_from(v).unwrap_or(i16::MAX);
        Area { left: 0, top: 0, right: side(self.width), bottom: side(self.height) }
    }
}

/// How many decoders are open, and what was done with them since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub open: AtomicUsize,
    pub created: AtomicUsize,
    pub reused: AtomicUsize,
    pub reconfigured: AtomicUsize,
}

/// An open decoder; closed when dropped. Used by one thread at a time.
pub(super) struct Decoder {
    api: &'static Cuvid,
    device: Device,
    handle: DecoderHandle,
    /// What it is set up for now, and the largest it may be set up for.
    pub shape: Shape,
    max: (u32, u32),
    counts: Arc<Counts>,
}

/// A mapped picture.
pub(super) struct Mapped {
    pub address: u64,
    pub pitch: u32,
}

impl Decoder {
    pub(super) fn create(
        api: &'static Cuvid,
        device: &Device,
        counts: &Arc<Counts>,
        shape: Shape,
    ) -> Result<Decoder> {
        device.make_current()?;
        let mut info = CreateInfo {
            width: shape.width.into(),
            height: shape.height.into(),
            decode_surfaces: shape.surfaces.into(),
            codec: shape.codec,
            chroma: shape.chroma,
            flags: abi::CREATE_PREFER_CUVID,
            depth_minus8: u64::from(shape.depth.saturating_sub(8)) as _,
            intra_only: 1,
            max_width: shape.width.into(),
            max_height: shape.height.into(),
            // All that is coded, at its own size: nothing is ever scaled.
            display: shape.area(),
            output: if shape.depth > 8 { abi::SURFACE_P016 } else { abi::SURFACE_NV12 },
            target_width: shape.width.into(),
            target_height: shape.height.into(),
            output_surfaces: MAPPED as _,
            target: shape.area(),
            ..CreateInfo::default()
        };
        let mut handle = ptr::null_mut();
        // SAFETY: both structures live through the call; the context is current.
        check("cuvidCreateDecoder", unsafe { (api.create)(&mut handle, &mut info) })?;
        if handle.is_null() {
            return Err(Error::Call { call: "cuvidCreateDecoder", code: 0, name: "no decoder was returned" });
        }
        counts.open.fetch_add(1, Ordering::AcqRel);
        counts.created.fetch_add(1, Ordering::AcqRel);
        let max = (shape.width, shape.height);
        Ok(Decoder { api, device: device.clone(), handle, shape, max, counts: counts.clone() })
    }

    /// Whether it could be set up for pictures of a shape.
    pub(super) fn can_become(&self, shape: &Shape) -> bool {
        let same = (self.shape.codec, self.shape.chroma, self.shape.depth, self.shape.surfaces);
        same == (shape.codec, shape.chroma, shape.depth, shape.surfaces)
            && shape.width <= self.max.0
            && shape.height <= self.max.1
    }

    /// Sets it up for pictures of another size.
    pub(super) fn reconfigure(&mut self, shape: Shape) -> Result<()> {
        self.device.make_current()?;
        let mut info = ReconfigureInfo {
            width: shape.width,
            height: shape.height,
            target_width: shape.width,
            target_height: shape.height,
            decode_surfaces: shape.surfaces,
            display: shape.area(),
            target: shape.area(),
            ..ReconfigureInfo::default()
        };
        // SAFETY: the decoder is open and idle; the structure lives through the call.
        check("cuvidReconfigureDecoder", unsafe { (self.api.reconfigure)(self.handle, &mut info) })?;
        self.shape = shape;
        self.counts.reconfigured.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Sends a picture to the engine.
    ///
    /// # Safety
    /// `picture` came from the parser, in the call-back that this is called from.
    pub(super) unsafe fn send(&self, picture: *mut PicParams) -> Result<()> {
        // SAFETY: the caller's; the decoder is open.
        check("cuvidDecodePicture", unsafe { (self.api.decode)(self.handle, picture) })
    }

    /// Waits until a picture is decoded and maps it; what the stream has queued comes before.
    pub(super) fn map(&self, index: c_int, stream: Stream) -> Result<Mapped> {
        let mut params = ProcParams { progressive: 1, stream: stream.0, ..ProcParams::default() };
        let (mut address, mut pitch) = (0, 0);
        // SAFETY: the decoder is open and was sent the picture; all places live through the call.
        let code = unsafe { (self.api.map)(self.handle, index, &mut address, &mut pitch, &mut params) };
        check("cuvidMapVideoFrame64", code)?;
        Ok(Mapped { address, pitch })
    }

    /// Gives a mapped picture back; nothing reads it any more.
    pub(super) fn unmap(&self, address: u64) -> Result<()> {
        // SAFETY: the decoder is open and mapped this.
        check("cuvidUnmapVideoFrame64", unsafe { (self.api.unmap)(self.handle, address) })
    }

    /// What the driver says of a decoded picture: an error if it found any, or covered one up. Where it keeps no such record,
    /// the checksum of the samples speaks.
    pub(super) fn verdict(&self, index: c_int) -> Result<Option<&'static str>> {
        let mut status = DecodeStatus::default();
        // SAFETY: the decoder is open; the structure lives through the call.
        let code = unsafe { (self.api.status)(self.handle, index, &mut status) };
        const NOT_SUPPORTED: c_int = 801;
        if code == NOT_SUPPORTED {
            return Ok(None);
        }
        check("cuvidGetDecodeStatus", code)?;
        Ok(match status.status {
            abi::STATUS_ERROR => Some("the engine found an error in it"),
            abi::STATUS_CONCEALED => Some("the engine found an error in it and covered it up"),
            _ => None,
        })
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        if self.device.make_current().is_ok() {
            // SAFETY: opened in `create`; nothing of it is mapped any more. Errors have nowhere to go.
            unsafe { (self.api.destroy)(self.handle) };
        }
        self.counts.open.fetch_sub(1, Ordering::AcqRel);
    }
}
