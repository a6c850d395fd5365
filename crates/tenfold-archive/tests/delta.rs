//! A delta of two models makes the one of the other, wherever they lie.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::{Path, PathBuf};

use common::*;
use safetensors::Dtype as Stored;
use tempfile::{TempDir, tempdir};
use tenfold::{DecodeOptions, Dtype, Goal, TensorView};
use tenfold_archive::delta::{
    self, ApplyOptions, DeltaFile, DeltaReport, How, MakeOptions, Patched, TensorMut, Tensors, Verify,
};
use tenfold_archive::{Archive, CompressOptions, Error, Silent, compress};

fn make(base: &Path, new: &Path, out: &Path, options: &MakeOptions) -> DeltaReport {
    let (base, new) = (Archive::open(base).unwrap(), Archive::open(new).unwrap());
    let decode = DecodeOptions::default();
    let (base, new) = (Tensors::of_archive(&base, &decode), Tensors::of_archive(&new, &decode));
    delta::make(&base, &new, out, options, &Silent).unwrap()
}

fn apply(base: &Path, delta: &Path, out: &Path) {
    let (base, delta) = (Archive::open(base).unwrap(), DeltaFile::open(delta).unwrap());
    delta::apply(&base, &[&delta], out, &ApplyOptions::default(), &Silent).unwrap();
}

fn paths<const N: usize>(dir: &TempDir, names: [&str; N]) -> [PathBuf; N] {
    names.map(|name| dir.path().join(name))
}

/// A model and its next version: a matrix trained, another as it was, one of another shape, one of another dtype, one new, one gone, one renamed.
fn versions() -> (Vec<Made>, Vec<Made>) {
    let old = vec![
        floats("trained", &[64, 96], 0.05),
        halves("same", &[80, 64], 0.02),
        floats("reshaped", &[64, 64], 0.1),
        floats("retyped", &[64, 65], 0.1),
        halves("old name", &[33, 65], 0.1),
        floats("gone", &[12], 1.0),
        bytes("ids", Stored::I64, &[1, 33]),
        bytes("complex", Stored::C64, &[5]),
        bytes("flag", Stored::BOOL, &[3]),
    ];
    let mut complex = trained(&old[7], 2);
    complex.name = "complex".into();
    let new = vec![
        trained(&old[0], 10),
        renamed(&old[1], "same"),
        Made { shape: vec![32, 128], ..trained(&old[2], 7) },
        halves("retyped", &[64, 65], 0.1),
        renamed(&old[4], "new name"),
        renamed(&old[1], "a copy of same"),
        floats("added", &[70, 70], 0.3),
        floats("added vector", &[9], 0.3),
        trained(&old[6], 5),
        complex,
        renamed(&old[8], "flag"),
    ];
    (old, new)
}

#[test]
fn every_kind_of_change_comes_back() {
    let dir = tempdir().unwrap();
    let [a, b, d, c] = paths(&dir, ["a.safetensors", "b.safetensors", "d.safetensors", "c.safetensors"]);
    let (old, new) = versions();
    write_standard(&a, &old, &[("format", "pt"), ("step", "1")]);
    write_standard(&b, &new, &[("format", "pt"), ("step", "2")]);
    let report = make(&a, &b, &d, &MakeOptions::default());
    let how = |name: &str| report.tensors.iter().find(|row| row.name == name).map(|row| row.how);
    assert_eq!(how("trained"), Some(How::Delta));
    assert_eq!(how("same"), None);
    assert_eq!(how("reshaped"), Some(How::Delta));
    assert_eq!(how("retyped"), Some(How::Stored));
    assert_eq!(how("new name"), Some(How::Copy));
    assert_eq!(how("a copy of same"), Some(How::Copy));
    assert_eq!(how("added"), Some(How::Stored));
    assert_eq!(how("complex"), Some(How::Stored));
    assert_eq!(report.removed, ["gone", "old name"]);
    assert!(report.exact);
    assert_eq!(DeltaFile::open(&d).unwrap().report(), report);

    apply(&a, &d, &c);
    assert!(same_tensors(&b, &c));
    assert_eq!(Archive::open(&c).unwrap().metadata()["step"], "2");
    // Renamed tensors keep their place.
    let place = |path: &Path, name: &str| {
        let archive = Archive::open(path).unwrap();
        let kept = ["trained", "same", "reshaped", "retyped", "ids", "complex", "flag", name];
        archive.tensors().iter().filter(|t| kept.contains(&t.name.as_str())).position(|t| t.name == name)
    };
    assert!(place(&a, "old name").is_some() && place(&a, "old name") == place(&c, "new name"));

    // Applied to what it made, it finds nothing to do.
    let again = dir.path().join("again.safetensors");
    apply(&c, &d, &again);
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&c).unwrap());
}

