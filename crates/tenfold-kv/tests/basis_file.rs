//! Files of bases: what comes back, what they keep to, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::{ROPE, capture, kv, rows, write};
use tenfold::engine::ErrorKind;
use tenfold_archive::Silent;
use tenfold_kv::Error;
use tenfold_kv::basis::{
    BasisFile, FitOptions, Fitted, Grouping, Keys, Kind, Names, Rank, fingerprint_model, fit, model_bytes,
};

fn options() -> FitOptions {
    let mut options = FitOptions::default();
    options.keys = Keys::Rope(ROPE.parse().unwrap());
    options.context = Some(1024);
    options
}

fn real(options: &FitOptions) -> Fitted {
    fit(&[kv()], options, &Silent).unwrap()
}

fn small(dir: &tempfile::TempDir) -> PathBuf {
    capture(dir.path(), "small", &[0.5, 8.0, 0.1, 4.0, 1.0, 2.0, 0.25, 0.05], 1.0, 400)
}

fn saved(file: &BasisFile) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.basis");
    let bytes = file.save(&path, false).unwrap();
    assert!(bytes <= file.max_bytes().unwrap());
    assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
    std::fs::read(&path).unwrap()
}

fn same(a: &BasisFile, b: &BasisFile) {
    assert_eq!(a.groups().len(), b.groups().len());
    for (a, b) in a.groups().iter().zip(b.groups()) {
        assert_eq!((a.kind, &a.layers), (b.kind, &b.layers));
        assert_eq!(a.basis.fingerprint(), b.basis.fingerprint());
        assert_eq!(a.basis.forward_columns(), b.basis.forward_columns());
    }
    assert_eq!((a.model(), a.rope(), a.head_dim()), (b.model(), b.rope(), b.head_dim()));
}

#[test]
fn bases_come_back_by_their_fingerprints() {
    for grouping in [Grouping::Layers(1), Grouping::All, Grouping::Heads] {
        let mut options = options();
        (options.grouping, options.model) = (grouping, Some("a model".into()));
        let fitted = real(&options);
        let bytes = saved(&fitted.file);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.basis");
        let read = BasisFile::parse(bytes.clone()).unwrap();
        same(&fitted.file, &read);
        read.save(&path, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "written again, it is the same file");
        same(&read, &BasisFile::open(&path).unwrap());
        let group = read.group(Kind::Keys, 22).unwrap();
        assert!(read.find(group.basis.fingerprint()).is_some());
        let columns = group.columns(22).unwrap();
        assert_eq!(columns, if grouping == Grouping::All { 192..384 } else { 0..192 });
        assert!(group.columns(9).is_err());
        let missing = read.group(Kind::Values, 22).unwrap_err();
        assert!(matches!(missing, Error::MissingGroup { kind: Kind::Values, layer: 22 }), "{missing}");
    }
}

#[test]
fn real_keys_gain_more_before_rotary_positions() {
    let gain = |keys: Keys, name: &str| {
        let mut options = options();
        (options.keys, options.kinds, options.rank) = (keys, vec![Kind::Keys], Rank::All);
        // Only one of the two tensors of layer 8.
        options.names = Names::default().with(Kind::Keys, name).unwrap();
        options.names = options.names.with_keys_before_rope("none.{}").unwrap();
        let report = real(&options).report;
        report.groups.into_iter().find(|g| g.layers == [8]).unwrap().gain.unwrap()
    };
    let before = gain(Keys::Plain, "layers.{}.k_before_rope");
    let undone = gain(Keys::Rope(ROPE.parse().unwrap()), "layers.{}.k");
    let behind = gain(Keys::Plain, "layers.{}.k");
    let wrong = gain(Keys::Rope(ROPE.replace("neighbours", "halves").parse().unwrap()), "layers.{}.k");
    assert!((before.basis - undone.basis).abs() < 0.01, "{} and {}", before.basis, undone.basis);
    assert!(before.basis > behind.basis + 0.3, "{} and {}", before.basis, behind.basis);
    assert!(before.basis > wrong.basis + 0.3, "{} and {}", before.basis, wrong.basis);
    assert!(before.basis > before.means + 0.3, "{} and {}", before.basis, before.means);
}

