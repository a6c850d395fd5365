//! Bad files: a typed error, never a panic, and never memory for what a file only claims.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::Path;

use common::*;
use tempfile::{TempDir, tempdir};
use tenfold::engine::ErrorKind;
use tenfold::{DecodeOptions, Goal};
use tenfold_archive::{
    Archive, CompressOptions, Error, Silent, compress, decompress, inspect, model_tags, verify,
};

fn refused(header: &str, data: &[u8]) -> String {
    let dir = tempdir().unwrap();
    let path = dir.path().join("bad.safetensors");
    write_raw(&path, header, data);
    let error = Archive::open(&path).err().unwrap_or_else(|| panic!("accepted: {header}"));
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    let text = error.to_string();
    assert!(text.contains("bad.safetensors"), "{text}");
    text
}

fn entry(name: &str, begin: usize, end: usize) -> String {
    format!(r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#, end - begin)
}

#[test]
fn duplicate_names_are_refused() {
    let text = refused(&format!("{{{},{}}}", entry("a", 0, 4), entry("a", 0, 4)), &[0; 4]);
    assert!(text.contains("\"a\" occurs twice"), "{text}");
    let text = refused(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[]);
    assert!(text.contains("\"k\" occurs twice"), "{text}");
    refused(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]);
}

#[test]
fn overlaps_holes_and_wrong_sizes_are_refused() {
    let text = refused(&format!("{{{},{}}}", entry("a", 0, 4), entry("b", 3, 8)), &[0; 8]);
    assert!(text.contains("overlap"), "{text}");
    let text = refused(&format!("{{{},{}}}", entry("a", 0, 4), entry("b", 5, 8)), &[0; 8]);
    assert!(text.contains("no tensor holds"), "{text}");
    let text = refused(&format!("{{{}}}", entry("a", 0, 4)), &[0; 8]);
    assert!(text.contains("end at byte 4"), "{text}");
    let text = refused(&format!("{{{}}}", entry("a", 0, 9)), &[0; 8]);
    assert!(text.contains("only 8 bytes"), "{text}");
    let text = refused(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, &[0; 8]);
    assert!(text.contains("takes 12 bytes"), "{text}");
    refused(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, &[0; 8]);
    refused(r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#, &[0; 1]);
}

#[test]
fn claims_that_overflow_are_refused() {
    let huge = 1u64 << 60;
    refused(&format!(r#"{{"a":{{"dtype":"F64","shape":[{huge},{huge}],"data_offsets":[0,0]}}}}"#), &[]);
    refused(&format!(r#"{{"a":{{"dtype":"U8","shape":[{huge}],"data_offsets":[0,{huge}]}}}}"#), &[]);
    refused(
        r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551616]}}"#,
        &[0],
    );
    refused(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#, &[]);
}

#[test]
fn a_header_that_is_none_is_refused() {
    for header in [
        "",
        "[]",
        "null",
        "{",
        "{}x",
        r#"{"a":1}"#,
        r#"{"a":{"dtype":"F99","shape":[],"data_offsets":[0,0]}}"#,
    ] {
        refused(header, &[]);
    }
    refused(&"[".repeat(100_000), &[]);
    refused(&format!("{{\"a\":{}", "{\"x\":".repeat(100_000)), &[]);
    refused(r#"{"__metadata__":{"k":1}}"#, &[]);
}

#[test]
fn a_header_length_beyond_file_or_format_is_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    for length in [1, 100_000_001, 1 << 60, u64::MAX] {
        std::fs::write(&path, length.to_le_bytes()).unwrap();
        assert_eq!(Archive::open(&path).err().unwrap().kind(), ErrorKind::Data);
    }
}

/// A compressed file that is small enough to damage in every way.
fn victim(dir: &TempDir) -> Vec<u8> {
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &[floats("w", &[4, 6], 1.0), floats("v", &[2], 1.0)], &[("k", "v")]);
    compress(&a, &b, &CompressOptions::new(Goal::Lossless).with_include("w"), &Silent).unwrap();
    std::fs::read(b).unwrap()
}

/// Reads a file in every way there is; the first error, if any.
fn read_all(path: &Path, out: Option<&Path>) -> Result<(), Error> {
    let options = DecodeOptions::default();
    inspect(path)?;
    verify(path, &options, &Silent)?;
    let archive = Archive::open(path)?;
    for (index, tensor) in archive.tensors().iter().enumerate() {
        if tensor.dtype.is_some() {
            archive.read(index, &options)?;
            archive.read_rows(index, 0..0, &options)?;
        }
    }
    if let Some(out) = out.filter(|_| archive.is_compressed()) {
        decompress(path, out, &options, true, &Silent)?;
    }
    Ok(())
}

#[test]
fn every_truncation_is_an_error() {
    let dir = tempdir().unwrap();
    let whole = victim(&dir);
    let (path, out) = (dir.path().join("cut.safetensors"), dir.path().join("out.safetensors"));
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = read_all(&path, Some(&out)).expect_err("a truncated file was accepted");
        assert_eq!(error.kind(), ErrorKind::Data, "{length} bytes: {error}");
    }
    std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(read_all(&path, Some(&out)).is_err(), "a byte too many");
    assert!(!out.exists());
}

#[test]
fn keys_that_lie_about_blobs_are_refused() {
    let dir = tempdir().unwrap();
    let whole = victim(&dir);
    let path = dir.path().join("lie.safetensors");
    let check = |from: &str, to: &str, kind: ErrorKind| {
        assert_eq!(from.len(), to.len());
        let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).expect(from);
        let mut lie = whole.clone();
        lie[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, lie).unwrap();
        let error = inspect(&path).expect_err(to);
        assert_eq!(error.kind(), kind, "{error}");
    };
    check(r#"tenfold.format":"1""#, r#"tenfold.format":"9""#, ErrorKind::Unsupported);
    check(r#"{\"w\":{\"dtype"#, r#"{\"x\":{\"dtype"#, ErrorKind::Data);
    check(r#"{\"w\":{\"dtype"#, r#"{\"v\":{\"dtype"#, ErrorKind::Data);
    check(r#"\"shape\":[4,6]"#, r#"\"shape\":[6,4]"#, ErrorKind::Data);
    check(r#"\"dtype\":\"F32\""#, r#"\"dtype\":\"I32\""#, ErrorKind::Data);
    check(r#"\"dtype\":\"F32\""#, r#"\"dtype\":\"F3X\""#, ErrorKind::Data);
}

/// In files with checksums and in older ones.
#[test]
fn keys_without_those_that_belong_with_them_are_refused() {
    let dir = tempdir().unwrap();
    let whole = victim(&dir);
    let path = dir.path().join("lost.safetensors");
    let refuse = |whole: &[u8], key: &str, says: &str| {
        let rename = |metadata: &mut serde_json::Map<String, serde_json::Value>| {
            let value = metadata.shift_remove(key).unwrap();
            metadata.insert(key.replace('t', "u"), value);
        };
        std::fs::write(&path, edit_metadata(whole, rename)).unwrap();
        let error = Archive::open(&path).err().unwrap_or_else(|| panic!("accepted without {key}"));
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains("again"), "{error}");
    };
    for whole in [whole.clone(), older(&whole)] {
        refuse(&whole, "tenfold.format", "tenfold.tensors but not tenfold.format");
        refuse(&whole, "tenfold.tensors", "tenfold.format but not tenfold.tensors");
    }
    refuse(&whole, "tenfold.plain", "tenfold.check but not tenfold.plain");
    refuse(&whole, "tenfold.check", "tenfold.plain but not tenfold.check");
    let lone = edit_metadata(&older(&whole), |metadata| {
        metadata.retain(|key, _| !key.starts_with("tenfold."));
        metadata.insert("tenfold.note".into(), "x".into());
    });
    std::fs::write(&path, lone).unwrap();
    assert_eq!(Archive::open(&path).err().unwrap().kind(), ErrorKind::Data);
}

#[test]
fn older_files_read_and_verify_says_what_they_leave_uncovered() {
    let dir = tempdir().unwrap();
    let whole = victim(&dir);
    let [path, back] = ["old.safetensors", "back.safetensors"].map(|name| dir.path().join(name));
    let options = DecodeOptions::default();
    std::fs::write(&path, &whole).unwrap();
    assert!(verify(&path, &options, &Silent).unwrap().uncovered.is_empty());
    std::fs::write(&path, older(&whole)).unwrap();
    let verified = verify(&path, &options, &Silent).unwrap();
    let [uncovered] = verified.uncovered.as_slice() else { panic!("{verified:?}") };
    assert_eq!((uncovered.file.as_str(), uncovered.tensors, uncovered.bytes), ("old.safetensors", 1, 8));
    decompress(&path, &back, &options, false, &Silent).unwrap();
    assert_eq!(std::fs::read(back).unwrap(), std::fs::read(dir.path().join("a.safetensors")).unwrap());
}

#[test]
fn blobs_whose_metadata_was_dropped_are_no_tensors_of_bytes() {
    let dir = tempdir().unwrap();
    let whole = victim(&dir);
    let bare = edit_metadata(&whole, |metadata| metadata.retain(|key, _| !key.starts_with("tenfold.")));
    let path = dir.path().join("bare.safetensors");
    std::fs::write(&path, &bare).unwrap();
    let options = DecodeOptions::default();
    let error = verify(&path, &options, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error.to_string().contains("\"w\" is compressed") && error.to_string().contains("__metadata__"),
        "{error}"
    );
    // One shard of several: the others still say what the model is.
    let model = sharded(&dir);
    let small = dir.path().join("small");
    compress(&model, &small, &CompressOptions::new(Goal::Bits(4.0)), &Silent).unwrap();
    let shard = small.join("model-00002-of-00002.safetensors");
    let bare = edit_metadata(&std::fs::read(&shard).unwrap(), |metadata| {
        metadata.retain(|key, _| !key.starts_with("tenfold."));
    });
    std::fs::write(&shard, bare).unwrap();
    assert_eq!(Archive::open(&small).err().unwrap().kind(), ErrorKind::Data);
    assert_eq!(
        decompress(&small, &dir.path().join("back"), &options, false, &Silent).unwrap_err().kind(),
        ErrorKind::Data
    );
}

/// Lists that are sealed but wrong, as a faulty writer would make them.
#[test]
fn lists_that_do_not_fit_the_file_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let open = |plain: &[(&str, u32)], blobs: &[&str]| {
        let blobs = blobs.iter().map(|&name| (name, tenfold::Dtype::F32, &[2usize][..]));
        let plain: Vec<(String, u32)> = plain.iter().map(|&(name, sum)| (name.to_owned(), sum)).collect();
        let tags = model_tags(blobs, Some(&plain), &[]).unwrap();
        let pairs: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        write_standard(&path, &[floats("v", &[2], 1.0)], &pairs);
        Archive::open(&path).and_then(|archive| archive.read(0, &DecodeOptions::default()))
    };
    let sum = crc32fast::hash(&[b"F32[2]", floats("v", &[2], 1.0).data.as_slice()].concat());
    assert!(open(&[("v", sum), ("w", 1)], &[]).is_ok());
    for (plain, blobs) in [(&[("v", sum ^ 1)][..], &[][..]), (&[("w", sum)], &[]), (&[("v", sum)], &["v"])] {
        assert_eq!(open(plain, blobs).unwrap_err().kind(), ErrorKind::Data, "{plain:?} {blobs:?}");
    }
}

#[test]
fn an_index_that_lies_is_refused() {
    let name = "model.safetensors.index.json";
    let bend = |from: &str, to: &str| {
        let dir = tempdir().unwrap();
        let model = sharded(&dir);
        let index = std::fs::read_to_string(model.join(name)).unwrap();
        assert!(index.contains(from));
        std::fs::write(model.join(name), index.replace(from, to)).unwrap();
        Archive::open(&model).err().unwrap_or_else(|| panic!("accepted: {to}"))
    };
    let one = "\"layers.0.weight\": \"model-00001-of-00002.safetensors\"";
    let data = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        error.to_string()
    };
    assert!(
        data(bend(one, "\"layers.0.weight\": \"../model-00001-of-00002.safetensors\""))
            .contains("plain file name")
    );
    data(bend(one, "\"layers.0.weight\": \"/etc/passwd\""));
    data(bend(one, "\"layers.0.weight\": \"..\""));
    data(bend(one, "\"layers.0.weight\": \"model\\u0000\""));
    assert!(
        data(bend(one, &format!("\"layers.0.weight\": \"{}\"", "m".repeat(256)))).contains("plain file name")
    );
    data(bend(one, "\"layers.0.weight\": \"model-00002-of-00002.safetensors\""));
    data(bend(one, "\"layers.7.weight\": \"model-00001-of-00002.safetensors\""));
    assert!(data(bend("\"b\": ", "\"layers.0.weight\": ")).contains("occurs twice"));
    data(bend("\"weight_map\"", "\"wait_map\""));
    assert_eq!(bend(one, "\"layers.0.weight\": \"absent.safetensors\"").kind(), ErrorKind::Environment);
}

#[test]
fn one_name_in_two_shards_is_refused() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let two = model.join("model-00002-of-00002.safetensors");
    write_standard(&two, &[halves("layers.1.weight", &[80, 64], 0.02), floats("b", &[7], 1.0)], &[]);
    let error = Archive::open(&model).err().unwrap();
    assert!(error.to_string().contains("\"b\" lies in"), "{error}");
}

#[test]
fn folders_that_hold_no_single_model_are_refused() {
    let dir = tempdir().unwrap();
    assert_eq!(Archive::open(dir.path()).err().unwrap().kind(), ErrorKind::Data);
    for name in ["a.safetensors", "b.safetensors"] {
        write_raw(&dir.path().join(name), "{}", &[]);
    }
    assert!(Archive::open(dir.path()).err().unwrap().to_string().contains("2 safetensors files"));
}