#[test]
fn a_file_of_other_values_comes_back_byte_for_byte() {
    let dir = tempdir().unwrap();
    let [a, b, d, c] = paths(&dir, ["a.safetensors", "b.safetensors", "d.safetensors", "c.safetensors"]);
    let old = small_model();
    let new: Vec<Made> = old.iter().map(|made| trained(made, 9)).collect();
    write_standard(&a, &old, &[("format", "pt")]);
    write_standard(&b, &new, &[("format", "pt")]);
    make(&a, &b, &d, &MakeOptions::default());
    apply(&a, &d, &c);
    assert_eq!(std::fs::read(&b).unwrap(), std::fs::read(&c).unwrap());
}

#[test]
fn the_same_models_give_the_same_bytes_whatever_the_threads() {
    let dir = tempdir().unwrap();
    let [a, b] = paths(&dir, ["a.safetensors", "b.safetensors"]);
    let (old, new) = versions();
    write_standard(&a, &old, &[]);
    write_standard(&b, &new, &[]);
    for goal in [None, Some(Goal::Bits(2.0))] {
        let mut all = Vec::new();
        for threads in [1, 2, 5] {
            let out = dir.path().join(format!("{threads}.safetensors"));
            let mut options = MakeOptions::default().with_threads(threads).with_overwrite(true);
            options.goal = goal;
            make(&a, &b, &out, &options);
            all.push(std::fs::read(&out).unwrap());
        }
        let (base, new) = (Archive::open(&a).unwrap(), Archive::open(&b).unwrap());
        let decode = DecodeOptions::default();
        let (base, new) = (Tensors::of_archive(&base, &decode), Tensors::of_archive(&new, &decode));
        let mut options = MakeOptions::default();
        options.goal = goal;
        all.push(delta::make_bytes(&base, &new, &options, &Silent).unwrap().0);
        assert!(all.iter().all(|bytes| *bytes == all[0]), "in memory as in files, on any number of threads");
    }
}

#[test]
fn unchanged_tensors_cost_nothing() {
    let dir = tempdir().unwrap();
    let [a, d] = paths(&dir, ["a.safetensors", "d.safetensors"]);
    let many: Vec<Made> =
        (0..300).map(|i| floats(&format!("model.layers.{i}.weight"), &[4, 4], 0.1)).collect();
    write_standard(&a, &many, &[]);
    let report = make(&a, &a, &d, &MakeOptions::default());
    assert_eq!((report.tensors.len(), &report.base), (0, &report.result));
    assert!(d.metadata().unwrap().len() < 400);
}

/// A second version of the folder that [`sharded`] makes.
fn train_shards(dir: &TempDir, folder: &Path) -> PathBuf {
    let new = dir.path().join("trained");
    std::fs::create_dir(&new).unwrap();
    for name in list(folder).iter().filter(|name| folder.join(name).is_file()) {
        std::fs::copy(folder.join(name), new.join(name)).unwrap();
    }
    let two = "model-00002-of-00002.safetensors";
    let weights = trained(&halves("layers.1.weight", &[80, 64], 0.02), 11);
    write_standard(&new.join(two), &[weights], &[("format", "pt")]);
    new
}

