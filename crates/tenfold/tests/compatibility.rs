//! Old blobs decode as they always did: every golden vector to exactly its bytes, every golden error to its
//! kind of error, and a second decoder, written from docs/format.md alone, agrees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tenfold::engine::{Cpu, Engine, ErrorKind};
use tenfold::{DecodeOptions, Dtype};

/// Every feature of version 1. One that is added to the format is added here and gets a vector.
const FEATURES: &[&str] = &[
    // lossless
    "planes dims 0",
    "planes dims 1",
    "planes dims 2",
    "planes dims 3",
    "planes dims 4",
    "planes empty",
    "planes lanes 1",
    "planes lanes 2",
    "planes lanes 4",
    "planes lanes 8",
    "planes lanes 16",
    "planes lanes 32",
    "planes one tile",
    "planes several tiles",
    "planes short last tile",
    "planes fewer values than lanes",
    "planes no table",
    "plane constant",
    "plane stored",
    "plane coded",
    // lossy: shapes and geometry
    "levels dims 0",
    "levels dims 1",
    "levels dims 2",
    "levels dims 4",
    "levels empty",
    "levels lanes 1",
    "levels lanes 2",
    "levels lanes 4",
    "levels lanes 8",
    "levels lanes 16",
    "levels lanes 32",
    "levels one tile",
    "levels several tiles",
    "levels short last tile",
    "levels fewer values than lanes",
    // lossy: pairs
    "pairs bf16",
    "pairs f16",
    "pairs f32",
    "pairs f64",
    "pairs f8_e5m2",
    "pairs one tile",
    "pairs several tiles",
    "pairs short last tile",
    "pair of one value",
    "pair escaped",
    "escapes of 8 bytes",
    // lossy: the header
    "states 1",
    "states 4",
    "states 8",
    "states 16",
    "states 32",
    "states 64",
    "states 128",
    "states 256",
    "table log 8",
    "table log 9",
    "table log 10",
    "table log 11",
    "table log 12",
    "table shaped",
    "table measured",
    "table repeated",
    "table of one symbol",
    "table shaped of high parts",
    "table measured of high parts",
    "table repeated of high parts",
    "classes 1",
    "classes 2",
    "classes 16",
    "classes by rows",
    "classes by columns",
    "classes by rows and columns",
    "classes by runs",
    "classes by neither",
    "low bits none",
    "low bits equal",
    "low bits by class",
    "low bits 16",
    "offsets none",
    "offsets some",
    "offsets all",
    // lossy: tiles
    "tile coded",
    "tile of zeros",
    "tile of zeros without low bits",
    "escapes of 1 byte",
    "escapes of 2 bytes",
    "escapes of 4 bytes",
    "exact NaN",
    "exact infinity",
    "exact finite",
    "exact run",
    "exact values among zeros",
    // lossy: preparation steps
    "weights of columns",
    "weights of rows",
    "weights of columns, then of rows",
    "weights of rows, then of columns",
    "kept elements",
    "kept run",
    "exact working value",
    "Hadamard",
    "means",
    "DCT",
    "rotary positions",
    "delta",
    "transposed",
    "basis",
    "basis with scales",
    "basis of fewer vectors than columns",
    "classes by basis",
    // layers
    "layers 2",
    "layers 3",
    "layers 8",
    "layers dims 0",
    "layers dims 1",
    "layers dims 2",
    "layers dims 3",
    "layers empty",
    "layer of planes",
    "layer of levels",
    "layer with steps",
];

/// Features that every float dtype has in both codecs, except for infinities where there are none.
const OF_FLOATS: [&str; 4] = ["NaN", "infinity", "negative zero", "denormal"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn index(path: &str) -> Vec<Value> {
    serde_json::from_slice(&read(&root().join(path))).expect(path)
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_else(|| panic!("{entry}: {key}"))
}

/// A file of an entry, which nobody has edited since it was made.
fn file(folder: &str, entry: &Value, key: &str, sum: &str) -> Vec<u8> {
    let bytes = read(&root().join(folder).join(text(entry, key)));
    let found = format!("{:08x}", crc32fast::hash(&bytes));
    assert_eq!(found, text(entry, sum), "{}: golden files are never edited", text(entry, key));
    bytes
}

fn files(folder: &str) -> BTreeSet<OsString> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap());
    entries.filter(|e| e.file_type().unwrap().is_file()).map(|e| e.file_name()).collect()
}

