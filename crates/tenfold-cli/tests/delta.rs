//! Deltas on the command line: made, listed, applied, joined; refused with a code and a text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::time::Duration;

use common::{Bench, write_model};

/// Versions of the bench's model: v1, v2, … each with other values of its last tensors.
fn versions(bench: &Bench, count: usize) {
    let whole = std::fs::read(bench.path("model.safetensors")).unwrap();
    let mut bytes = whole;
    for version in 1..=count {
        let end = bytes.len();
        for at in (0..4000).step_by(40 * version) {
            bytes[end - 40 - 4 * at] ^= version as u8;
        }
        std::fs::write(bench.path(&format!("v{version}.safetensors")), &bytes).unwrap();
    }
}

fn same(bench: &Bench, a: &str, b: &str) {
    assert!(std::fs::read(bench.path(a)).unwrap() == std::fs::read(bench.path(b)).unwrap(), "{a} and {b}");
}

const MAKE: [&str; 6] = ["delta", "make", "model.safetensors", "v1.safetensors", "-o", "d1.safetensors"];

#[test]
fn a_delta_is_made_listed_and_applied() {
    let bench = Bench::new();
    versions(&bench, 1);
    let text = bench.ok(&MAKE);
    assert!(text.contains("1 of 3 tensors change") && text.contains("every bit comes back"), "{text}");
    let text = bench.ok(&["delta", "inspect", "d1.safetensors"]);
    assert!(
        text.contains("layers.1.weight") && text.contains("delta") && !text.contains("layers.0"),
        "{text}"
    );
    let json = bench.json(&["delta", "inspect", "d1.safetensors", "--json"]);
    assert_eq!(json["tensors"][0]["how"], "delta");
    assert_eq!((&json["exact"], &json["total"]["tensors"]), (&true.into(), &1.into()));
    bench.ok(&["delta", "apply", "model.safetensors", "d1.safetensors", "-o", "out.safetensors"]);
    same(&bench, "out.safetensors", "v1.safetensors");
    // From a base that is kept compressed.
    bench.ok(&["compress", "model.safetensors", "-o", "small.safetensors", "--lossless"]);
    bench.ok(&["delta", "apply", "small.safetensors", "d1.safetensors", "-o", "out.safetensors", "--force"]);
    same(&bench, "out.safetensors", "v1.safetensors");
    // In place, and once more.
    let text = bench.ok(&["delta", "apply", "model.safetensors", "d1.safetensors", "--in-place"]);
    assert!(text.contains("one file updated"), "{text}");
    same(&bench, "model.safetensors", "v1.safetensors");
    let text = bench.ok(&["delta", "apply", "model.safetensors", "d1.safetensors", "--in-place"]);
    assert!(text.contains("nothing to do"), "{text}");
}

