//! What does not belong together is refused with a typed error, and nothing has changed then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::{Path, PathBuf};

use common::*;
use tempfile::{TempDir, tempdir};
use tenfold::engine::{ErrorKind, Limits, Stop};
use tenfold::{DecodeOptions, Dtype, TensorView};
use tenfold_archive::delta::{self, ApplyOptions, DeltaFile, MakeOptions, TensorMut, Tensors, Verify};
use tenfold_archive::{Archive, Error, Silent};

fn old() -> Vec<Made> {
    vec![floats("w", &[40, 25], 0.05), halves("h", &[300], 0.1), floats("same", &[30], 1.0)]
}

fn new() -> Vec<Made> {
    let old = old();
    vec![trained(&old[0], 50), trained(&old[1], 30), renamed(&old[2], "same"), floats("added", &[7], 1.0)]
}

fn bytes_of(old: &[Made], new: &[Made]) -> Vec<u8> {
    let view = |made: &'_ Made| {
        let dtype = if made.dtype == safetensors::Dtype::F32 { Dtype::F32 } else { Dtype::Bf16 };
        (made.name.clone(), dtype, made.shape.clone(), made.data.clone())
    };
    let (old, new): (Vec<_>, Vec<_>) = (old.iter().map(view).collect(), new.iter().map(view).collect());
    let tensors = |list| Tensors::new(views(list)).unwrap();
    delta::make_bytes(&tensors(&old), &tensors(&new), &MakeOptions::default(), &Silent).unwrap().0
}

type Owned = (String, Dtype, Vec<usize>, Vec<u8>);

fn views(list: &[Owned]) -> impl Iterator<Item = (String, TensorView<'_>)> {
    list.iter()
        .map(|(name, dtype, shape, data)| (name.clone(), TensorView::new(*dtype, shape, data).unwrap()))
}

fn open(bytes: &[u8]) -> Result<DeltaFile, Error> {
    DeltaFile::parse(bytes.to_vec(), Path::new("delta"))
}

fn file(dir: &TempDir, name: &str, tensors: &[Made]) -> PathBuf {
    let path = dir.path().join(name);
    write_standard(&path, tensors, &[]);
    path
}

fn apply(base: &Path, delta: &DeltaFile, out: &Path) -> Result<(), Error> {
    delta::apply(&Archive::open(base).unwrap(), &[delta], out, &ApplyOptions::default(), &Silent)
}

