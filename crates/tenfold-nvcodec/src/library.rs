//! Libraries of NVIDIA's, bound at run time.

use std::env;
use std::ffi::OsString;

use crate::error::{Error, Result};

/// A library that NVIDIA's driver or toolkit installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    /// The file, which the loader looks for.
    file: &'static str,
    /// Files that will do where it is missing, in this order.
    others: &'static [&'static str],
    /// A variable of the environment that states another file.
    variable: &'static str,
    /// What installs it.
    origin: &'static str,
}

const DRIVER: &str = "NVIDIA's driver";

/// Decoding.
pub(crate) const NVCUVID: Name = Name {
    file: if cfg!(windows) { "nvcuvid.dll" } else { "libnvcuvid.so.1" },
    others: &[],
    variable: "TENFOLD_NVCUVID",
    origin: DRIVER,
};

/// Encoding.
pub(crate) const NVENC: Name = Name {
    file: if cfg!(windows) { "nvEncodeAPI64.dll" } else { "libnvidia-encode.so.1" },
    others: &[],
    variable: "TENFOLD_NVENC",
    origin: DRIVER,
};

/// JPEG; of CUDA's toolkit.
pub(crate) const NVJPEG: Name = Name {
    file: if cfg!(windows) { "nvjpeg64_13.dll" } else { "libnvjpeg.so.13" },
    others: if cfg!(windows) {
        &["nvjpeg64_12.dll", "nvjpeg64_11.dll"]
    } else {
        &["libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so"]
    },
    variable: "TENFOLD_NVJPEG",
    origin: "NVIDIA's CUDA toolkit",
};

/// A loaded library.
#[derive(Debug)]
pub(crate) struct Library {
    file: String,
    handle: libloading::Library,
}

impl Library {
    /// Loads a library: the file that its variable states, or the one the loader finds.
    pub(crate) fn open(name: Name) -> Result<Library> {
        if let Some(file) = env::var_os(name.variable).filter(|f| !f.is_empty()) {
            return Library::open_file(file, name.origin);
        }
        let open = |file: &str| Library::open_file(file.into(), name.origin);
        open(name.file).or_else(|missing| name.others.iter().find_map(|file| open(file).ok()).ok_or(missing))
    }

    fn open_file(file: OsString, origin: &'static str) -> Result<Library> {
        let library = file.to_string_lossy().into_owned();
        // SAFETY: NVIDIA's libraries, and those that a caller names in their place, may be loaded at any time.
        match unsafe { libloading::Library::new(&file) } {
            Ok(handle) => Ok(Library { file: library, handle }),
            Err(e) => Err(Error::LibraryMissing { library, reason: e.to_string(), origin }),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// A function.
    ///
    /// # Safety
    /// `F` is the type of the function of that name. It is not called after the library is dropped.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F> {
        // SAFETY: the caller's promise.
        match unsafe { self.handle.get::<F>(symbol.as_bytes()) } {
            Ok(found) => Ok(*found),
            Err(_) => Err(Error::SymbolMissing { library: self.file.clone(), symbol }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_a_missing_function_are_named() {
        let error = Library::open_file("libtenfold-is-not-there.so".into(), DRIVER).unwrap_err();
        assert!(error.to_string().contains("libtenfold-is-not-there.so"), "{error}");
        if cfg!(target_os = "linux") {
            let libc = Library::open_file("libc.so.6".into(), DRIVER).unwrap();
            // SAFETY: C's `abs`.
            let abs = unsafe { libc.function::<unsafe extern "C" fn(i32) -> i32>("abs") }.unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { abs(-3) }, 3);
            // SAFETY: never called.
            let missing = unsafe { libc.function::<unsafe extern "C" fn()>("cuvidNothing") }.unwrap_err();
            assert!(matches!(missing, Error::SymbolMissing { symbol: "cuvidNothing", .. }));
        }
    }
}
