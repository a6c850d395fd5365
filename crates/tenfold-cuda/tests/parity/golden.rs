//! Golden vectors, whole and by rows, and golden errors.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenfold::{DecodeOptions, Engine, ErrorKind};

use crate::Case;
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

/// Steps that a device refuses so far, as the names of their vectors begin.
const NOT_YET: [&str; 6] = ["basis", "means", "delta", "hadamard", "dct", "rope"];

fn not_yet(entry: &Value) -> bool {
    let name = entry["name"].as_str().unwrap();
    NOT_YET.iter().any(|step| name.starts_with(&format!("{step}_")))
}

/// A step that is not known is refused by its number, whatever it holds.
fn refused(subject: &Subject, entry: &Value, blob: &[u8]) {
    let error = subject.engine().decode(blob, &DecodeOptions::default()).unwrap_err();
    let step = error.kind() == ErrorKind::Unsupported && error.to_string().contains("preparation step");
    assert!(step || error.kind() == ErrorKind::Data, "{}: {error}", entry["name"]);
}

fn vectors(subject: &Subject) {
    let entries = index("index.json");
    assert!(entries.len() > 100);
    for entry in entries {
        let (blob, expected) = (file("", &entry, "file"), file("", &entry, "expected"));
        if not_yet(&entry) {
            refused(subject, &entry, &blob);
            continue;
        }
        let tensor = subject.engine().decode(&blob, &DecodeOptions::default());
        let tensor = tensor.unwrap_or_else(|e| panic!("{}: {e}", entry["name"]));
        assert_eq!(tensor.dtype.name(), entry["dtype"].as_str().unwrap());
        assert!(tensor.data == expected, "{} decodes to other bytes", entry["name"]);
    }
}

fn rows(subject: &Subject) {
    for entry in index("index.json") {
        let (blob, expected) = (file("", &entry, "file"), file("", &entry, "expected"));
        let info = tenfold::inspect(&blob).unwrap();
        if info.shape.len() < 2 || info.values == 0 || not_yet(&entry) {
            continue;
        }
        let rows = info.rows() as usize;
        let row = expected.len() / rows;
        for range in [0..1, rows / 2..rows / 2 + 1, rows / 3..rows, 1..1] {
            let part = subject.engine().decode_rows(&blob, range.clone(), &DecodeOptions::default()).unwrap();
            let same = part.data == expected[range.start * row..range.end * row];
            assert!(same, "{}: rows {range:?}", entry["name"]);
        }
    }
}

fn errors(subject: &Subject) {
    for entry in index("errors/errors.json") {
        let blob = file("errors", &entry, "file");
        if not_yet(&entry) {
            refused(subject, &entry, &blob);
            continue;
        }
        let wanted = tenfold::decode(&blob, &DecodeOptions::default()).unwrap_err();
        let whole = subject.engine().decode(&blob, &DecodeOptions::default()).unwrap_err();
        assert_eq!(whole.kind(), wanted.kind(), "{}: {whole}", entry["name"]);
        // Without the host's look at the header.
        let (dtype, len) = match tenfold::inspect(&blob) {
            Ok(i) if i.values < 1 << 24 => (i.dtype, i.values as usize * i.dtype.size()),
            _ => (tenfold::Dtype::F32, 64),
        };
        let alone = subject.decode_raw(&blob, dtype, 0, None, len).unwrap_err();
        assert_eq!(alone.kind(), wanted.kind(), "{}: {alone}, not {wanted}", entry["name"]);
    }
}