#[test]
fn golden_vectors_decode_to_the_same_bytes() {
    let options = DecodeOptions::default();
    let mut named = BTreeSet::from([OsString::from("index.json")]);
    for entry in index("v1/index.json") {
        let name = text(&entry, "name");
        let blob = file("v1", &entry, "file", "file_crc32");
        let expected = file("v1", &entry, "expected", "expected_crc32");
        let tensor = tenfold::decode(&blob, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype.name(), text(&entry, "dtype"), "{name}");
        assert_eq!(serde_json::json!(tensor.shape), entry["shape"], "{name}");
        assert!(tensor.data == expected, "{name} decodes to other bytes");
        let mut out = vec![0xa5; expected.len()];
        Cpu.decode_into(&blob, &options.clone().with_threads(1), &mut out).unwrap();
        assert!(out == expected, "{name} decodes to other bytes on one thread");
        Cpu.verify(&blob, &options).unwrap();
        assert_eq!(tenfold::inspect(&blob).unwrap().blob_bytes, blob.len() as u64, "{name}");
        named.extend([text(&entry, "file").into(), text(&entry, "expected").into()]);
    }
    assert_eq!(files("v1"), named, "files without an entry, or the other way round");
}

#[test]
fn golden_vectors_decode_row_by_row() {
    let options = DecodeOptions::default();
    let mut read = 0;
    for entry in index("v1/index.json") {
        let blob = file("v1", &entry, "file", "file_crc32");
        let expected = file("v1", &entry, "expected", "expected_crc32");
        let info = tenfold::inspect(&blob).unwrap();
        if info.shape.len() < 2 || info.values == 0 {
            continue;
        }
        let cols = info.shape[info.shape.len() - 1];
        let rows = info.values as usize / cols;
        let row = cols * info.dtype.size();
        let ranges = [0..1, rows / 2..rows / 2 + 1, rows - 1..rows, rows / 3..rows, 0..rows, 1..1];
        for range in ranges {
            let part = tenfold::decode_rows(&blob, range.clone(), &options).unwrap();
            assert_eq!(part.shape, [range.len(), cols]);
            let same = part.data == expected[range.start * row..range.end * row];
            assert!(same, "{}: rows {range:?}", text(&entry, "name"));
            read += 1;
        }
    }
    assert!(read > 300, "{read}");
}

#[test]
fn every_feature_has_a_vector() {
    let entries = index("v1/index.json");
    let found: BTreeSet<&str> =
        entries.iter().flat_map(|e| e["features"].as_array().unwrap()).map(|f| f.as_str().unwrap()).collect();
    let mut wanted: BTreeSet<String> = FEATURES.iter().map(|f| f.to_string()).collect();
    for dtype in Dtype::ALL {
        wanted.insert(format!("planes {dtype}"));
        if dtype.is_float() {
            wanted.extend([format!("levels {dtype}"), format!("levels {dtype} largest")]);
            // Zeros lose their sign where they are added.
            wanted.extend(["", " largest", " denormal", " NaN"].map(|odd| format!("layers {dtype}{odd}")));
            let odd = OF_FLOATS.iter().filter(|&&odd| dtype != Dtype::F8E4M3 || odd != "infinity");
            wanted.extend(odd.flat_map(|odd| ["planes", "levels"].map(|c| format!("{c} {dtype} {odd}"))));
        }
    }
    let missing: Vec<&String> = wanted.iter().filter(|w| !found.contains(w.as_str())).collect();
    assert!(missing.is_empty(), "no vector for {missing:?}");
}