#[test]
fn deltas_are_joined_in_order() {
    let bench = Bench::new();
    versions(&bench, 3);
    bench.ok(&MAKE);
    bench.ok(&["delta", "make", "v1.safetensors", "v2.safetensors", "-o", "d2.safetensors"]);
    bench.ok(&["delta", "make", "v2.safetensors", "v3.safetensors", "-o", "d3.safetensors"]);
    let squash = |more: &[&'static str]| [&["delta", "squash", "-o", "all.safetensors"][..], more].concat();
    let text = bench.fails(2, &squash(&["d1.safetensors", "d2.safetensors", "d3.safetensors"]));
    assert!(text.contains("--base"), "{text}");
    let text = bench.fails(2, &squash(&["d1.safetensors", "d3.safetensors", "--base", "model.safetensors"]));
    assert!(text.contains("missing"), "{text}");
    let text = bench.fails(2, &squash(&["d1.safetensors", "d3.safetensors", "d2.safetensors"]));
    assert!(text.contains("out of order") && text.contains("d2.safetensors"), "{text}");
    let all = ["d1.safetensors", "d2.safetensors", "d3.safetensors"];
    bench.ok(&squash(&[&all[..], &["--base", "model.safetensors"]].concat()));
    bench.ok(&["delta", "make", "model.safetensors", "v3.safetensors", "-o", "direct.safetensors"]);
    same(&bench, "all.safetensors", "direct.safetensors");
    bench.ok(&[&["delta", "apply", "model.safetensors"][..], &all, &["-o", "out.safetensors"]].concat());
    same(&bench, "out.safetensors", "v3.safetensors");
    let text =
        bench.fails(2, &["delta", "apply", "model.safetensors", "d2.safetensors", "-o", "x.safetensors"]);
    assert!(text.contains("another base"), "{text}");
    let text = bench
        .fails(2, &["delta", "apply", "model.safetensors", "d1.safetensors", "d2.safetensors", "--in-place"]);
    assert!(text.contains("squash"), "{text}");
}

#[test]
fn goals_make_lossy_deltas() {
    let bench = Bench::new();
    // Every value is another one.
    let mut bytes = std::fs::read(bench.path("model.safetensors")).unwrap();
    let values = bytes.len() - 2 * 64 * 96 * 4;
    bytes[values..].rotate_left(4000);
    std::fs::write(bench.path("v1.safetensors"), bytes).unwrap();
    let text = bench.ok(&[&MAKE[..], &["--bits", "1", "--exclude", "layers.0.*"]].concat());
    assert!(text.contains("with loss"), "{text}");
    let rows = bench.json(&["delta", "inspect", "d1.safetensors", "--json"]);
    let how: Vec<&str> =
        rows["tensors"].as_array().unwrap().iter().map(|t| t["how"].as_str().unwrap()).collect();
    assert_eq!(how, ["delta", "difference", "delta"]);
    bench.ok(&["delta", "apply", "model.safetensors", "d1.safetensors", "-o", "out.safetensors"]);
    bench.ok(&["delta", "apply", "out.safetensors", "d1.safetensors", "-o", "again.safetensors"]);
    same(&bench, "out.safetensors", "again.safetensors");
    bench.fails(2, &[&MAKE[..], &["--bits", "1", "--nmse", "0.1", "--force"]].concat());
    bench.fails(2, &[&MAKE[..], &["--bits", "-1", "--force"]].concat());
    bench.fails(2, &[&MAKE[..], &["--qp", "20", "--force"]].concat());
}

#[test]
fn what_is_not_a_delta_or_not_a_model_is_told() {
    let bench = Bench::new();
    versions(&bench, 1);
    bench.ok(&MAKE);
    let text = bench.fails(2, &MAKE);
    assert!(text.contains("--force"), "{text}");
    let text = bench.fails(3, &["delta", "inspect", "model.safetensors"]);
    assert!(text.contains("not a delta"), "{text}");
    for command in
        [&["inspect", "d1.safetensors"][..], &["decompress", "d1.safetensors", "-o", "x.safetensors"]]
    {
        let text = bench.fails(3, command);
        assert!(text.contains("tenfold delta apply"), "{text}");
    }
    bench.fails(2, &["delta", "apply", "model.safetensors", "d1.safetensors"]);
    bench.fails(
        2,
        &["delta", "apply", "model.safetensors", "d1.safetensors", "-o", "d1.safetensors", "--force"],
    );
    bench.fails(2, &["delta", "apply", "model.safetensors", "-o", "x.safetensors"]);
    bench.fails(6, &["delta", "apply", "absent.safetensors", "d1.safetensors", "-o", "x.safetensors"]);
    let whole = std::fs::read(bench.path("d1.safetensors")).unwrap();
    std::fs::write(bench.path("cut.safetensors"), &whole[..whole.len() - 5]).unwrap();
    bench.fails(3, &["delta", "apply", "model.safetensors", "cut.safetensors", "--in-place"]);
    assert!(!bench.path("x.safetensors").exists());
}

/// Killed at any moment, an application in place leaves a file that is old or new, and a second run ends in the same bytes.
#[test]
fn a_killed_application_is_completed_by_the_next() {
    let bench = Bench::new();
    write_model(&bench.path("model.safetensors"), 8, 512, 512);
    versions(&bench, 1);
    bench.ok(&MAKE);
    let old = std::fs::read(bench.path("model.safetensors")).unwrap();
    let new = std::fs::read(bench.path("v1.safetensors")).unwrap();
    let apply = ["delta", "apply", "model.safetensors", "d1.safetensors", "--in-place", "--quiet"];
    for delay in [0, 2, 5, 10, 20, 40, 80] {
        std::fs::write(bench.path("model.safetensors"), &old).unwrap();
        let mut child = bench.command(&apply).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        let _ = child.kill();
        let _ = child.wait();
        let left = std::fs::read(bench.path("model.safetensors")).unwrap();
        assert!(left == old || left == new, "a file is old or new");
        bench.ok(&apply);
        assert!(std::fs::read(bench.path("model.safetensors")).unwrap() == new);
    }
    assert!(bench.list().iter().all(|name| !name.ends_with("tenfold-tmp")), "{:?}", bench.list());
}
