//! Adds missing golden vectors and golden errors to conformance/v1; what is there is never touched.
//!
//! `cargo run --example conformance -p tenfold [FOLDER]`; another folder gets everything anew, to compare.
//! See conformance/README.md.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod crafted;
mod deltas;
mod encoded;
mod errors;
mod features;
mod layered;
mod paired;
mod writer;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenfold::DecodeOptions;

/// A blob, and what it must decode to.
pub struct Made {
    pub blob: Vec<u8>,
    pub data: Vec<u8>,
}

/// How to make a golden vector.
pub struct Vector {
    pub name: String,
    pub note: &'static str,
    /// Features that it is there for.
    pub shows: Vec<String>,
    pub make: Box<dyn Fn() -> Made>,
}

/// How to make a golden error.
pub struct Fault {
    pub name: &'static str,
    pub kind: &'static str,
    /// Part of the message.
    pub message: &'static str,
    pub note: &'static str,
    pub make: Box<dyn Fn() -> Vec<u8>>,
}

type Entry = (Value, Vec<(&'static str, Vec<u8>)>);

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/v1");
    let root = std::env::args_os().nth(1).map_or(here, PathBuf::from);
    std::fs::create_dir_all(root.join("errors")).unwrap();
    let vectors = encoded::vectors()
        .into_iter()
        .chain(crafted::vectors())
        .chain(layered::vectors())
        .chain(paired::vectors());
    let added = add(&root, "index.json", vectors.map(|v| (v.name.clone(), v)), vector);
    let faults = errors::faults().into_iter().map(|f| (f.name.to_string(), f));
    let refused = add(&root.join("errors"), "errors.json", faults, fault);
    std::fs::create_dir_all(root.join("deltas")).unwrap();
    let deltas = deltas::deltas().into_iter().map(|delta| (delta.0.clone(), delta));
    let changed = add(&root.join("deltas"), "deltas.json", deltas, deltas::entry);
    println!("added {added} vectors, {refused} errors and {changed} deltas");
}

/// Writes what the index does not have yet; nothing at all if any of it is not what it should be.
fn add<T>(
    root: &Path,
    index: &str,
    items: impl Iterator<Item = (String, T)>,
    make: impl Fn(&T) -> Result<Entry, String>,
) -> usize {
    let path = root.join(index);
    let mut entries: Vec<Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
        Err(_) => Vec::new(),
    };
    let known: BTreeSet<String> = entries.iter().map(|e| e["name"].as_str().unwrap().into()).collect();
    let missing: Vec<(String, T)> = items.filter(|(name, _)| !known.contains(name)).collect();
    let made: Vec<(&String, Result<Entry, String>)> =
        missing.iter().map(|(n, item)| (n, make(item))).collect();
    let faults: Vec<String> =
        made.iter().filter_map(|(n, m)| m.as_ref().err().map(|e| format!("{n}: {e}"))).collect();
    assert!(faults.is_empty(), "nothing was added:\n{}", faults.join("\n"));
    for (name, (entry, files)) in made.into_iter().filter_map(|(n, m)| Some((n, m.ok()?))) {
        for (suffix, bytes) in files {
            let file = root.join(format!("{name}.{suffix}"));
            let mut out = File::create_new(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            out.write_all(&bytes).unwrap();
        }
        entries.push(entry);
    }
    let lines: Vec<String> = entries.iter().map(|e| serde_json::to_string(e).unwrap()).collect();
    std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    missing.len()
}

fn vector(v: &Vector) -> Result<Entry, String> {
    let made = (v.make)();
    let back = tenfold::decode(&made.blob, &DecodeOptions::default()).map_err(|e| e.to_string())?;
    if back.data != made.data {
        return Err("decodes to something else".into());
    }
    let found = features::features(&made.blob, &made.data);
    let missing: Vec<&String> = v.shows.iter().filter(|&f| !found.contains(f)).collect();
    if !missing.is_empty() {
        return Err(format!("{missing:?} is not in {found:?}"));
    }
    let entry = json!({
        "name": v.name,
        "note": v.note,
        "file": format!("{}.tnf", v.name),
        "expected": format!("{}.bin", v.name),
        "dtype": back.dtype.name(),
        "shape": back.shape,
        "file_crc32": format!("{:08x}", crc32fast::hash(&made.blob)),
        "expected_crc32": format!("{:08x}", crc32fast::hash(&made.data)),
        "features": found,
    });
    Ok((entry, vec![("tnf", made.blob), ("bin", made.data)]))
}

fn fault(f: &Fault) -> Result<Entry, String> {
    let blob = (f.make)();
    let error = match tenfold::decode(&blob, &DecodeOptions::default()) {
        Ok(_) => return Err("is not refused".into()),
        Err(error) => error,
    };
    let kind = format!("{:?}", error.kind()).to_lowercase();
    if kind != f.kind || !error.to_string().contains(f.message) {
        return Err(format!("{kind}: {error}"));
    }
    let entry = json!({
        "name": f.name,
        "note": f.note,
        "file": format!("{}.tnf", f.name),
        "kind": f.kind,
        "message": f.message,
        "file_crc32": format!("{:08x}", crc32fast::hash(&blob)),
    });
    Ok((entry, vec![("tnf", blob)]))
}
