//! Every bit of a file: flipped, it is an error or makes no difference, to `decompress` and to `verify`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::{Path, PathBuf};

use common::*;
use safetensors::tensor::Dtype;
use tempfile::TempDir;
use tenfold::engine::ErrorKind;
use tenfold::{DecodeOptions, Goal, TensorView};
use tenfold_archive::{
    Archive, CompressOptions, Content, Error, Silent, assemble, checksum, compress, decompress, inspect,
    model_tags, verify,
};

/// A folder in memory, where the system has one: thousands of files come and go.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

/// Reads a file in every way there is; the first error, if any.
fn read_all(path: &Path) -> Result<(), Error> {
    let options = DecodeOptions::default();
    inspect(path)?;
    verify(path, &options, &Silent)?;
    let archive = Archive::open(path)?;
    for index in 0..archive.tensors().len() {
        archive.read(index, &options)?;
        archive.read_rows(index, 0..0, &options)?;
    }
    Ok(())
}

/// Flips every bit of a file. Returns the bytes with a flip that changes nothing.
fn flip_all(whole: &[u8]) -> Vec<usize> {
    let dir = folder();
    let [path, good, out] =
        ["a.safetensors", "good.safetensors", "out.safetensors"].map(|n| dir.path().join(n));
    let restore = |to: &PathBuf| decompress(&path, to, &DecodeOptions::default(), true, &Silent);
    std::fs::write(&path, whole).unwrap();
    read_all(&path).unwrap();
    restore(&good).unwrap();
    let good = std::fs::read(good).unwrap();
    let mut harmless = Vec::new();
    for bit in 0..8 * whole.len() {
        let mut bent = whole.to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bent).unwrap();
        let results = [read_all(&path), restore(&out)];
        if results.iter().all(Result::is_ok) {
            assert!(std::fs::read(&out).unwrap() == good, "bit {bit} of byte {} passes", bit / 8);
            harmless.push(bit / 8);
            std::fs::remove_file(&out).unwrap();
        }
        for result in results {
            match result.map_err(|error| (error.kind(), error.to_string())) {
                Ok(()) => assert_eq!(harmless.last(), Some(&(bit / 8)), "bit {bit} is refused by one of two"),
                Err((kind, text)) => {
                    assert!(!matches!(kind, ErrorKind::Environment | ErrorKind::Caller), "bit {bit}: {text}");
                }
            }
        }
        assert!(!out.exists());
    }
    harmless
}

/// Where a text stands in a file.
fn find(whole: &[u8], text: &str) -> std::ops::Range<usize> {
    let at = whole.windows(text.len()).position(|part| part == text.as_bytes()).expect(text);
    at..at + text.len()
}

/// A model whose bytes lie in another order than its names, with an empty tensor and a dtype that the codec does not have.
fn small() -> (String, Vec<u8>) {
    let header = r#"{"__metadata__":{"k":"v","é":"\u001f"},"w":{"dtype":"F32","shape":[4,6],"data_offsets":[20,116]},
        "v":{"dtype":"BF16","shape":[2,1],"data_offsets":[16,20]},"none":{"dtype":"I8","shape":[3,0],"data_offsets":[16,16]},
        "u":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},"x":{"dtype":"F16","shape":[2,8],"data_offsets":[116,148]}}"#;
    (header.to_owned(), floats("w", &[37], 1.0).data)
}

#[test]
fn a_compressed_file_notices_every_flip() {
    let dir = folder();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    let (header, data) = small();
    write_raw(&a, &header, &data);
    let options = CompressOptions::new(Goal::Lossless).with_include("w").with_include("x");
    assert_eq!(compress(&a, &b, &options, &Silent).unwrap().compressed.tensors, 2);
    let whole = std::fs::read(&b).unwrap();
    // The digits of an escape mean the same in either case; nothing else does.
    let escape = find(&whole, r"\u001f");
    assert_eq!(flip_all(&whole), [escape.end - 1]);
}

#[test]
fn a_file_that_was_put_together_notices_every_flip() {
    let dir = folder();
    let path = dir.path().join("a.safetensors");
    let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let view = TensorView::from_slice(&values, &[4, 6]).unwrap();
    let tensors = [
        (
            "blob".to_owned(),
            Content::Blob(tenfold::encode(&view, &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap()),
        ),
        ("plain".to_owned(), Content::Plain(tenfold::Dtype::U16, vec![2], vec![1, 0, 2, 0])),
    ];
    assemble(&path, vec![("key".into(), "value".into())], &tensors, false).unwrap();
    assert!(flip_all(&std::fs::read(&path).unwrap()).is_empty());
}

/// An index has no checksum, but the files that it names do: no flip leads to other tensors.
#[test]
fn an_index_leads_to_the_same_tensors_or_nowhere() {
    let dir = folder();
    let (model, small) = (sharded(&dir), dir.path().join("small"));
    compress(&model, &small, &CompressOptions::new(Goal::Lossless), &Silent).unwrap();
    let good = Archive::open(&small).unwrap();
    let path = small.join("model.safetensors.index.json");
    let whole = std::fs::read(&path).unwrap();
    for bit in 0..8 * whole.len() {
        let mut bent = whole.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bent).unwrap();
        if let Ok(archive) = Archive::open(&small) {
            assert_eq!(archive.tensors(), good.tensors(), "bit {bit}");
        }
    }
}

/// As transformers writes it: the same metadata in every file, with a key of its own.
#[test]
fn a_file_with_the_metadata_of_its_model_notices_every_flip() {
    let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let view = TensorView::from_slice(&values, &[4, 6]).unwrap();
    let blob = tenfold::encode(&view, &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap();
    let plain = floats("v", &[2, 2], 1.0);
    let sum = checksum(&TensorView::new(tenfold::Dtype::F32, &plain.shape, &plain.data).unwrap()).unwrap();
    let blobs = [("w", tenfold::Dtype::F32, &[4usize, 6][..]), ("elsewhere", tenfold::Dtype::F16, &[8, 8])];
    let sums = [("v".to_owned(), sum), ("not here".to_owned(), 7)];
    let metadata = [("format".to_owned(), "pt".to_owned())];
    let mut tags = model_tags(blobs, Some(&sums), &metadata).unwrap();
    tags.extend(metadata);
    let pairs: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let dir = folder();
    let path = dir.path().join("a.safetensors");
    let blob = Made { name: "w".into(), dtype: Dtype::U8, shape: vec![blob.len()], data: blob };
    write_standard(&path, &[blob, plain], &pairs);
    let whole = std::fs::read(&path).unwrap();
    // What others write into the metadata is passed over: the model's own is among our keys.
    let theirs = find(&whole, r#""format":"pt""#);
    let harmless = flip_all(&whole);
    assert!(
        !harmless.is_empty() && harmless.iter().all(|byte| theirs.contains(byte)),
        "{harmless:?} beyond {theirs:?}"
    );
}
