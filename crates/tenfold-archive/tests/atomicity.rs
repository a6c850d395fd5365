//! Output appears whole or not at all, and never in place of what should be kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::Path;

use common::*;
use tempfile::tempdir;
use tenfold::engine::{ErrorKind, Stop};
use tenfold::{DecodeOptions, Goal};
use tenfold_archive::{Alloc, CompressOptions, Error, Silent, compress, decompress};

fn options() -> CompressOptions {
    CompressOptions::new(Goal::Lossless)
}

fn refused(input: &Path, output: &Path) -> Error {
    compress(input, output, &options(), &Silent).err().unwrap_or_else(|| panic!("wrote {}", output.display()))
}

#[test]
fn input_as_output_is_refused_however_it_is_spelt() {
    let dir = tempdir().unwrap();
    let a = dir.path().join("a.safetensors");
    write_standard(&a, &small_model(), &[]);
    let before = std::fs::read(&a).unwrap();
    let mut spellings = vec![a.clone(), dir.path().join("./a.safetensors")];
    #[cfg(unix)]
    {
        let link = dir.path().join("link.safetensors");
        std::os::unix::fs::symlink(&a, &link).unwrap();
        spellings.push(link);
    }
    for output in spellings {
        let error = compress(&a, &output, &options().with_overwrite(true), &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
        assert!(error.to_string().contains("both input and output"), "{error}");
    }
    assert_eq!(std::fs::read(&a).unwrap(), before);
}

#[test]
fn a_folder_is_neither_its_own_output_nor_holds_it() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let index = model.join("model.safetensors.index.json");
    for (input, output) in [(&model, &model), (&index, &model), (&model, &model.join("out"))] {
        let error = compress(input, output, &options().with_overwrite(true), &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller, "{error}");
    }
    assert_eq!(list(&model).len(), 5);
}

#[test]
fn what_exists_is_replaced_only_when_asked() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &small_model(), &[]);
    std::fs::write(&b, "precious").unwrap();
    assert_eq!(refused(&a, &b).kind(), ErrorKind::Caller);
    assert_eq!(std::fs::read(&b).unwrap(), b"precious");
    compress(&a, &b, &options().with_overwrite(true), &Silent).unwrap();
    assert_ne!(std::fs::read(&b).unwrap(), b"precious");

    let model = sharded(&dir);
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    compress(&model, &out, &options(), &Silent).unwrap(); // empty: nothing to lose
    std::fs::write(out.join("notes.txt"), "precious").unwrap();
    assert_eq!(refused(&model, &out).kind(), ErrorKind::Caller);
    compress(&model, &out, &options().with_overwrite(true), &Silent).unwrap();
    assert_eq!(std::fs::read(out.join("notes.txt")).unwrap(), b"precious");
    assert_eq!(list(&out).len(), 6, "{:?}", list(&out));
}

#[test]
fn kinds_of_output_are_not_mixed_up() {
    let dir = tempdir().unwrap();
    let a = dir.path().join("a.safetensors");
    write_standard(&a, &small_model(), &[]);
    assert!(refused(&a, dir.path()).to_string().contains("is a folder"));
    let model = sharded(&dir);
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(refused(&model, &file).to_string().contains("is a file"));
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let dir = tempdir().unwrap();
    let a = dir.path().join("a.safetensors");
    write_standard(&a, &small_model(), &[]);
    for output in [dir.path().join("absent/b.safetensors"), a.join("b.safetensors")] {
        let error = refused(&a, &output);
        assert_eq!(error.kind(), ErrorKind::Environment, "{error}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_failure_half_way_leaves_the_old_target_and_nothing_else() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &small_model(), &[]);
    compress(&a, &b, &options(), &Silent).unwrap();
    let mut bent = std::fs::read(&b).unwrap();
    let last = bent.len() - 20;
    bent[last] ^= 0x55;
    std::fs::write(&b, bent).unwrap();
    std::fs::write(&c, "old").unwrap();
    let error = decompress(&b, &c, &DecodeOptions::default(), true, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(std::fs::read(&c).unwrap(), b"old");
    assert_eq!(list(dir.path()).len(), 3);
}

#[test]
fn leftovers_of_dead_runs_go_and_those_of_live_runs_stay() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &small_model(), &[]);
    let [dead, live, other] = [".b.safetensors.dead00", ".b.safetensors.live00", ".c.safetensors.dead00"]
        .map(|name| {
            let folder = dir.path().join(format!("{name}.tenfold-tmp"));
            std::fs::create_dir_all(folder.join("payload")).unwrap();
            std::fs::write(folder.join("lock"), "").unwrap();
            folder
        });
    let lock = std::fs::File::options().write(true).open(live.join("lock")).unwrap();
    lock.lock().unwrap();
    compress(&a, &b, &options(), &Silent).unwrap();
    assert!(!dead.exists() && live.exists() && other.exists());
}

#[cfg(unix)]
#[test]
fn output_has_the_usual_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &small_model(), &[]);
    compress(&a, &b, &options(), &Silent).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&a), mode(&b));
}

#[test]
fn compressing_twice_is_refused() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &small_model(), &[]);
    compress(&a, &b, &options(), &Silent).unwrap();
    assert!(refused(&b, &c).to_string().contains("already compressed"));
    let error = decompress(&a, &c, &DecodeOptions::default(), false, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
}

#[test]
fn what_is_stopped_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &small_model(), &[]);
    for alloc in [Alloc::Equal, Alloc::Step] {
        let stop = Stop::new();
        stop.stop();
        let options = CompressOptions::new(Goal::Bits(3.0)).with_alloc(alloc).with_stop(stop);
        let error = compress(&a, &b, &options, &Silent).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Caller);
    }
    assert_eq!(list(dir.path()), ["a.safetensors"]);
}