#[test]
fn golden_errors_are_refused_with_their_kind() {
    let options = DecodeOptions::default();
    let mut named = BTreeSet::from([OsString::from("errors.json")]);
    let mut kinds = BTreeSet::new();
    for entry in index("v1/errors/errors.json") {
        let name = text(&entry, "name");
        let blob = file("v1/errors", &entry, "file", "file_crc32");
        let error = tenfold::decode(&blob, &options).err();
        let error = error.unwrap_or_else(|| panic!("{name} is not refused"));
        let kind = match text(&entry, "kind") {
            "data" => ErrorKind::Data,
            "unsupported" => ErrorKind::Unsupported,
            "limit" => ErrorKind::Limit,
            "caller" => ErrorKind::Caller,
            other => panic!("{name}: unknown kind {other}"),
        };
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(text(&entry, "message")), "{name}: {error}");
        assert_eq!(Cpu.verify(&blob, &options).unwrap_err(), error, "{name}");
        kinds.insert(text(&entry, "kind").to_string());
        named.insert(text(&entry, "file").into());
    }
    assert_eq!(kinds.len(), 4);
    assert_eq!(files("v1/errors"), named, "files without an entry, or the other way round");
}

/// What golden deltas show.
const OF_DELTAS: &[&str] = &[
    "delta dims 0",
    "delta dims 1",
    "delta dims 2",
    "delta of nothing",
    "delta no tiles",
    "delta one tile",
    "delta several tiles",
    "delta tile unchanged",
    "delta lanes 1",
    "delta lanes 4",
    "delta lanes 32",
    "delta gap tables 1",
    "delta gap tables several",
    "delta classes 1",
    "delta classes several",
    "delta way 0",
    "delta way 1",
    "delta way 2",
];

#[test]
fn golden_deltas_are_applied_to_the_same_bytes_or_refused() {
    let mut named = BTreeSet::from([OsString::from("deltas.json")]);
    let mut found = BTreeSet::new();
    let mut refused = 0;
    for entry in index("v1/deltas/deltas.json") {
        let name = text(&entry, "name");
        let blob = file("v1/deltas", &entry, "file", "file_crc32");
        let mut data = file("v1/deltas", &entry, "base", "base_crc32");
        let dtype = Dtype::ALL.into_iter().find(|d| d.name() == text(&entry, "dtype")).unwrap();
        let shape: Vec<usize> = serde_json::from_value(entry["shape"].clone()).unwrap();
        let base = data.clone();
        let applied = tenfold::delta::apply_in_place(&blob, dtype, &shape, &mut data, &Default::default());
        named.extend([text(&entry, "file").into(), text(&entry, "base").into()]);
        if let Some(kind) = entry["kind"].as_str() {
            let error = applied.err().unwrap_or_else(|| panic!("{name} is not refused"));
            assert_eq!(format!("{:?}", error.kind()).to_lowercase(), kind, "{name}: {error}");
            assert!(error.to_string().contains(text(&entry, "message")), "{name}: {error}");
            assert!(data == base, "{name}: the base has changed");
            refused += 1;
            continue;
        }
        applied.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(data == file("v1/deltas", &entry, "expected", "expected_crc32"), "{name}: other bytes");
        assert_eq!(tenfold::inspect(&blob).unwrap().codec, tenfold::format::Codec::Delta);
        assert!(tenfold::decode(&blob, &DecodeOptions::default()).is_err(), "{name}");
        named.insert(text(&entry, "expected").into());
        found.extend(entry["features"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_string()));
    }
    assert!(refused > 15, "{refused}");
    assert_eq!(files("v1/deltas"), named, "files without an entry, or the other way round");
    let wanted =
        Dtype::ALL.iter().map(|d| format!("delta {d}")).chain(OF_DELTAS.iter().map(|f| f.to_string()));
    let missing: Vec<String> = wanted.filter(|f| !found.contains(f)).collect();
    assert!(missing.is_empty(), "no delta for {missing:?}");
}

#[test]
fn a_decoder_written_from_the_page_agrees() {
    let script = root().join("decode.py");
    let run = Command::new("python3").arg("-B").arg(&script).arg("--check").output();
    let run = run.unwrap_or_else(|e| panic!("Python 3 is needed (as the README says): python3: {e}"));
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}{err}");
    let vectors = format!("{} vectors", index("v1/index.json").len());
    assert!(out.starts_with(&vectors), "{out}");
}
