//! Golden vectors: what was once written decodes to the same bits for ever, what was once refused still is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests
#![cfg(feature = "video")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tenfold::DecodeOptions;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/video")
}

fn read(name: &str, kind: &str, entry: &Value) -> Vec<u8> {
    let bytes = fs::read(folder().join(format!("{name}.{kind}"))).unwrap();
    let key = if kind == "raw" { "raw_crc32" } else { "blob_crc32" };
    assert_eq!(u64::from(crc32fast::hash(&bytes)), entry[key].as_u64().unwrap(), "{name}.{kind} was edited");
    bytes
}

#[test]
fn golden_vectors_decode_and_golden_errors_do_not() {
    let index: Vec<Value> = serde_json::from_slice(&fs::read(folder().join("index.json")).unwrap()).unwrap();
    let mut known = BTreeSet::from(["index.json".to_string(), "README.md".to_string()]);
    let mut refused = 0;
    for entry in &index {
        let name = entry["name"].as_str().unwrap();
        let blob = read(name, "tnfd", entry);
        known.insert(format!("{name}.tnfd"));
        let found = tenfold_video::decode(&blob, &DecodeOptions::default());
        if let Some(kind) = entry["refused"].as_str() {
            let error = found.expect_err(name);
            assert_eq!(format!("{:?}", error.kind()).to_lowercase(), kind, "{name}: {error}");
            refused += 1;
            continue;
        }
        let tensor = found.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype.to_string(), entry["dtype"].as_str().unwrap(), "{name}");
        assert_eq!(serde_json::json!(tensor.shape), entry["shape"], "{name}");
        assert_eq!(u64::from(crc32fast::hash(&tensor.data)), entry["raw_crc32"].as_u64().unwrap(), "{name}");
        if tensor.data.len() < 1 << 16 {
            known.insert(format!("{name}.raw"));
            assert!(tensor.data == read(name, "raw", entry), "{name}");
        }
    }
    assert!(index.len() - refused >= 20 && refused >= 20);
    let files = fs::read_dir(folder()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), known, "files without an entry, or the other way round");
}
