//! Devices that libavcodec reaches through a context of its own: created, given frames, read back.

use std::ffi::c_int;
use std::ptr;

use ffmpeg_sys_next as ffi;
use ffmpeg_sys_next::{AVHWDeviceType, AVPixelFormat};

use super::super::Format;
use super::handles::{Buffer, Context, Frame, check};

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// Linux video acceleration: AMD and Intel.
    Vaapi,
    /// Vulkan video: any vendor.
    Vulkan,
    /// NVIDIA, decoding through libavcodec's own parsers.
    Cuda,
}

impl Device {
    fn kind(self) -> AVHWDeviceType {
        match self {
            Device::Vaapi => AVHWDeviceType::AV_HWDEVICE_TYPE_VAAPI,
            Device::Vulkan => AVHWDeviceType::AV_HWDEVICE_TYPE_VULKAN,
            Device::Cuda => AVHWDeviceType::AV_HWDEVICE_TYPE_CUDA,
        }
    }

    /// The format of frames that live on the device.
    pub(super) fn pixel(self) -> AVPixelFormat {
        match self {
            Device::Vaapi => AVPixelFormat::AV_PIX_FMT_VAAPI,
            Device::Vulkan => AVPixelFormat::AV_PIX_FMT_VULKAN,
            Device::Cuda => AVPixelFormat::AV_PIX_FMT_CUDA,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Device::Vaapi => "no VAAPI device",
            Device::Vulkan => "no Vulkan device with video queues",
            Device::Cuda => "no CUDA device",
        }
    }

    /// Opens the default device.
    pub(super) fn open(self) -> Result<Buffer, String> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` receives a reference that we own; null arguments mean the default device.
        let code =
            unsafe { ffi::av_hwdevice_ctx_create(&mut raw, self.kind(), ptr::null(), ptr::null_mut(), 0) };
        check(code).map_err(|e| format!("{}: {e}", self.describe()))?;
        Ok(Buffer(raw))
    }

    /// Prepares an encoder to take frames of this device, uploaded from `software`.
    pub(super) fn attach(
        self,
        context: &mut Context,
        software: AVPixelFormat,
        format: &Format,
    ) -> Result<Buffer, String> {
        let device = self.open()?;
        // SAFETY: the frames context is ours until init succeeds; the codec gets a reference of its own.
        unsafe {
            let raw = ffi::av_hwframe_ctx_alloc(device.0);
            if raw.is_null() {
                return Err("out of memory".to_string());
            }
            let frames = Buffer(raw);
            let inside = (*frames.0).data.cast::<ffi::AVHWFramesContext>();
            (*inside).format = self.pixel();
            (*inside).sw_format = software;
            (*inside).width = format.width as c_int;
            (*inside).height = format.height as c_int;
            (*inside).initial_pool_size = 8;
            check(ffi::av_hwframe_ctx_init(frames.0))?;
            (*context.0).pix_fmt = self.pixel();
            (*context.0).hw_frames_ctx = frames.share();
            Ok(frames)
        }
    }
}

/// A copy of a frame on the device.
pub(super) fn upload(frames: &Buffer, frame: &Frame) -> Result<Frame, String> {
    let up = Frame::new()?;
    // SAFETY: both frames are valid; the pool belongs to an initialised frames context.
    unsafe {
        check(ffi::av_hwframe_get_buffer(frames.0, up.0, 0))?;
        check(ffi::av_hwframe_transfer_data(up.0, frame.0, 0))?;
        (*up.0).pts = (*frame.0).pts;
    }
    Ok(up)
}

/// The frame itself where it is in memory, a copy where it is on a device.
pub(super) fn download(frame: Frame) -> Result<Frame, String> {
    // SAFETY: the frame is valid.
    unsafe {
        if (*frame.0).hw_frames_ctx.is_null() {
            return Ok(frame);
        }
        let down = Frame::new()?;
        check(ffi::av_hwframe_transfer_data(down.0, frame.0, 0))?;
        (*down.0).pts = (*frame.0).pts;
        (*down.0).decode_error_flags = (*frame.0).decode_error_flags;
        (*down.0).flags = (*frame.0).flags;
        // The device's surface may be larger than the picture.
        (*down.0).width = (*frame.0).width;
        (*down.0).height = (*frame.0).height;
        Ok(down)
    }
}