#[test]
fn compression_of_vectors_costs_next_to_nothing() {
    for bits in [1.0, 2.5, 4.0] {
        let mut options = options();
        options.bits = bits;
        for group in real(&options).report.groups {
            assert!(group.loss.abs() < 0.02, "{} {:?} at {bits}: {}", group.kind, group.layers, group.loss);
            let plain = 2 * group.rank * group.cols;
            assert!(group.bytes < plain as u64 / 2, "{} bytes", group.bytes);
        }
    }
}

#[test]
fn caps_are_kept_or_refused() {
    let sizes: Vec<u64> = [100_000, 40_000, 12_000]
        .map(|cap| {
            let mut options = options();
            options.max_bytes = Some(cap);
            let fitted = real(&options);
            let bytes = saved(&fitted.file).len() as u64;
            assert!(bytes <= cap && fitted.report.bytes <= cap, "{bytes} of {cap}");
            bytes
        })
        .into();
    assert!(sizes[1] > 30_000 && sizes[2] > 8_000, "room is used: {sizes:?}");
    let mut options = options();
    options.max_bytes = Some(500);
    let error = fit(&[kv()], &options, &Silent).unwrap_err();
    assert!(matches!(error, Error::DoesNotFit { cap: 500, need } if need > 500), "{error}");
    assert_eq!(error.kind(), ErrorKind::Limit);
}

#[test]
fn metrics_reach_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let input = small(&dir);
    let metrics = dir.path().join("metrics.safetensors");
    let block: Vec<f32> =
        (0..2 * 16).map(|i| if i / 4 % 4 == i % 4 { 1.0 + (i / 16) as f32 } else { 0.3 }).collect();
    let shape = vec![2, 4, 4];
    let all = ["layers.0.v", "layers.1.v", "layers.0.k", "layers.1.k"]
        .map(|name| (name, shape.clone(), &block[..]));
    write(&metrics, &all);
    let mut options = FitOptions::default();
    (options.metrics, options.grouping, options.rank) =
        (Some(metrics.clone()), Grouping::All, Rank::Count(9));
    let fitted = fit(std::slice::from_ref(&input), &options, &Silent).unwrap();
    same(&fitted.file, &BasisFile::parse(saved(&fitted.file)).unwrap());
    assert!(fitted.file.groups().iter().all(|g| g.basis.rank() == 9 && !g.basis.is_orthonormal()));
    // What lies within the vectors comes back, whatever the metric.
    let basis = &fitted.file.groups()[0].basis;
    let (cols, rank) = (basis.cols(), basis.rank());
    for k in 0..rank {
        for j in 0..rank {
            let dot: f64 = (0..cols)
                .map(|c| f64::from(basis.forward_columns()[c * rank + j]) * f64::from(basis.vector(k)[c]))
                .sum();
            assert!((dot - f64::from(u8::from(j == k))).abs() < 1e-4, "{j} of {k}: {dot}");
        }
    }
    write(&metrics, &all[..3]);
    let error = fit(std::slice::from_ref(&input), &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("no metric for keys of layer 1"), "{error}");
    write(&metrics, &[("layers.0.v", vec![2, 16], &block)]);
    assert_eq!(fit(&[input], &options, &Silent).unwrap_err().kind(), ErrorKind::Caller);
}

#[test]
fn damage_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = FitOptions::default();
    options.head_dim = Some(4);
    let bytes = saved(&fit(&[small(&dir)], &options, &Silent).unwrap().file);
    let whole = BasisFile::parse(bytes.clone()).unwrap();
    for length in 0..bytes.len() {
        assert!(BasisFile::parse(bytes[..length].to_vec()).is_err(), "cut to {length}");
    }
    for at in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[at / 8] ^= 1 << (at % 8);
        // Bits of the header that mean nothing, such as its padding, may change.
        match BasisFile::parse(bad) {
            Ok(read) => same(&whole, &read),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit),
                "bit {at}: {error}"
            ),
        }
    }
}

#[test]
fn other_models_and_other_files_are_refused() {
    let mut options = options();
    options.model = Some("mine".into());
    let file = real(&options).file;
    assert!(file.check_model("mine").is_ok());
    let error = file.check_model("yours").unwrap_err();
    assert!(
        matches!(&error, Error::ForeignModel { expected, found } if expected == "yours" && found == "mine")
    );
    assert_eq!(error.kind(), ErrorKind::Caller);
    options.model = None;
    assert!(real(&options).file.check_model("yours").is_ok());
    assert!(matches!(BasisFile::open(&kv()), Err(Error::Malformed(_))));
    assert!(matches!(BasisFile::open("nowhere".as_ref()), Err(Error::File(_))));
}

