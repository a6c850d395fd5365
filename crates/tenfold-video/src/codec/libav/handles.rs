//! libavcodec's objects, each freed when its owner is dropped.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use ffmpeg_sys_next as ffi;

/// The text of libavcodec for an error number.
pub(super) fn text(code: c_int) -> String {
    let mut buffer = [0 as std::ffi::c_char; 128];
    // SAFETY: the buffer is as long as stated and stays zero-terminated at its end, which is never written.
    unsafe {
        ffi::av_strerror(code, buffer.as_mut_ptr(), buffer.len() - 1);
        CStr::from_ptr(buffer.as_ptr()).to_string_lossy().into_owned()
    }
}

/// The number as an error where it is negative.
pub(super) fn check(code: c_int) -> Result<c_int, String> {
    if code < 0 { Err(text(code)) } else { Ok(code) }
}

/// Libraries print nothing of their own: what matters comes back as an error.
pub(super) fn silence() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: sets a global number.
    ONCE.call_once(|| unsafe { ffi::av_log_set_level(ffi::AV_LOG_QUIET) });
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $alloc:expr, $free:path) => {
        $(#[$doc])*
        pub(super) struct $name(pub(super) *mut $raw);

        impl $name {
            pub(super) fn new() -> Result<Self, String> {
                // SAFETY: allocation has no preconditions.
                let raw = unsafe { $alloc };
                if raw.is_null() { Err("out of memory".to_string()) } else { Ok($name(raw)) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the pointer came from the matching allocation and is dropped once.
                unsafe { $free(&mut self.0) }
            }
        }
    };
}

handle!(
    /// A picture.
    Frame, ffi::AVFrame, ffi::av_frame_alloc(), ffi::av_frame_free
);
handle!(
    /// Coded bytes.
    Packet, ffi::AVPacket, ffi::av_packet_alloc(), ffi::av_packet_free
);

impl Packet {
    /// A packet with a copy of the bytes, padded as decoders want it.
    pub(super) fn from_parts(parts: &[&[u8]]) -> Result<Self, String> {
        let packet = Packet::new()?;
        let len = parts.iter().map(|p| p.len()).sum::<usize>();
        let len = c_int::try_from(len).map_err(|_| "a picture is too large".to_string())?;
        // SAFETY: the packet is valid and empty; av_new_packet gives it `len` writable bytes.
        unsafe {
            check(ffi::av_new_packet(packet.0, len))?;
            let mut at = (*packet.0).data;
            for part in parts {
                ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        Ok(packet)
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: data and size describe the packet's own buffer, which lives as long as the packet.
        unsafe {
            let p = &*self.0;
            match usize::try_from(p.size) {
                Ok(size) if !p.data.is_null() => std::slice::from_raw_parts(p.data, size),
                _ => &[],
            }
        }
    }
}

/// A codec's state.
pub(super) struct Context(pub(super) *mut ffi::AVCodecContext);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the pointer came from avcodec_alloc_context3 and is dropped once.
        unsafe { ffi::avcodec_free_context(&mut self.0) }
    }
}

impl Context {
    pub(super) fn new(codec: *const ffi::AVCodec) -> Result<Self, String> {
        // SAFETY: the codec is one that libavcodec returned.
        let raw = unsafe { ffi::avcodec_alloc_context3(codec) };
        if raw.is_null() { Err("out of memory".to_string()) } else { Ok(Context(raw)) }
    }

    /// Opens the codec. Options that it does not know are an error: the library is too old for us.
    pub(super) fn open(&mut self, options: &[(&str, String)]) -> Result<(), String> {
        let mut dict: *mut ffi::AVDictionary = ptr::null_mut();
        let mut left = Vec::new();
        let code;
        // SAFETY: the strings outlive the calls, which copy them; the dictionary is freed below.
        unsafe {
            for (key, value) in options {
                let (Ok(key), Ok(value)) = (CString::new(*key), CString::new(value.as_str())) else {
                    continue;
                };
                ffi::av_dict_set(&mut dict, key.as_ptr(), value.as_ptr(), 0);
            }
            code = ffi::avcodec_open2(self.0, ptr::null(), &mut dict);
            let mut entry: *mut ffi::AVDictionaryEntry = ptr::null_mut();
            loop {
                entry = ffi::av_dict_get(dict, c"".as_ptr(), entry, ffi::AV_DICT_IGNORE_SUFFIX as c_int);
                if entry.is_null() {
                    break;
                }
                left.push(CStr::from_ptr((*entry).key).to_string_lossy().into_owned());
            }
            ffi::av_dict_free(&mut dict);
        }
        check(code)?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("the library is too old: it has no option {}", left.join(", ")))
        }
    }
}

/// A counted reference, as hardware devices and pools have it.
pub(super) struct Buffer(pub(super) *mut ffi::AVBufferRef);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the reference is ours alone.
        unsafe { ffi::av_buffer_unref(&mut self.0) }
    }
}

impl Buffer {
    /// One more reference to the same thing, for a field that frees its own.
    pub(super) fn share(&self) -> *mut ffi::AVBufferRef {
        // SAFETY: the reference is valid.
        unsafe { ffi::av_buffer_ref(self.0) }
    }
}