#[test]
fn folders_of_shards_come_back_with_all_their_files() {
    let dir = tempdir().unwrap();
    let old = sharded(&dir);
    let new = train_shards(&dir, &old);
    let [d, out] = paths(&dir, ["d.safetensors", "out"]);
    let report = make(&old, &new, &d, &MakeOptions::default());
    assert_eq!(report.tensors.len(), 1);
    apply(&old, &d, &out);
    assert_eq!(list(&out), list(&old));
    for name in list(&new) {
        assert_eq!(
            std::fs::read(out.join(&name)).unwrap(),
            std::fs::read(new.join(&name)).unwrap(),
            "{name}"
        );
    }

    // A file and a folder with the same tensors are the same model.
    let [one, moved, d, out] = paths(&dir, ["one.safetensors", "moved.safetensors", "e.safetensors", "out2"]);
    let tensors = [
        floats("layers.0.weight", &[64, 96], 0.05),
        floats("b", &[7], 1.0),
        halves("layers.1.weight", &[80, 64], 0.02),
    ];
    write_standard(&one, &tensors, &[("format", "pt")]);
    let [first, b, second] = tensors;
    write_standard(
        &moved,
        &[renamed(&first, "blocks.0.weight"), b, trained(&second, 4), floats("head", &[8, 8], 1.0)],
        &[("format", "pt")],
    );
    make(&one, &moved, &d, &MakeOptions::default());
    apply(&old, &d, &out);
    let archive = Archive::open(&out).unwrap();
    assert_eq!(archive.tensors().len(), 4);
    assert_eq!(archive.tensors()[archive.find("head").unwrap()].file, "model-00002-of-00002.safetensors");
    let index = std::fs::read_to_string(out.join("model.safetensors.index.json")).unwrap();
    assert!(
        index.contains("blocks.0.weight") && index.contains("kept") && !index.contains("layers.0.weight")
    );
}

#[test]
fn a_compressed_base_is_decoded_and_the_result_is_plain() {
    let dir = tempdir().unwrap();
    let [a, b, small, rough] =
        paths(&dir, ["a.safetensors", "b.safetensors", "s.safetensors", "r.safetensors"]);
    let old = small_model();
    let new: Vec<Made> = old.iter().map(|made| trained(made, 6)).collect();
    write_standard(&a, &old, &[]);
    write_standard(&b, &new, &[]);
    compress(&a, &small, &CompressOptions::new(Goal::Lossless), &Silent).unwrap();
    compress(&a, &rough, &CompressOptions::new(Goal::Bits(3.0)), &Silent).unwrap();
    let [d, e, c] = paths(&dir, ["d.safetensors", "e.safetensors", "c.safetensors"]);
    // Without loss it is the same base, and a delta of the one is a delta of the other.
    make(&a, &b, &d, &MakeOptions::default());
    make(&small, &b, &e, &MakeOptions::default());
    assert_eq!(std::fs::read(&d).unwrap(), std::fs::read(&e).unwrap());
    apply(&small, &d, &c);
    assert!(same_tensors(&b, &c));
    // With loss it is another.
    let [f, g] = paths(&dir, ["f.safetensors", "g.safetensors"]);
    make(&rough, &b, &f, &MakeOptions::default());
    apply(&rough, &f, &g);
    assert!(same_tensors(&b, &g));
    let (base, delta) = (Archive::open(&rough).unwrap(), DeltaFile::open(&d).unwrap());
    let out = dir.path().join("never.safetensors");
    let error = delta::apply(&base, &[&delta], &out, &ApplyOptions::default(), &Silent).unwrap_err();
    assert!(error.to_string().contains("another base") && !out.exists(), "{error}");
}

