//! What can go wrong between this bench and nvCOMP.

use std::path::PathBuf;

use tenfold::engine::ErrorKind;

/// Why nvCOMP could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvcompError {
    /// No library at that path, or one that does not load.
    #[error("cannot load nvCOMP from {path}: {reason}")]
    Load {
        /// As the user gave it.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A library, but another one.
    #[error("{path} is not nvCOMP: it has no {symbol}")]
    NotNvcomp {
        /// As the user gave it.
        path: PathBuf,
        /// A function that nvCOMP has.
        symbol: &'static str,
    },
    /// A version whose structures differ from those that are known here.
    #[error("{path} is nvCOMP {found}; this bench knows the interface of version {known} alone")]
    Version {
        /// As the user gave it.
        path: PathBuf,
        /// Version of the library.
        found: String,
        /// Major version that can be measured.
        known: u32,
    },
    /// A call failed at once.
    #[error("{call}: {reason} (status {status}){hint}")]
    Refused {
        /// The function.
        call: &'static str,
        /// Its answer.
        status: i32,
        /// The library's words.
        reason: String,
        /// What may help.
        hint: String,
    },
    /// Some chunks failed on the device.
    #[error("{call}: {failed} of {chunks} chunks failed, the first with: {reason}")]
    Chunks {
        /// The function.
        call: &'static str,
        /// Chunks that failed.
        failed: usize,
        /// All chunks.
        chunks: usize,
        /// What the first of them says.
        reason: String,
    },
    /// Memory is asked for at multiples that an allocation does not promise.
    #[error("nvCOMP asks for memory at multiples of {0} bytes, allocations start at multiples of 256")]
    Alignment(usize),
    /// What came back is not what was compressed.
    #[error("nvCOMP ({0}) gave other bytes back than it was given")]
    RoundTrip(String),
}

impl NvcompError {
    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NvcompError::NotNvcomp { .. } => ErrorKind::Caller,
            NvcompError::Version { .. } | NvcompError::Alignment(_) => ErrorKind::Unsupported,
            NvcompError::RoundTrip(_) => ErrorKind::Data,
            NvcompError::Load { .. } | NvcompError::Refused { .. } | NvcompError::Chunks { .. } => {
                ErrorKind::Environment
            }
        }
    }
}
