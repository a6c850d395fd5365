//! `compress --part` and `--join`: the same bytes as one process writes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::Bench;

#[test]
fn parts_make_the_bytes_of_one_process() {
    let bench = Bench::new();
    common::write_model(&bench.path("model.safetensors"), 5, 64, 96);
    bench.ok(&["compress", "model.safetensors", "-o", "one.safetensors", "--bits", "3"]);
    let goal = ["model.safetensors", "-o", "many.safetensors", "--bits", "3"];
    for part in ["3/3", "1/3"] {
        bench.ok(&[&["compress"], &goal[..], &["--part", part]].concat());
    }
    let missing = bench.fails(2, &[&["compress"], &goal[..], &["--join"]].concat());
    assert!(missing.contains("part 2/3 is missing") && missing.contains("--part 2/3"), "{missing}");
    assert!(!bench.path("many.safetensors").exists());

    let report = bench.json(&[&["compress"], &goal[..], &["--part", "2/3", "--json"]].concat());
    assert_eq!((&report["part"]["number"], &report["was_done"]), (&2.into(), &false.into()));
    let again = bench.json(&[&["compress"], &goal[..], &["--part", "2/3", "--json"]].concat());
    assert_eq!((&again["stored_bytes"], &again["was_done"]), (&report["stored_bytes"], &true.into()));
    let joined = bench.ok(&[&["compress"], &goal[..], &["--join"]].concat());
    assert!(joined.contains("5 of 6 tensors compressed"), "{joined}");
    let read = |name| std::fs::read(bench.path(name)).unwrap();
    assert_eq!(read("one.safetensors"), read("many.safetensors"));
}

#[test]
fn parts_of_other_options_or_another_input_are_refused() {
    let bench = Bench::new();
    let with = |bits: &'static str, more: &[&'static str]| {
        [&["compress", "model.safetensors", "-o", "out.safetensors", "--bits", bits], more].concat()
    };
    bench.ok(&with("3", &["--part", "1/2"]));
    bench.ok(&with("3", &["--part", "2/2"]));
    let other = bench.fails(2, &with("4", &["--join"]));
    assert!(other.contains("part 1/2") && other.contains("other options"), "{other}");
    assert!(bench.fails(2, &with("4", &["--part", "1/2"])).contains("delete it"));

    // The same names and shapes, other values.
    let mut bytes = std::fs::read(bench.path("model.safetensors")).unwrap();
    let end = bytes.len() - 100;
    bytes[end] ^= 1;
    std::fs::write(bench.path("model.safetensors"), &bytes).unwrap();
    let other = bench.fails(2, &with("3", &["--join"]));
    assert!(other.contains("other values"), "{other}");
    bytes[end] ^= 1;
    std::fs::write(bench.path("model.safetensors"), &bytes).unwrap();

    // Another split beside the first, and numbers that no part has.
    bench.ok(&with("3", &["--part", "1/1"]));
    assert!(bench.fails(2, &with("3", &["--join"])).contains("2 splits"));
    for part in ["0/2", "3/2", "2", "a/b"] {
        bench.fails(2, &with("3", &["--part", part]));
    }
    bench.fails(2, &with("3", &["--part", "1/2", "--alloc", "step"]));
}

#[test]
fn a_damaged_part_is_made_again_and_never_joined() {
    let bench = Bench::new();
    let with = |more: &[&'static str]| {
        [&["compress", "model.safetensors", "-o", "out.safetensors", "--bits", "3"], more].concat()
    };
    bench.ok(&with(&["--part", "1/1"]));
    let part = bench.path("out.safetensors.parts/part-00001-of-00001.safetensors");
    let whole = std::fs::read(&part).unwrap();
    for at in [whole.len() - 50, 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&part, &bytes).unwrap();
        let code = bench.run(&with(&["--join"])).status.code();
        assert!(matches!(code, Some(2 | 3)), "{code:?}");
        assert!(!bench.path("out.safetensors").exists());
        assert!(!bench.ok(&with(&["--part", "1/1"])).contains("already"));
        assert_eq!(std::fs::read(&part).unwrap(), whole);
    }
    bench.ok(&with(&["--join"]));
}