#[test]
fn another_base_is_refused_and_nothing_is_written() {
    let dir = tempdir().unwrap();
    let delta = open(&bytes_of(&old(), &new())).unwrap();
    let out = dir.path().join("out.safetensors");
    let mut cases: Vec<(&str, Vec<Made>)> = Vec::new();
    let mut changed = old();
    changed[0].data[0] ^= 1; // a value that the delta changes
    cases.push(("another base", changed));
    let mut changed = old();
    changed[0].data[4] ^= 1; // one that it does not, of a tensor that it does
    cases.push(("another base", changed));
    let mut changed = old();
    changed[2].data[0] ^= 1;
    cases.push(("no delta changes", changed));
    let mut changed = old();
    changed.remove(0);
    cases.push(("no tensor \"w\"", changed));
    let mut changed = old();
    changed.push(floats("more", &[3], 1.0));
    cases.push(("no delta changes", changed));
    let mut changed = old();
    changed[0] = halves("w", &[40, 25], 0.05);
    cases.push(("f32 [40, 25] there and bf16 [40, 25] here", changed));
    let mut changed = old();
    changed[0] = floats("w", &[40, 26], 0.05);
    cases.push(("f32 [40, 26] here", changed));
    for (i, (text, tensors)) in cases.iter().enumerate() {
        let base = file(&dir, &format!("{i}.safetensors"), tensors);
        let before = std::fs::read(&base).unwrap();
        let error = apply(&base, &delta, &out).unwrap_err();
        let typed = match &error {
            Error::WrongBase { .. } => true,
            Error::Codec { source, .. } => matches!(source, tenfold::Error::WrongBase { .. }),
            _ => false,
        };
        assert!(typed && error.to_string().contains(text), "{text}: {error}");
        assert_eq!(error.kind(), ErrorKind::Caller);
        assert!(!out.exists() && std::fs::read(&base).unwrap() == before);
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_noticed() {
    let delta = bytes_of(&old(), &new());
    let base = old();
    let base = [
        (base[0].name.clone(), Dtype::F32, base[0].shape.clone(), base[0].data.clone()),
        (base[1].name.clone(), Dtype::Bf16, base[1].shape.clone(), base[1].data.clone()),
        (base[2].name.clone(), Dtype::F32, base[2].shape.clone(), base[2].data.clone()),
    ];
    let base = Tensors::new(views(&base)).unwrap();
    let read = |bytes: &[u8]| -> Result<(), Error> {
        let delta = open(bytes)?;
        let patched = delta::Patched::new(&base, &[&delta], &ApplyOptions::default().with_threads(1))?;
        patched.read_changes(&Silent).map(|_| ())
    };
    read(&delta).unwrap();
    for length in 0..delta.len() {
        assert_eq!(open(&delta[..length]).err().unwrap().kind(), ErrorKind::Data, "{length}");
    }
    for bit in 0..8 * delta.len() {
        let mut bent = delta.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&bent).is_err(), "bit {bit}");
    }
    // Without its checksums, a file is not taken for an older one.
    assert!(open(&older(&delta)).is_err());
    let untagged = edit_metadata(&delta, |metadata| metadata.retain(|key, _| key != "tenfold.delta"));
    assert!(open(&untagged).is_err());
}

#[test]
fn models_are_not_deltas_and_deltas_are_not_models() {
    let dir = tempdir().unwrap();
    let a = file(&dir, "a.safetensors", &old());
    let error = DeltaFile::open(&a).err().unwrap();
    assert!(error.kind() == ErrorKind::Data && error.to_string().contains("not a delta"), "{error}");
    let d = dir.path().join("d.safetensors");
    std::fs::write(&d, bytes_of(&old(), &new())).unwrap();
    let error = Archive::open(&d).err().unwrap();
    assert!(matches!(&error, Error::IsDelta(path) if *path == d), "{error}");
    assert!(matches!(Archive::parse(std::fs::read(&d).unwrap(), &d), Err(Error::IsDelta(_))));
    // Nothing overwrites what is read.
    let (base, delta) = (Archive::open(&a).unwrap(), DeltaFile::open(&d).unwrap());
    for out in [&a, &d] {
        let options = ApplyOptions::default().with_overwrite(true);
        let error = delta::apply(&base, &[&delta], out, &options, &Silent).unwrap_err();
        assert!(error.to_string().contains("both input and output"), "{error}");
    }
    let tensors = Tensors::of_archive(&base, &DecodeOptions::default());
    let options = MakeOptions::default().with_overwrite(true);
    let error = delta::make(&tensors, &tensors, &a, &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("both input and output"), "{error}");
    let error = delta::squash(&[&delta], None, &d, &MakeOptions::default().with_overwrite(true), &Silent);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Caller);
    let out = file(&dir, "out.safetensors", &old());
    assert!(matches!(apply(&a, &delta, &out), Err(Error::OutputExists(_))));
}

fn slices<'a>(tensors: &'a mut [Made]) -> Vec<TensorMut<'a>> {
    let slice = |made: &'a mut Made| TensorMut {
        name: &made.name,
        dtype: if made.dtype == safetensors::Dtype::F32 { Dtype::F32 } else { Dtype::Bf16 },
        shape: &made.shape,
        data: &mut made.data,
    };
    tensors.iter_mut().map(slice).collect()
}

fn data(tensors: &[Made]) -> Vec<Vec<u8>> {
    tensors.iter().map(|made| made.data.clone()).collect()
}