#[test]
fn lossy_deltas_are_small_and_their_results_are_known() {
    let dir = tempdir().unwrap();
    let [a, b, d, c] = paths(&dir, ["a.safetensors", "b.safetensors", "d.safetensors", "c.safetensors"]);
    let old = vec![
        floats("w", &[128, 128], 0.05),
        halves("h", &[128, 128], 0.05),
        floats("norm", &[64], 1.0),
        floats("x", &[64, 64], 0.1),
    ];
    let move_all = |made: &Made, by: f32| {
        let step = floats(&format!("{} moved", made.name), &made.shape, by);
        let add = |size: usize| -> Vec<u8> {
            let steps = step.data.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap()));
            let sums = made.data.chunks_exact(size).zip(steps);
            sums.flat_map(|(c, by)| match size {
                4 => (f32::from_le_bytes(c.try_into().unwrap()) + by).to_le_bytes().to_vec(),
                _ => half::bf16::from_f32(half::bf16::from_le_bytes(c.try_into().unwrap()).to_f32() + by)
                    .to_le_bytes()
                    .to_vec(),
            })
            .collect()
        };
        let data = add(made.dtype.bitsize() / 8);
        Made { name: made.name.clone(), dtype: made.dtype, shape: made.shape.clone(), data }
    };
    let mut new: Vec<Made> = old.iter().map(|made| move_all(made, 0.002)).collect();
    new[3].data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    write_standard(&a, &old, &[]);
    write_standard(&b, &new, &[]);
    let options = MakeOptions::default().with_goal(Goal::Bits(2.0)).with_exclude("nothing");
    let report = make(&a, &b, &d, &options);
    let row = |name: &str| report.tensors.iter().find(|row| row.name == name).unwrap();
    assert_eq!((row("w").how, row("h").how), (How::Difference, How::Difference));
    // What is small or has values that are no numbers is exact.
    assert_eq!((row("norm").how, row("x").how), (How::Delta, How::Delta));
    assert!(!report.exact && row("w").bytes < 128 * 128 / 3);
    apply(&a, &d, &c);
    let (near, far) = (
        tenfold_archive::compare(&b, &c, &DecodeOptions::default(), &Silent).unwrap(),
        tenfold_archive::compare(&b, &a, &DecodeOptions::default(), &Silent).unwrap(),
    );
    assert!(near.total.mse < 0.2 * far.total.mse, "{} of {}", near.total.mse, far.total.mse);
    // Once more: nothing is added twice.
    let again = dir.path().join("again.safetensors");
    apply(&c, &d, &again);
    assert!(same_tensors(&c, &again));
    // What is excluded is exact.
    let [e, f] = paths(&dir, ["e.safetensors", "f.safetensors"]);
    assert!(make(&a, &b, &e, &MakeOptions::default().with_goal(Goal::Bits(2.0)).with_exclude("*")).exact);
    apply(&a, &e, &f);
    assert!(same_tensors(&b, &f));
}

#[test]
fn some_tensors_alone_can_be_brought_up_to_date() {
    let dir = tempdir().unwrap();
    let [a, b, d, c] = paths(&dir, ["a.safetensors", "b.safetensors", "d.safetensors", "c.safetensors"]);
    let (old, new) = versions();
    write_standard(&a, &old, &[("step", "1")]);
    write_standard(&b, &new, &[("step", "2")]);
    make(&a, &b, &d, &MakeOptions::default());
    let (base, delta) = (Archive::open(&a).unwrap(), DeltaFile::open(&d).unwrap());
    let only = ApplyOptions::default().with_only("trained").with_only("added*").with_only("gone");
    delta::apply(&base, &[&delta], &c, &only, &Silent).unwrap();
    let result = Archive::open(&c).unwrap();
    let read = |archive: &Archive, name: &str| {
        archive.find(name).map(|i| archive.read(i, &DecodeOptions::default()).unwrap().data)
    };
    let next = Archive::open(&b).unwrap();
    for name in ["trained", "added", "added vector", "gone"] {
        assert_eq!(read(&result, name), read(&next, name), "{name}");
    }
    for name in ["same", "reshaped", "old name", "new name", "ids"] {
        assert_eq!(read(&result, name), read(&base, name), "{name}");
    }
    assert_eq!(result.metadata()["step"], "1");
    // A name that nobody has is noticed; one that the delta leaves alone is no mistake.
    let other = dir.path().join("other.safetensors");
    let typo = ApplyOptions::default().with_only("trained").with_only("trianed*");
    let refused = delta::apply(&base, &[&delta], &other, &typo, &Silent).unwrap_err();
    assert!(matches!(&refused, Error::InvalidArgument(text) if text.contains("trianed*")), "{refused}");
    assert!(!other.exists());
    delta::apply(&base, &[&delta], &other, &ApplyOptions::default().with_only("same"), &Silent).unwrap();
    assert!(same_tensors(&a, &other));
    // The rest later.
    let out = dir.path().join("out.safetensors");
    apply(&c, &d, &out);
    assert!(same_tensors(&b, &out));
}

fn view<'a>(made: &'a Made, dtype: Dtype) -> (String, TensorView<'a>) {
    (made.name.clone(), TensorView::new(dtype, &made.shape, &made.data).unwrap())
}

