//! `.npy` files as input: what numpy wrote comes in, what cannot be read is refused.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests may fail loudly

use std::path::{Path, PathBuf};

use tenfold::Dtype;
use tenfold::engine::ErrorKind;
use tenfold_archive::Source;
use tenfold_archive::npy::NpySource;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/npy").join(name)
}

/// -5, -4, … 18 as `dtype`.
fn expected(dtype: Dtype) -> Vec<u8> {
    (-5i64..19)
        .flat_map(|v| match dtype {
            Dtype::F16 => half::f16::from_f64(v as f64).to_le_bytes().to_vec(),
            Dtype::F32 => (v as f32).to_le_bytes().to_vec(),
            Dtype::F64 => (v as f64).to_le_bytes().to_vec(),
            Dtype::Bool => vec![u8::from(v != 0)],
            // Integers wrap as two's complement.
            _ => v.to_le_bytes()[..dtype.size()].to_vec(),
        })
        .collect()
}

#[test]
fn every_dtype_of_numpy() {
    let files = [
        ("bool", Dtype::Bool),
        ("uint8", Dtype::U8),
        ("int8", Dtype::I8),
        ("uint16", Dtype::U16),
        ("int16", Dtype::I16),
        ("uint32", Dtype::U32),
        ("int32", Dtype::I32),
        ("uint64", Dtype::U64),
        ("int64", Dtype::I64),
        ("float16", Dtype::F16),
        ("float32", Dtype::F32),
        ("float64", Dtype::F64),
    ];
    for (name, dtype) in files {
        let source = NpySource::open(data(&format!("{name}.npy"))).unwrap();
        let [info] = source.tensors() else { panic!("{name}") };
        assert_eq!((info.name.as_str(), info.dtype, info.shape.as_slice()), (name, dtype, &[2, 3, 4][..]));
        assert!(source.read(0).unwrap() == expected(dtype), "{name}");
        assert_eq!(source.read(1).unwrap_err().kind(), ErrorKind::Caller);
        assert!(source.metadata().is_empty());
    }
}

#[test]
fn fortran_order_becomes_row_major() {
    let source = NpySource::open(data("fortran.npy")).unwrap();
    assert_eq!(source.tensors()[0].shape, [2, 3, 4]);
    assert!(source.read(0).unwrap() == expected(Dtype::F32));
}

#[test]
fn scalars_and_empty_arrays() {
    let source = NpySource::open(data("scalar.npy")).unwrap();
    assert!(source.tensors()[0].shape.is_empty());
    assert!(source.read(0).unwrap() == 2.5f64.to_le_bytes().to_vec());
    let source = NpySource::open(data("empty.npy")).unwrap();
    assert_eq!(source.tensors()[0].shape, [0, 5]);
    assert!(source.read(0).unwrap().is_empty());
}

#[test]
fn what_is_not_read_is_named() {
    for (name, word) in [
        ("objects", "objects"),
        ("big_endian", "big-endian"),
        ("complex", "c8"),
        ("structured", "structured"),
    ] {
        let error = NpySource::open(data(&format!("{name}.npy"))).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn every_wrong_length_is_refused() {
    let whole = std::fs::read(data("float32.npy")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.npy");
    let mut files: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    files.push([whole.as_slice(), &[0]].concat());
    for bytes in files {
        std::fs::write(&path, &bytes).unwrap();
        let error = NpySource::open(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Data, "{} bytes: {error}", bytes.len());
    }
}

#[test]
fn shapes_that_overflow_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.npy");
    for shape in ["(4611686018427387904, 4)", "(18446744073709551615,)", "(1152921504606846976,)"] {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(NpySource::open(&path).err().unwrap().kind(), ErrorKind::Data, "{shape}");
    }
}