#[test]
fn memory_stays_as_it_is_if_any_tensor_is_wrong() {
    let values = |list: Vec<Made>| list.into_iter().filter(|made| made.name != "added").collect::<Vec<_>>();
    let delta = open(&bytes_of(&old(), &values(new()))).unwrap();
    let options = ApplyOptions::default();
    let mut cases: Vec<(Vec<Made>, Verify)> = Vec::new();
    for (tensor, at, verify) in [
        (0, 0, Verify::Whole),
        (0, 0, Verify::Touched),
        (1, 0, Verify::Touched),
        (0, 4, Verify::Whole),
        (2, 0, Verify::Whole),
    ] {
        let mut wrong = old();
        wrong[tensor].data[at] ^= 1;
        cases.push((wrong, verify));
    }
    let mut wrong = old();
    wrong.remove(0);
    cases.push((wrong, Verify::Touched));
    let mut wrong = old();
    wrong[0].shape = vec![25, 40];
    cases.push((wrong, Verify::Touched));
    for (mut tensors, verify) in cases {
        let before = data(&tensors);
        let options = options.clone().with_verify(verify);
        let error = delta::apply_in_place(&mut slices(&mut tensors), &delta, &options, &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller, "{error}");
        assert_eq!(data(&tensors), before);
    }
    // What adds, removes or renames needs another place.
    for next in [
        new(),
        vec![trained(&old()[0], 3)],
        vec![renamed(&old()[0], "v"), renamed(&old()[1], "h"), renamed(&old()[2], "same")],
    ] {
        let delta = open(&bytes_of(&old(), &next)).unwrap();
        let mut tensors = old();
        let error = delta::apply_in_place(&mut slices(&mut tensors), &delta, &options, &Silent).unwrap_err();
        assert!(error.to_string().contains("in place"), "{error}");
        assert_eq!(data(&tensors), data(&old()));
    }
}

#[test]
fn files_stay_as_they_are_if_any_tensor_is_wrong() {
    let dir = tempdir().unwrap();
    let values: Vec<Made> = new().into_iter().filter(|made| made.name != "added").collect();
    let (exact, more) = (open(&bytes_of(&old(), &values)).unwrap(), open(&bytes_of(&old(), &new())).unwrap());
    let mut wrong = old();
    wrong[2].data[0] ^= 1;
    for (name, tensors, delta) in [("a", &wrong, &exact), ("b", &old(), &more)] {
        let path = file(&dir, name, tensors);
        let before = std::fs::read(&path).unwrap();
        let error = delta::update(&path, delta, &ApplyOptions::default(), &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    let path = file(&dir, "c", &old());
    let small = dir.path().join("small.safetensors");
    let options = tenfold_archive::CompressOptions::new(tenfold::Goal::Lossless).with_include("*");
    tenfold_archive::compress(&path, &small, &options, &Silent).unwrap();
    let error = delta::update(&small, &exact, &ApplyOptions::default(), &Silent).unwrap_err();
    assert!(error.to_string().contains("plain safetensors"), "{error}");
}

#[test]
fn limits_and_stops_end_the_work() {
    let dir = tempdir().unwrap();
    let delta = open(&bytes_of(&old(), &new())).unwrap();
    let a = file(&dir, "a.safetensors", &old());
    let base = Archive::open(&a).unwrap();
    let out = dir.path().join("out.safetensors");
    let limited = ApplyOptions::default().with_limits(Limits::default().with_max_bytes(100));
    let error = delta::apply(&base, &[&delta], &out, &limited, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    let stop = Stop::new();
    stop.stop();
    let stopped = ApplyOptions::default().with_stop(stop.clone());
    assert!(delta::apply(&base, &[&delta], &out, &stopped, &Silent).is_err());
    let base = Tensors::of_archive(&base, &DecodeOptions::default());
    let options = MakeOptions::default().with_stop(stop);
    assert!(delta::make(&base, &base, &out, &options, &Silent).is_err());
    assert_eq!(list(dir.path()), ["a.safetensors"]);
}
