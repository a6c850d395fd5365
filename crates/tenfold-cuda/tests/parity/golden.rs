//! Golden vectors, whole and by rows, and golden errors.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenfold::engine::{Engine, ErrorKind};
use tenfold::format::Codec;
use tenfold::prepare::Transform;
use tenfold::{DecodeOptions, Dtype, Tensor};

use crate::Case;
use crate::chain;
use crate::common::parts;
use crate::corruption::by_a_chain;
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("golden vectors".into(), vectors),
        ("golden vectors by rows".into(), rows),
        ("golden errors".into(), errors),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/v1")
}

fn index(name: &str) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(root().join(name)).unwrap()).unwrap()
}

fn file(folder: &str, entry: &Value, key: &str) -> Vec<u8> {
    std::fs::read(root().join(folder).join(entry[key].as_str().unwrap())).unwrap()
}

/// What a vector decodes to, or comes near to where its transforms are not the same bits everywhere.
fn hold(found: &Tensor, expected: &[u8], blob: &[u8], what: &str) {
    let near = |s: &Transform| {
        matches!(s, Transform::Hadamard(_) | Transform::Dct(_) | Transform::Rope(_) | Transform::Basis(_))
    };
    let info = tenfold::inspect(blob).unwrap();
    let layers = if info.codec == Codec::Layers { parts(blob) } else { Vec::new() };
    let of_layers = layers.into_iter().flat_map(|layer| tenfold::inspect(layer).unwrap().transforms);
    let exactly = !info.transforms.into_iter().chain(of_layers).any(|t| near(&t));
    let wanted = Tensor { dtype: info.dtype, shape: found.shape.clone(), data: expected.to_vec() };
    chain::hold(found, &wanted, exactly, what);
}

/// Layers are not added without waiting, and a device says so.
fn refused(error: &tenfold::Error) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("layers"), "{error}");
}

fn vectors(subject: &Subject) {
    let entries = index("index.json");
    assert!(entries.len() > 100);
    for entry in entries {
        let (blob, expected) = (file("", &entry, "file"), file("", &entry, "expected"));
        let tensor = subject.engine().decode(&blob, &DecodeOptions::default());
        if tenfold::inspect(&blob).unwrap().codec == Codec::Layers {
            refused(&subject.decode_raw(&blob, Dtype::F32, 0, None, expected.len()).unwrap_err());
        }
        let tensor = tensor.unwrap_or_else(|e| panic!("{}: {e}", entry["name"]));
        assert_eq!(tensor.dtype.name(), entry["dtype"].as_str().unwrap());
        hold(&tensor, &expected, &blob, entry["name"].as_str().unwrap());
    }
}

fn rows(subject: &Subject) {
    for entry in index("index.json") {
        let (blob, expected) = (file("", &entry, "file"), file("", &entry, "expected"));
        let info = tenfold::inspect(&blob).unwrap();
        if info.shape.len() < 2 || info.values == 0 {
            continue;
        }
        let rows = info.rows() as usize;
        let row = expected.len() / rows;
        for range in [0..1, rows / 2..rows / 2 + 1, rows / 3..rows, 1..1] {
            let part = subject.engine().decode_rows(&blob, range.clone(), &DecodeOptions::default()).unwrap();
            let wanted = &expected[range.start * row..range.end * row];
            hold(&part, wanted, &blob, &format!("{}: rows {range:?}", entry["name"]));
        }
    }
}

fn errors(subject: &Subject) {
    for entry in index("errors/errors.json") {
        let blob = file("errors", &entry, "file");
        let wanted = tenfold::decode(&blob, &DecodeOptions::default()).unwrap_err();
        let whole = subject.engine().decode(&blob, &DecodeOptions::default()).unwrap_err();
        assert_eq!(whole.kind(), wanted.kind(), "{}: {whole}", entry["name"]);
        // A device by itself refuses layers whatever they hold.
        if blob.get(5) == Some(&tenfold::format::CODEC_LAYERS) {
            subject.decode_raw(&blob, Dtype::F32, 0, None, 64).unwrap_err();
            continue;
        }
        // Without the host's look at the header.
        let (dtype, len) = match tenfold::inspect(&blob) {
            Ok(i) if i.values < 1 << 24 => (i.dtype, i.values as usize * i.dtype.size()),
            _ => (tenfold::Dtype::F32, 64),
        };
        let alone = subject.decode_raw(&blob, dtype, 0, None, len).unwrap_err();
        let alike = alone.kind() == wanted.kind() || by_a_chain(&alone);
        assert!(alike, "{}: {alone}, not {wanted}", entry["name"]);
    }
}
