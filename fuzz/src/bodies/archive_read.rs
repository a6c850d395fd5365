//! Any bytes as a model file, of whichever format they resemble: an error or tensors whose sizes add up, and
//! what decompresses opens again.

use std::collections::HashSet;
use std::path::Path;

use tenfold::DecodeOptions;
use tenfold::engine::{ErrorKind, Limits};
use tenfold_archive::gguf::GgufSource;
use tenfold_archive::npy::NpySource;
use tenfold_archive::{Archive, Error, Silent, Source};

/// Bytes that a decoded tensor may take.
const BYTES: u64 = 1 << 20;

pub fn run(input: &[u8]) {
    // Memory, where the system has it under a path; these files live for microseconds.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(parent).expect("a temporary folder");
    // An index of shards is known by its name, everything else by its first bytes.
    let name = if input.starts_with(b"{") { "model.safetensors.index.json" } else { "model" };
    let path = folder.path().join(name);
    std::fs::write(&path, input).expect("room for a small file");

    match input {
        [b'G', b'G', b'U', b'F', ..] => check_source(GgufSource::open(&path), input.len()),
        [0x93, b'N', b'U', b'M', ..] => check_source(NpySource::open(&path), input.len()),
        _ => {}
    }
    check_archive(&path, &folder.path().join("out"));
}

/// The data is at fault, never the machine or the caller.
fn check_error(error: &Error) {
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit), "{error}");
}

fn check_source(source: Result<impl Source, Error>, input: usize) {
    let source = match source {
        Ok(source) => source,
        Err(error) => return check_error(&error),
    };
    let mut total = 0;
    for (index, info) in source.tensors().iter().enumerate() {
        let data = source.read(index).expect("an opened file reads");
        assert_eq!(data.len() as u64, info.bytes);
        tenfold::TensorView::new(info.dtype, &info.shape, &data).expect("shape and bytes agree");
        total += data.len();
    }
    // Two bits and a share of scales become 32 bits; nothing grows more.
    assert!(total <= 16 * input, "{input} bytes became {total}");
}

fn check_archive(path: &Path, out: &Path) {
    let options =
        DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(BYTES));
    let archive = match Archive::open(path) {
        Ok(archive) => archive,
        // An index may name files that are not there.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return check_error(&error),
    };
    let mut names = HashSet::new();
    for (index, info) in archive.tensors().iter().enumerate() {
        assert!(names.insert(&info.name), "{:?} appears twice", info.name);
        let whole = archive.read(index, &options);
        match &whole {
            Ok(tensor) => {
                assert_eq!((&tensor.shape, tensor.data.len() as u64), (&info.shape, info.bytes));
                assert!(!info.compressed || info.bytes <= BYTES, "{} bytes decoded", info.bytes);
            }
            Err(error) if info.compressed || info.dtype.is_none() => check_error(error),
            Err(error) => panic!("a plain tensor does not read: {error}"),
        }
        assert!(archive.verify(index, &options).is_ok() || whole.is_err(), "verify refuses what reads");
        if let Err(error) = archive.blob_info(index) {
            check_error(&error);
        }
        // No rows of what reads are always there; the first row may not be.
        let none = archive.read_rows(index, 0..0, &options);
        assert!(none.is_ok_and(|part| part.data.is_empty()) || whole.is_err());
        let _ = archive.read_rows(index, 0..1, &options);
    }
    if archive.is_compressed() && tenfold_archive::decompress(path, out, &options, false, &Silent).is_ok() {
        let again = Archive::open(out).expect("what was written opens");
        assert_eq!(again.tensors().len(), archive.tensors().len());
    }
}
