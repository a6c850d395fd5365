//! nvCOMP, loaded from where the user says.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::path::Path;

use libloading::Library;

use super::error::NvcompError;
use super::ffi::{self, Alignments, CompressOptions, DecompressOptions, Properties, Status};

/// The major version that `ffi` describes.
const KNOWN: u32 = 6;

/// The library's functions. It uses whichever context is current in the calling thread: that of a
/// [`tenfold_cuda::Device`] is the device's primary one, which is the one that the CUDA runtime works in.
pub(in crate::bench::cuda) struct Nvcomp {
    pub(super) properties: Properties,
    pub(super) status_string: ffi::GetStatusString,
    pub(super) compress_alignments: ffi::CompressAlignments,
    pub(super) decompress_alignments: ffi::DecompressAlignments,
    pub(super) max_output: ffi::CompressMaxOutput,
    pub(super) compress_temp: ffi::CompressTemp,
    pub(super) decompress_temp: ffi::DecompressTemp,
    pub(super) compress: ffi::Compress,
    pub(super) decompress: ffi::Decompress,
}

impl Nvcomp {
    /// Loads the library; needs no device.
    pub fn open(path: &Path) -> Result<Nvcomp, NvcompError> {
        // SAFETY: runs the initialisers of a library that the user named for this.
        let library = unsafe { Library::new(path) }
            .map_err(|e| NvcompError::Load { path: path.to_path_buf(), reason: e.to_string() })?;
        // Never unloaded: the CUDA runtime within it cleans up when the process ends, and not before.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: its type is the same in every version.
        let get_properties: ffi::GetProperties = unsafe { find(library, path, "nvcompGetProperties")? };
        let mut properties = Properties::default();
        // SAFETY: writes one such structure.
        let status = unsafe { get_properties(&mut properties) };
        if status != ffi::SUCCESS || properties.version / 1000 != KNOWN {
            let found = version(properties.version);
            return Err(NvcompError::Version { path: path.to_path_buf(), found, known: KNOWN });
        }
        // SAFETY: types as the headers of this major version have them.
        unsafe {
            Ok(Nvcomp {
                properties,
                status_string: find(library, path, "nvcompGetStatusString")?,
                compress_alignments: find(library, path, "nvcompBatchedANSCompressGetRequiredAlignments")?,
                decompress_alignments: find(
                    library,
                    path,
                    "nvcompBatchedANSDecompressGetRequiredAlignments",
                )?,
                max_output: find(library, path, "nvcompBatchedANSCompressGetMaxOutputChunkSize")?,
                compress_temp: find(library, path, "nvcompBatchedANSCompressGetTempSize")?,
                decompress_temp: find(library, path, "nvcompBatchedANSDecompressGetTempSize")?,
                compress: find(library, path, "nvcompBatchedANSCompressAsync")?,
                decompress: find(library, path, "nvcompBatchedANSDecompressAsync")?,
            })
        }
    }

    /// The library and what it was built with.
    pub fn describe(&self) -> String {
        format!("nvCOMP {}, built with CUDA {}", version(self.properties.version), self.cuda())
    }

    fn cuda(&self) -> String {
        let v = self.properties.cudart_version;
        format!("{}.{}", v / 1000, v % 1000 / 10)
    }

    /// The most restrictive alignment of any memory of both ways.
    pub(super) fn alignment(
        &self,
        there: CompressOptions,
        back: DecompressOptions,
    ) -> Result<usize, NvcompError> {
        let (mut to, mut from) = (Alignments::default(), Alignments::default());
        // SAFETY: each writes one such structure.
        let status = unsafe { (self.compress_alignments)(there, &mut to) };
        self.check("nvcompBatchedANSCompressGetRequiredAlignments", status)?;
        // SAFETY: as above.
        let status = unsafe { (self.decompress_alignments)(back, &mut from) };
        self.check("nvcompBatchedANSDecompressGetRequiredAlignments", status)?;
        let all = [to.input, to.output, to.temp, from.input, from.output, from.temp];
        Ok(all.into_iter().max().unwrap_or(1).max(1))
    }

    /// Room that a compressed chunk may need.
    pub(super) fn max_output(&self, chunk: usize, options: CompressOptions) -> Result<usize, NvcompError> {
        let mut bytes = 0;
        // SAFETY: writes one number.
        let status = unsafe { (self.max_output)(chunk, options, &mut bytes) };
        self.check("nvcompBatchedANSCompressGetMaxOutputChunkSize", status)?;
        Ok(bytes)
    }

    /// Temporary memory that compression needs.
    pub(super) fn compress_temp(
        &self,
        chunks: (usize, usize),
        total: usize,
        options: CompressOptions,
        stream: ffi::RawStream,
    ) -> Result<usize, NvcompError> {
        let mut bytes = 0;
        let (count, largest) = chunks;
        // SAFETY: writes one number; the stream is not used.
        let status = unsafe { (self.compress_temp)(count, largest, options, &mut bytes, total, stream) };
        self.check("nvcompBatchedANSCompressGetTempSize", status)?;
        Ok(bytes)
    }

    /// Temporary memory that decompression needs.
    pub(super) fn decompress_temp(
        &self,
        chunks: (usize, usize),
        total: usize,
        options: DecompressOptions,
        stream: ffi::RawStream,
    ) -> Result<usize, NvcompError> {
        let mut bytes = 0;
        let (count, largest) = chunks;
        // SAFETY: writes one number; the stream is not used.
        let status = unsafe { (self.decompress_temp)(count, largest, options, &mut bytes, total, stream) };
        self.check("nvcompBatchedANSDecompressGetTempSize", status)?;
        Ok(bytes)
    }

    /// Sorts the answer of a call.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), NvcompError> {
        if status == ffi::SUCCESS {
            return Ok(());
        }
        let hint = match status {
            ffi::CUDA_ERROR => format!(
                "; the library was built with CUDA {}: is the driver of that major version or newer?",
                self.cuda()
            ),
            _ => String::new(),
        };
        Err(NvcompError::Refused { call, status, reason: self.words(status), hint })
    }

    /// The answers of all chunks of a call that is over.
    pub(super) fn check_chunks(&self, call: &'static str, statuses: &[Status]) -> Result<(), NvcompError> {
        let mut bad = statuses.iter().filter(|&&s| s != ffi::SUCCESS);
        let Some(&first) = bad.next() else {
            return Ok(());
        };
        let (failed, chunks) = (1 + bad.count(), statuses.len());
        Err(NvcompError::Chunks { call, failed, chunks, reason: self.words(first) })
    }

    fn words(&self, status: Status) -> String {
        // SAFETY: takes any number and gives a string that lives as long as the library.
        let text = unsafe { (self.status_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: as above; it ends with a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A function of the library.
///
/// # Safety
/// `T` is the type of a pointer to that function.
unsafe fn find<T: Copy>(
    library: &'static Library,
    path: &Path,
    symbol: &'static str,
) -> Result<T, NvcompError> {
    // SAFETY: the caller's; the library is never unloaded.
    let found = unsafe { library.get::<T>(symbol) };
    found.map(|f| *f).map_err(|_| NvcompError::NotNvcomp { path: path.to_path_buf(), symbol })
}

fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 1000, number % 1000 / 100, number % 100)
}
