//! nvCOMP's C interface as far as ANS needs it, written after the headers of version 6.0.
//!
//! Structures of options go by value and change between major versions; `library` asks for the version before it
//! calls anything that takes one. Enumerations of C are `c_int`, pointers to device memory are plain addresses of it.

use std::ffi::{c_char, c_int, c_void};

/// `nvcompStatus_t`.
pub(super) type Status = c_int;
pub(super) const SUCCESS: Status = 0;
pub(super) const CUDA_ERROR: Status = 1000;

/// `nvcompANSType_t`: there is but one.
pub(super) const RANS: c_int = 0;

/// `nvcompType_t`: bytes without a meaning.
pub(super) const TYPE_UCHAR: c_int = 1;
/// All floats of two bytes, bf16 among them.
pub(super) const TYPE_FLOAT16: c_int = 10;
/// Whatever a compressed chunk says it is.
pub(super) const TYPE_BITS: c_int = 0xff;

/// `nvcompDecompressBackend_t`: the library chooses.
pub(super) const BACKEND_DEFAULT: c_int = 0;

/// Largest chunk that ANS compresses, in bytes. All that is measured is smaller, which a test holds against it.
#[cfg(test)]
pub(super) const MAX_CHUNK: usize = 1 << 24;

/// Memory of the device, or null.
pub(super) type DevicePointer = *mut c_void;
/// `cudaStream_t`, which is the driver's `CUstream`.
pub(super) type RawStream = *mut c_void;

/// `nvcompProperties_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Properties {
    /// Major × 1000 + minor × 100 + patch.
    pub version: u32,
    /// Major × 1000 + minor × 10.
    pub cudart_version: u32,
}

/// `nvcompAlignmentRequirements_t`, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alignments {
    pub input: usize,
    pub output: usize,
    pub temp: usize,
}

/// `nvcompBatchedANSCompressOpts_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct CompressOptions {
    pub ans: c_int,
    pub data_type: c_int,
    /// 0 (that is 8), or a power of two from 4 to 64.
    pub max_sub_chunk_count: u8,
    /// 0 (that is 2), 1 or 2.
    pub states_per_lane: u8,
    /// One in 2^n symbols is counted; 0 to 8.
    pub histogram_reduction_log2: u8,
    /// Zeros.
    pub reserved: [u8; 53],
}

/// `nvcompBatchedANSDecompressOpts_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DecompressOptions {
    pub backend: c_int,
    pub data_type: c_int,
    /// 0: as the chunks say; otherwise no less than they have.
    pub max_sub_chunk_count: u8,
    /// 0: as the chunks say; otherwise just what they have.
    pub states_per_lane: u8,
    /// 1: chunks are believed.
    pub skip_validate: u8,
    /// Zeros.
    pub reserved: [u8; 53],
}

/// `nvcompGetProperties(properties)`.
pub(super) type GetProperties = unsafe extern "C" fn(*mut Properties) -> Status;

/// `nvcompGetStatusString(status)`.
pub(super) type GetStatusString = unsafe extern "C" fn(Status) -> *const c_char;

/// `nvcompBatchedANSCompressGetRequiredAlignments(options, alignments)`.
pub(super) type CompressAlignments = unsafe extern "C" fn(CompressOptions, *mut Alignments) -> Status;

/// `nvcompBatchedANSDecompressGetRequiredAlignments(options, alignments)`.
pub(super) type DecompressAlignments = unsafe extern "C" fn(DecompressOptions, *mut Alignments) -> Status;

/// `nvcompBatchedANSCompressGetMaxOutputChunkSize(largest chunk, options, bytes)`.
pub(super) type CompressMaxOutput = unsafe extern "C" fn(usize, CompressOptions, *mut usize) -> Status;

/// `nvcompBatchedANSCompressGetTempSize(chunks, largest chunk, options, bytes, total, stream)`.
pub(super) type CompressTemp =
    unsafe extern "C" fn(usize, usize, CompressOptions, *mut usize, usize, RawStream) -> Status;

/// `nvcompBatchedANSDecompressGetTempSize(chunks, largest chunk, options, bytes, total, stream)`.
pub(super) type DecompressTemp =
    unsafe extern "C" fn(usize, usize, DecompressOptions, *mut usize, usize, RawStream) -> Status;

/// `nvcompBatchedANSCompressAsync`.
pub(super) type Compress = unsafe extern "C" fn(
    // Pointers to chunks, and their bytes.
    DevicePointer,
    DevicePointer,
    // Largest chunk, and the number of chunks: in this order here.
    usize,
    usize,
    // Temporary memory, and its bytes.
    DevicePointer,
    usize,
    // Pointers to room for compressed chunks; their bytes come back.
    DevicePointer,
    DevicePointer,
    CompressOptions,
    // A status for each chunk comes back.
    DevicePointer,
    RawStream,
) -> Status;

/// `nvcompBatchedANSDecompressAsync`.
pub(super) type Decompress = unsafe extern "C" fn(
    // Pointers to compressed chunks, and their bytes.
    DevicePointer,
    DevicePointer,
    // Bytes of the room for each chunk; bytes written come back.
    DevicePointer,
    DevicePointer,
    // The number of chunks.
    usize,
    // Temporary memory, and its bytes.
    DevicePointer,
    usize,
    // Pointers to that room.
    DevicePointer,
    DecompressOptions,
    // A status for each chunk comes back.
    DevicePointer,
    RawStream,
) -> Status;

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use super::*;

    #[test]
    fn structures_lie_as_the_headers_say() {
        assert_eq!((size_of::<Status>(), size_of::<Properties>(), size_of::<Alignments>()), (4, 8, 24));
        assert_eq!(offset_of!(Properties, cudart_version), 4);
        assert_eq!((offset_of!(Alignments, output), offset_of!(Alignments, temp)), (8, 16));

        type C = CompressOptions;
        assert_eq!((size_of::<C>(), align_of::<C>()), (64, 4));
        assert_eq!((offset_of!(C, ans), offset_of!(C, data_type)), (0, 4));
        assert_eq!((offset_of!(C, max_sub_chunk_count), offset_of!(C, states_per_lane)), (8, 9));
        assert_eq!((offset_of!(C, histogram_reduction_log2), offset_of!(C, reserved)), (10, 11));

        type D = DecompressOptions;
        assert_eq!((size_of::<D>(), align_of::<D>()), (64, 4));
        assert_eq!((offset_of!(D, backend), offset_of!(D, data_type)), (0, 4));
        assert_eq!((offset_of!(D, max_sub_chunk_count), offset_of!(D, states_per_lane)), (8, 9));
        assert_eq!((offset_of!(D, skip_validate), offset_of!(D, reserved)), (10, 11));
    }
}
