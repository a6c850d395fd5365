//! Replays every input that a fuzz target once failed on (and a few hand-made ones), with the bodies of the
//! targets themselves. They are checked here because this crate sees both the codec and the files, and needs no
//! fuzzer to be built.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a broken promise is a panic here

use std::path::Path;

#[path = "../../../fuzz/src/bodies/mod.rs"]
mod bodies;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    for path in inputs {
        // Printed by the test harness when the body panics.
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn blob_decode() {
    replay("blob_decode", bodies::blob_decode::run);
}

#[test]
fn blob_mutate() {
    replay("blob_mutate", bodies::blob_mutate::run);
}

#[test]
fn archive_read() {
    replay("archive_read", bodies::archive_read::run);
}

#[test]
fn roundtrip() {
    replay("roundtrip", bodies::roundtrip::run);
}

#[test]
fn delta() {
    replay("delta", bodies::delta::run);
}

#[test]
fn delta_file() {
    replay("delta_file", bodies::delta_file::run);
    for seed in bodies::delta_file::seeds() {
        bodies::delta_file::run(&seed);
        for at in (0..seed.len()).step_by(7) {
            let mut bent = seed.clone();
            bent[at] ^= 1 << (at % 8);
            bodies::delta_file::run(&bent);
        }
    }
}
