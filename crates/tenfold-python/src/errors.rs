//! From the errors of the Rust crates to Python's exception classes, which `tenfold._errors` defines: only a class made in
//! Python can have two parents, and users expect `except ValueError` and `except OSError` to work.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use tenfold::engine::ErrorKind;

mod classes {
    // The macro makes types without documentation.
    #![allow(missing_docs)]
    pyo3::import_exception!(tenfold._errors, DataError);
    pyo3::import_exception!(tenfold._errors, UnsupportedError);
    pyo3::import_exception!(tenfold._errors, ArgumentError);
    pyo3::import_exception!(tenfold._errors, DtypeError);
    pyo3::import_exception!(tenfold._errors, LimitError);
    pyo3::import_exception!(tenfold._errors, MachineError);
    pyo3::import_exception!(tenfold._errors, NotFoundError);
    pyo3::import_exception!(tenfold._errors, EngineUnavailableError);
    pyo3::import_exception!(tenfold._errors, WrongBaseError);
}

pub use classes::*;

/// The exception for an error of this kind.
fn from_kind(kind: ErrorKind, text: String) -> PyErr {
    match kind {
        ErrorKind::Data => DataError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::Limit => LimitError::new_err(text),
        ErrorKind::Environment => MachineError::new_err(text),
        // Future kinds map to the caller's until they have a class.
        _ => ArgumentError::new_err(text),
    }
}

/// The exception for an error of the codec.
pub fn codec(error: tenfold::Error) -> PyErr {
    named(&error, advice(&error))
}

/// The exception for an error of the codec, with a text.
fn named(error: &tenfold::Error, text: String) -> PyErr {
    match error {
        tenfold::Error::WrongBase { .. } => WrongBaseError::new_err(text),
        _ => from_kind(error.kind(), text),
    }
}

/// The same exception, with a tensor's name in front.
pub fn prefix_name(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let text = format!("tensor {name:?}: {}", error.value(py));
    PyErr::from_type(error.get_type(py), text)
}

/// The codec's message, with the names of this package instead of Rust's.
fn advice(error: &tenfold::Error) -> String {
    match error {
        tenfold::Error::LimitExceeded { what, asked, limit } => {
            format!(
                "{what} of {asked} exceeds the limit of {limit}; raise max_bytes if the source is trusted"
            )
        }
        tenfold::Error::OtherEngine { codec, .. } => format!(
            "the blob holds {codec} pictures, which the CPU does not decode in this package; decode them on a GPU with video engines \
             by tenfold.torch.VideoDecoder, or unpack the file with the command `tenfold decompress` of a build that has video \
             codecs"
        ),
        tenfold::Error::NeedsBase => {
            "the blob is a delta: apply it to its base with tenfold.delta.apply".into()
        }
        _ => error.to_string(),
    }
}

/// The exception for an error of the CUDA engine.
pub fn cuda(error: tenfold_cuda::Error) -> PyErr {
    match error {
        tenfold_cuda::Error::Codec(error) => codec(error),
        error => from_kind(error.kind(), error.to_string()),
    }
}

/// The exception for an error of pictures.
pub fn video(error: tenfold_video::Error) -> PyErr {
    match error {
        tenfold_video::Error::Tensor(error) => codec(error),
        error @ tenfold_video::Error::NotAvailable { .. } => {
            EngineUnavailableError::new_err(error.to_string())
        }
        error => from_kind(error.kind(), error.to_string()),
    }
}

/// The exception for an error of a GPU's video engines.
pub fn nvcodec(error: tenfold_nvcodec::Error) -> PyErr {
    use tenfold_nvcodec::Error;
    match error {
        Error::Cuda(error) => cuda(error),
        Error::Video(error) => video(error),
        Error::LibraryMissing { .. }
        | Error::SymbolMissing { .. }
        | Error::Version { .. }
        | Error::NoEngine(_)
        | Error::NoSession => EngineUnavailableError::new_err(error.to_string()),
        error => from_kind(error.kind(), error.to_string()),
    }
}

/// The exception for an error of pages and bases.
pub fn kv(error: tenfold_kv::Error) -> PyErr {
    match error {
        tenfold_kv::Error::Codec(tenfold::Error::MissingBasis { fingerprint }) => {
            ArgumentError::new_err(format!(
                "the page needs the basis {fingerprint}, which this codec does not have; make the codec from the basis file that the page was made with"
            ))
        }
        tenfold_kv::Error::Codec(error) => codec(error),
        tenfold_kv::Error::File(error) => archive(error),
        error => from_kind(error.kind(), error.to_string()),
    }
}

/// The exception for an error of a pull.
pub fn link(error: tenfold_link::Error) -> PyErr {
    match error {
        tenfold_link::Error::Archive(error) => archive(error),
        tenfold_link::Error::Codec(error) => codec(error),
        tenfold_link::Error::Io { path, source } => archive(tenfold_archive::Error::Io { path, source }),
        error => from_kind(error.kind(), error.to_string()),
    }
}

/// The exception for an error of the archive. System errors keep their number and path.
pub fn archive(error: tenfold_archive::Error) -> PyErr {
    match error {
        tenfold_archive::Error::Io { path, source } if source.kind() == std::io::ErrorKind::OutOfMemory => {
            PyMemoryError::new_err(format!("{}: not enough memory", path.display()))
        }
        tenfold_archive::Error::Io { path, source } => {
            let missing = source.kind() == std::io::ErrorKind::NotFound;
            match source.raw_os_error() {
                Some(number) => {
                    // Rust appends the number to the text, Python prepends it.
                    let text = source.to_string();
                    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                    let args = (number, text, path.into_os_string());
                    if missing { NotFoundError::new_err(args) } else { MachineError::new_err(args) }
                }
                None => MachineError::new_err(format!("{}: {source}", path.display())),
            }
        }
        error @ (tenfold_archive::Error::WrongBase { .. } | tenfold_archive::Error::Chain { .. }) => {
            WrongBaseError::new_err(error.to_string())
        }
        tenfold_archive::Error::Codec { name, source } => {
            named(&source, format!("tensor {name:?}: {}", advice(&source)))
        }
        error => from_kind(error.kind(), error.to_string()),
    }
}