#[test]
fn tensors_in_memory_are_changed_in_place() {
    let old = [floats("w", &[64, 96], 0.05), floats("x", &[300], 1.0), floats("same", &[64], 1.0)];
    let mut new: Vec<Made> = old
        .iter()
        .map(|made| if made.name == "same" { renamed(made, "same") } else { trained(made, 7) })
        .collect();
    new[0].data.rotate_left(400);
    let tensors =
        |list: &[Made]| -> Vec<Made> { list.iter().map(|made| renamed(made, &made.name)).collect() };
    let before = Tensors::new(old.iter().map(|made| view(made, Dtype::F32))).unwrap();
    let after = Tensors::new(new.iter().map(|made| view(made, Dtype::F32))).unwrap();
    for goal in [None, Some(Goal::Bits(1.0))] {
        let mut options = MakeOptions::default();
        options.goal = goal;
        let (file, report) = delta::make_bytes(&before, &after, &options, &Silent).unwrap();
        let file = DeltaFile::parse(file, Path::new("memory")).unwrap();
        assert_eq!(file.report(), report);
        let patched = Patched::new(&before, &[&file], &ApplyOptions::default()).unwrap();
        let changed = patched.read_changes(&Silent).unwrap();
        assert_eq!(changed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
        for verify in [Verify::Whole, Verify::Touched] {
            let mut memory = tensors(&old);
            let mut slices: Vec<TensorMut<'_>> = memory
                .iter_mut()
                .map(|made| TensorMut {
                    name: &made.name,
                    dtype: Dtype::F32,
                    shape: &made.shape,
                    data: &mut made.data,
                })
                .collect();
            let options = ApplyOptions::default().with_verify(verify);
            let applied = delta::apply_in_place(&mut slices, &file, &options, &Silent).unwrap();
            assert!(applied.written > 0 && applied.before == 0);
            let again = delta::apply_in_place(&mut slices, &file, &options, &Silent).unwrap();
            assert_eq!((again.written, again.before), (0, applied.written));
            for (made, new) in memory.iter().zip(&changed) {
                assert!(new.as_ref().is_none_or(|new| *new == made.data), "{}", made.name);
            }
            // Some of them, half done.
            let mut memory = tensors(&old);
            memory[1].data.copy_from_slice(&new[1].data);
            let mut slices: Vec<TensorMut<'_>> = memory
                .iter_mut()
                .map(|made| TensorMut {
                    name: &made.name,
                    dtype: Dtype::F32,
                    shape: &made.shape,
                    data: &mut made.data,
                })
                .collect();
            let applied = delta::apply_in_place(&mut slices, &file, &options, &Silent).unwrap();
            assert!(applied.written > 0 && applied.before > 0);
        }
        let prints: Vec<_> = [&before, &after].map(|t| delta::fingerprint(t, 0, &Silent).unwrap()).to_vec();
        assert_eq!((prints[0], prints[1] == file.result()), (file.base(), goal.is_none()));
    }
}

#[test]
fn files_are_changed_in_place_and_a_second_run_completes_the_first() {
    let dir = tempdir().unwrap();
    let old = sharded(&dir);
    let one = "model-00001-of-00002.safetensors";
    let new = train_shards(&dir, &old);
    write_standard(
        &new.join(one),
        &[trained(&floats("layers.0.weight", &[64, 96], 0.05), 3), floats("b", &[7], 1.0)],
        &[("format", "pt")],
    );
    let d = dir.path().join("d.safetensors");
    make(&old, &new, &d, &MakeOptions::default());
    let delta = DeltaFile::open(&d).unwrap();
    let update = |folder: &Path| delta::update(folder, &delta, &ApplyOptions::default(), &Silent);
    // Killed after the first file.
    std::fs::copy(new.join(one), old.join(one)).unwrap();
    assert_eq!(update(&old).unwrap(), 1);
    for name in list(&new) {
        assert_eq!(
            std::fs::read(old.join(&name)).unwrap(),
            std::fs::read(new.join(&name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(update(&old).unwrap(), 0, "applied before");
    assert!(list(&old).iter().all(|name| !name.contains("tmp")));
}
