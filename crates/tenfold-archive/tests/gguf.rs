//! GGUF files as input: values and metadata agree with another implementation, bad files are refused.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests may fail loudly

use std::path::{Path, PathBuf};

use tenfold::Dtype;
use tenfold::engine::ErrorKind;
use tenfold_archive::gguf::GgufSource;
use tenfold_archive::{Error, Source};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf").join(name)
}

/// Writes GGUF byte by byte, with any number wrong.
#[derive(Clone)]
struct Builder {
    magic: [u8; 4],
    version: u32,
    tensor_count: Option<u64>,
    metadata_count: Option<u64>,
    metadata: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

fn string(s: &str) -> Vec<u8> {
    [(s.len() as u64).to_le_bytes().as_slice(), s.as_bytes()].concat()
}

fn u32_entry(key: &str, value: u32) -> Vec<u8> {
    [string(key), 4u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat()
}

fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut out = string(name);
    out.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
    out.extend(kind.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}

impl Builder {
    fn new(tensors: &[Vec<u8>], data: &[u8]) -> Self {
        Builder {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            metadata_count: None,
            metadata: Vec::new(),
            tensors: tensors.to_vec(),
            data: data.to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.metadata_count.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        out.extend(self.metadata.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }

    fn open(&self) -> Result<GgufSource, Error> {
        open(&self.bytes())
    }
}

fn open(bytes: &[u8]) -> Result<GgufSource, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.gguf");
    std::fs::write(&path, bytes).unwrap();
    GgufSource::open(&path)
}

fn refusal(bytes: &[u8]) -> Error {
    match open(bytes) {
        Ok(_) => panic!("the file was accepted"),
        Err(e) => e,
    }
}

#[test]
fn quantised_types_agree_with_the_reference() {
    let types = [
        ("q4_0", 2, 64),
        ("q4_1", 3, 64),
        ("q5_0", 6, 64),
        ("q5_1", 7, 64),
        ("q8_0", 8, 64),
        ("q2_k", 10, 256),
        ("q3_k", 11, 256),
        ("q4_k", 12, 256),
        ("q5_k", 13, 256),
        ("q6_k", 14, 256),
    ];
    for (name, kind, cols) in types {
        let stored = std::fs::read(data(&format!("{name}.bin"))).unwrap();
        let expected = std::fs::read(data(&format!("{name}.f32"))).unwrap();
        let rows = expected.len() as u64 / 4 / cols;
        let source = Builder::new(&[tensor("t", &[cols, rows], kind, 0)], &stored).open().unwrap();
        let info = &source.tensors()[0];
        assert_eq!((info.dtype, &info.shape), (Dtype::F32, &vec![rows as usize, cols as usize]), "{name}");
        assert_eq!(info.bytes, expected.len() as u64, "{name}");
        assert!(source.read(0).unwrap() == expected, "{name}");
    }
}

#[test]
fn large_tensors_are_expanded_in_pieces() {
    // More than one chunk of stored bytes, and not a whole number of chunks.
    let block = std::fs::read(data("q8_0.bin")).unwrap()[..34].to_vec();
    let expected = &std::fs::read(data("q8_0.f32")).unwrap()[..128];
    let n = 70_001;
    let source = Builder::new(&[tensor("t", &[32, n as u64], 8, 0)], &block.repeat(n)).open().unwrap();
    let got = source.read(0).unwrap();
    assert_eq!(got.len(), n * 128);
    assert!(got.chunks_exact(128).all(|c| c == expected));
}

#[test]
fn a_file_of_another_writer() {
    let source = GgufSource::open(data("small.gguf")).unwrap();
    let seen: Vec<_> =
        source.tensors().iter().map(|t| (t.name.as_str(), t.dtype, t.shape.as_slice())).collect();
    assert_eq!(
        seen,
        [
            ("f32", Dtype::F32, &[2, 3][..]),
            ("f16", Dtype::F16, &[4, 1]),
            ("bf16", Dtype::Bf16, &[1, 2]),
            ("i32", Dtype::I32, &[2, 1, 2]),
            ("blk.0.q4_0", Dtype::F32, &[4, 64]),
            ("blk.0.q6_k", Dtype::F32, &[2, 256]),
        ]
    );
    let f32s: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let f16s: Vec<u8> = (0..4).flat_map(|i| half::f16::from_f32(i as f32).to_le_bytes()).collect();
    let i32s: Vec<u8> = [-1i32, 2, 3, 4].iter().flat_map(|i| i.to_le_bytes()).collect();
    assert!(source.read(0).unwrap() == f32s);
    assert!(source.read(1).unwrap() == f16s);
    assert!(source.read(2).unwrap() == vec![0x80, 0x3f, 0, 0x40]);
    assert!(source.read(3).unwrap() == i32s);
    assert!(source.read(4).unwrap() == std::fs::read(data("q4_0.f32")).unwrap());
    assert!(source.read(5).unwrap() == std::fs::read(data("q6_k.f32")).unwrap());
    assert_eq!(source.read(6).unwrap_err().kind(), ErrorKind::Caller);

    let metadata = source.metadata();
    assert_eq!(metadata["general.architecture"], "command-r");
    assert_eq!(metadata["general.name"], "Grüße");
    assert_eq!(metadata["general.test"], "true");
    assert_eq!(metadata["command-r.block_count"], "2");
    assert_eq!(metadata["command-r.rope.freq_base"], "10000.5");
    assert!(!metadata.contains_key("tokenizer.ggml.tokens"));
}

#[test]
fn empty_tensors_and_files() {
    assert!(Builder::new(&[], &[]).open().unwrap().tensors().is_empty());
    let source = Builder::new(&[tensor("t", &[0, 1 << 40], 0, 0)], &[]).open().unwrap();
    assert_eq!(source.tensors()[0].shape, [1 << 40, 0]);
    assert!(source.read(0).unwrap().is_empty());
}

#[test]
fn alignment_is_obeyed() {
    let mut builder = Builder::new(&[tensor("a", &[1], 0, 0), tensor("b", &[1], 0, 8)], &[0; 12]);
    builder.metadata = vec![u32_entry("general.alignment", 8)];
    // The builder pads the head to 32 bytes: cut back to what an alignment of 8 wants.
    let head = builder.bytes().len() - 12;
    let unpadded =
        (24 + builder.metadata.concat().len() + builder.tensors.concat().len()).next_multiple_of(8);
    let mut bytes = builder.bytes()[..unpadded.min(head)].to_vec();
    bytes.extend(1f32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(2f32.to_le_bytes());
    let source = open_kept(&bytes);
    assert!(source.1.read(0).unwrap() == 1f32.to_le_bytes().to_vec());
    assert!(source.1.read(1).unwrap() == 2f32.to_le_bytes().to_vec());
}

fn open_kept(bytes: &[u8]) -> (tempfile::TempDir, GgufSource) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.gguf");
    std::fs::write(&path, bytes).unwrap();
    let source = GgufSource::open(&path).unwrap();
    (dir, source)
}

#[test]
fn unsupported_types_are_named() {
    for (kind, word) in [(16, "IQ2_XXS"), (9, "Q8_1"), (4, "4"), (31, "31"), (u32::MAX, "4294967295")] {
        let bytes = Builder::new(&[tensor("the.name", &[256], kind, 0)], &[0; 1024]).bytes();
        let error = refusal(&bytes);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{kind}: {error}");
        let text = error.to_string();
        assert!(text.contains("the.name") && text.contains(word), "{text}");
    }
    let mut old = Builder::new(&[], &[]);
    old.version = 1;
    assert_eq!(refusal(&old.bytes()).kind(), ErrorKind::Unsupported);
}

#[test]
fn hostile_files_are_refused() {
    let one = |t: Vec<u8>| Builder::new(&[t], &[0; 64]);
    let two = |a: Vec<u8>, b: Vec<u8>| Builder::new(&[a, b], &[0; 64]);
    let with_metadata = |entries: &[Vec<u8>]| {
        let mut b = one(tensor("t", &[4], 0, 0));
        b.metadata = entries.to_vec();
        b
    };
    let counts = |tensors, metadata| {
        let mut b = one(tensor("t", &[4], 0, 0));
        (b.tensor_count, b.metadata_count) = (tensors, metadata);
        b
    };
    let array = |length: u64| {
        [string("a"), 9u32.to_le_bytes().to_vec(), 0u32.to_le_bytes().to_vec(), length.to_le_bytes().to_vec()]
            .concat()
    };
    let long_string =
        [string("a"), 8u32.to_le_bytes().to_vec(), (1u64 << 62).to_le_bytes().to_vec()].concat();
    let mut nested = string("a");
    nested.extend(9u32.to_le_bytes());
    for _ in 0..10_000 {
        nested.extend(9u32.to_le_bytes());
        nested.extend(1u64.to_le_bytes());
    }
    let mut not_gguf = Builder::new(&[], &[]);
    not_gguf.magic = *b"GGML";

    let cases = [
        ("another magic number", not_gguf),
        ("a size past the end", one(tensor("t", &[17], 0, 0))),
        ("an offset past the end", one(tensor("t", &[4], 0, 1 << 20))),
        ("an offset that overflows", one(tensor("t", &[4], 0, !31))),
        ("an offset off the alignment", one(tensor("t", &[4], 0, 4))),
        ("dimensions that wrap to zero", one(tensor("t", &[1 << 32, 1 << 32], 0, 0))),
        ("dimensions that wrap to four", one(tensor("t", &[(1 << 62) + 1, 4], 0, 0))),
        ("bytes that overflow", one(tensor("t", &[1 << 62], 0, 0))),
        ("blocks that overflow", one(tensor("t", &[1 << 60, 8], 8, 0))),
        ("rows that are no whole blocks", one(tensor("t", &[31, 32], 8, 0))),
        ("no dimension", one(tensor("t", &[], 0, 0))),
        ("five dimensions", one(tensor("t", &[1, 1, 1, 1, 1], 0, 0))),
        ("a name that is too long", one(tensor(&"n".repeat(65), &[4], 0, 0))),
        ("a tensor name twice", two(tensor("t", &[4], 0, 0), tensor("t", &[4], 0, 32))),
        ("tensors that overlap", two(tensor("a", &[16], 0, 0), tensor("b", &[4], 0, 32))),
        ("more tensors than there are", counts(Some(1_000_000), None)),
        ("2^63 tensors", counts(Some(1 << 63), None)),
        ("2^63 metadata entries", counts(None, Some(1 << 63))),
        ("alignment 0", with_metadata(&[u32_entry("general.alignment", 0)])),
        ("alignment 7", with_metadata(&[u32_entry("general.alignment", 7)])),
        ("alignment past the end", with_metadata(&[u32_entry("general.alignment", 1 << 31)])),
        ("a metadata key twice", with_metadata(&[u32_entry("a.b", 1), u32_entry("a.b", 1)])),
        ("a metadata array of 2^60", with_metadata(&[array(1 << 60)])),
        ("a metadata string of 2^62", with_metadata(&[long_string])),
        ("10,000 nested arrays", with_metadata(&[nested])),
    ];
    for (what, builder) in cases {
        let error = refusal(&builder.bytes());
        assert_eq!(error.kind(), ErrorKind::Data, "{what}: {error}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let whole = std::fs::read(data("small.gguf")).unwrap();
    // The writer pads the end: the last tensor ends before the file does.
    let padding = (2 * 210usize).next_multiple_of(32) - 2 * 210;
    for len in 0..whole.len() - padding {
        let error = refusal(&whole[..len]);
        assert_eq!(error.kind(), ErrorKind::Data, "cut at {len}: {error}");
    }
    assert!(open(&whole[..whole.len() - padding]).is_ok());
}

#[test]
fn every_byte_may_be_wrong() {
    let whole = std::fs::read(data("small.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.gguf");
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(source) = GgufSource::open(&path) {
                for (i, info) in source.tensors().iter().enumerate() {
                    assert_eq!(source.read(i).unwrap().len() as u64, info.bytes);
                }
            }
        }
    }
}

#[test]
fn a_missing_file_is_an_environment_error() {
    let error = GgufSource::open("no/such/file.gguf").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Environment);
}