#[test]
fn fingerprints_of_models_tell_them_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    write(&path("a"), &[("x", vec![2, 3], &values), ("y", vec![6], &values)]);
    write(&path("b"), &[("y", vec![6], &values), ("x", vec![2, 3], &values)]);
    write(&path("c"), &[("x", vec![3, 2], &values), ("y", vec![6], &values)]);
    write(&path("d"), &[("x", vec![2, 3], &values), ("y", vec![6], &[0.0; 6])]);
    let of = |name: &str| fingerprint_model(&path(name)).unwrap();
    assert_eq!(of("a"), of("b"));
    assert!(of("a") != of("c") && of("a") != of("d"));
    assert_eq!(model_bytes(&path("a")).unwrap(), std::fs::metadata(path("a")).unwrap().len());
}

#[test]
fn captures_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    let fails = |tensors: &[(&str, Vec<usize>, &[f32])], change: &dyn Fn(&mut FitOptions)| {
        write(&path, tensors);
        let mut options = FitOptions::default();
        change(&mut options);
        fit(std::slice::from_ref(&path), &options, &Silent).unwrap_err()
    };
    let rows = rows(64, &[0.0; 8], &[1.0; 8], 5);
    let v = |name| (name, vec![64, 8], &rows[..]);
    let caller = |error: Error, words: &str| {
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(words), "{error}");
    };
    caller(fails(&[v("weights")], &|_| {}), "no captured tensors");
    caller(fails(&[v("layers.0.k")], &|_| {}), "rotary positions");
    caller(fails(&[v("layers.0.v")], &|o| o.kinds = vec![Kind::Keys]), "no keys were captured");
    caller(fails(&[v("layers.0.v")], &|o| o.grouping = Grouping::Heads), "columns of a head");
    caller(
        fails(&[v("layers.0.v")], &|o| (o.grouping, o.head_dim) = (Grouping::Heads, Some(3))),
        "heads of 3 do not divide",
    );
    caller(fails(&[v("layers.0.v")], &|o| o.bits = f64::NAN), "bits a value");
    caller(fails(&[v("layers.0.v")], &|o| o.rank = Rank::Count(0)), "one vector");
    caller(fails(&[v("layers.0.v")], &|o| o.parts = 40), "too few");
    caller(fails(&[v("layers.0.v"), ("layers.0.v[0:64]", vec![64, 8], &rows)], &|_| {}), "the same rows");
    caller(fails(&[("layers.0.v", vec![512], &rows)], &|_| {}), "tokens by columns");
    let short = ("layers.1.v", vec![32, 8], &rows[..256]);
    caller(fails(&[v("layers.0.v"), short], &|o| o.grouping = Grouping::All), "different tokens");
    let narrow = ("layers.1.v", vec![64, 4], &rows[..256]);
    let error = fails(&[v("layers.0.v"), narrow], &|o| o.grouping = Grouping::All);
    assert!(matches!(error, Error::Columns { found: 4, expected: 8, .. }), "{error}");
    let wide: Keys = Keys::Rope(ROPE.parse().unwrap());
    caller(fails(&[v("layers.0.k")], &|o| o.keys = wide.clone()), "heads of 64 do not divide");
    let mut bad = rows.clone();
    bad[8 * 8 + 2] = f32::INFINITY;
    let error = fails(&[("layers.0.v", vec![64, 8], &bad)], &|_| {});
    assert!(
        matches!(&error, Error::NotFinite { tensor, row: 8, column: 2 } if tensor == "layers.0.v"),
        "{error}"
    );
}

#[test]
fn rows_that_never_change_still_have_a_basis() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    write(&path, &[("layers.0.v", vec![64, 8], &[2.5; 512])]);
    let file = fit(&[path], &FitOptions::default(), &Silent).unwrap().file;
    let basis = &file.groups()[0].basis;
    assert_eq!((basis.rank(), basis.means()), (1, &[2.5; 8][..]));
}
