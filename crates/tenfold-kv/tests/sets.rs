//! Sets of captured files: what they share, what each has of its own, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;

use common::{capture, rows, write};
use tenfold::engine::ErrorKind;
use tenfold_archive::{Archive, ArchiveTensor, Content, Silent, assemble};
use tenfold_kv::basis::{
    BasisFile, Components, FitOptions, Grouping, Kind, Moments, Set, Weighted, fit, fit_sets,
    leave_one_out_each,
};
use tenfold_kv::{Error, Result};

const PROSE: [f64; 8] = [0.5, 8.0, 0.1, 4.0, 1.0, 2.0, 0.25, 0.05];
const CODE: [f64; 8] = [8.0, 0.1, 4.0, 0.05, 2.0, 0.25, 1.0, 0.5];

fn two(dir: &Path) -> Vec<Set> {
    vec![
        Set::new("prose", vec![capture(dir, "prose", &PROSE, 1.0, 400)]),
        Set::new("code", vec![capture(dir, "code", &CODE, -1.0, 100)]),
    ]
}

fn bytes(file: &BasisFile) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    file.save(&dir.path().join("a.basis"), false).unwrap();
    let bytes = std::fs::read(dir.path().join("a.basis")).unwrap();
    assert!(bytes.len() as u64 <= file.max_bytes().unwrap());
    bytes
}

fn each() -> FitOptions {
    let mut options = FitOptions::default();
    (options.each, options.head_dim) = (true, Some(4));
    options
}

#[test]
fn weights_are_shares_whatever_the_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let means = |weights: [f64; 2]| {
        let sets = two(dir.path()).into_iter().zip(weights).map(|(set, w)| set.with_weight(w));
        let fitted = fit_sets(&sets.collect::<Vec<_>>(), &FitOptions::default(), &Silent).unwrap();
        assert_eq!(fitted.file.sets(), [None], "one basis for all");
        fitted.file.group(Kind::Values, 0).unwrap().basis.means().to_vec()
    };
    let alone = |set: &Set| {
        let file = fit(&set.files, &FitOptions::default(), &Silent).unwrap().file;
        file.group(Kind::Values, 0).unwrap().basis.means().to_vec()
    };
    let [prose, code] = [0, 1].map(|i| alone(&two(dir.path())[i]));
    for (weights, share) in [([1.0, 1.0], 0.5), ([3.0, 1.0], 0.25), ([1.0, 9.0], 0.9), ([10.0, 90.0], 0.9)] {
        for ((found, a), b) in means(weights).iter().zip(&prose).zip(&code) {
            let wanted = f64::from(*a) * (1.0 - share) + f64::from(*b) * share;
            // Means are bf16.
            assert!((f64::from(*found) - wanted).abs() < 0.02, "{found} for {wanted} with {weights:?}");
        }
    }
}

#[test]
fn weighted_moments_are_those_of_repeated_rows() {
    let part = |deviations, count, seed| {
        let mut moments = Moments::new(8).unwrap();
        moments.add(&rows(count, &[seed as f64; 8], deviations, seed), "rows", 0).unwrap();
        moments
    };
    let (a, b) = (part(&PROSE, 300, 1), part(&CODE, 100, 2));
    let mut repeated = a.clone();
    (0..3).for_each(|_| repeated.merge(&b).unwrap());
    let mut weighted = Moments::new(8).unwrap();
    weighted.merge_weighted(&a, 1.0 / 300.0).unwrap();
    weighted.merge_weighted(&b, 1.0 / 100.0).unwrap();
    assert_eq!(weighted.count(), 400);
    let [x, y] = [&repeated, &weighted].map(|m| Components::from_moments(m, None).unwrap());
    for (x, y) in x.variances().iter().zip(y.variances()).chain(x.means().iter().zip(y.means())) {
        assert!((x - y).abs() < 1e-9 * x.abs().max(1.0), "{x} and {y}");
    }
    assert!((repeated.common_variance() - weighted.common_variance()).abs() < 1e-9);
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(weighted.merge_weighted(&a, weight), Err(Error::InvalidArgument(_))));
    }
    // Gains of a shared basis lean towards the heavier set.
    let parts = |deviations, seeds: [u64; 2]| seeds.map(|seed| part(deviations, 500, seed));
    let (prose, code) = (parts(&PROSE, [3, 4]), parts(&[8.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], [5, 6]));
    let gains = |weight| {
        let sets = [Weighted { parts: &prose, weight: 1.0 }, Weighted { parts: &code, weight }];
        leave_one_out_each(&sets, None, &[2.0]).unwrap().iter().map(|g| g.at[0].basis).collect::<Vec<_>>()
    };
    let (light, heavy) = (gains(0.01), gains(100.0));
    assert!(light[0] > heavy[0] + 0.05 && heavy[1] > light[1] + 0.5, "{light:?} {heavy:?}");
    let odd = [Weighted { parts: &prose, weight: 1.0 }, Weighted { parts: &code[..1], weight: 1.0 }];
    assert!(leave_one_out_each(&odd, None, &[]).is_err());
}

#[test]
fn one_set_is_what_its_files_are_alone() {
    let dir = tempfile::tempdir().unwrap();
    let set = &two(dir.path())[0];
    let options = FitOptions::default();
    let alone = fit(&set.files, &options, &Silent).unwrap();
    let named = fit_sets(&[set.clone().with_weight(7.0)], &options, &Silent).unwrap();
    assert_eq!(bytes(&alone.file), bytes(&named.file));
    assert_eq!(alone.report.sets[0].name, None);
    assert_eq!(named.report.sets[0].name.as_deref(), Some("prose"));
    assert_eq!(alone.report.sets[0].gains, named.report.sets[0].gains);
    assert_eq!(alone.report.sets[0].tokens, 400);
}

#[test]
fn each_set_has_bases_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for grouping in [Grouping::Layers(1), Grouping::All, Grouping::Heads] {
        let mut options = each();
        options.grouping = grouping;
        let fitted = fit_sets(&two(dir.path()), &options, &Silent).unwrap();
        let written = bytes(&fitted.file);
        let read = BasisFile::parse(written.clone()).unwrap();
        assert_eq!(bytes(&read), written, "written again, it is the same file");
        assert_eq!(read.sets(), [Some("prose"), Some("code")]);
        options.each = false;
        for set in two(dir.path()) {
            let alone = fit(&set.files, &options, &Silent).unwrap().file;
            let own = read.groups_of(Some(&set.name));
            assert_eq!(own.len(), alone.groups().len());
            for (own, alone) in own.iter().zip(alone.groups()) {
                assert_eq!((own.kind, &own.layers), (alone.kind, &alone.layers));
                assert_eq!(own.basis.fingerprint(), alone.basis.fingerprint());
            }
        }
        let of = |set| read.group_of(set, Kind::Keys, 1).unwrap().basis.fingerprint();
        assert_ne!(of(Some("prose")), of(Some("code")));
        assert_eq!(read.group(Kind::Keys, 1).unwrap().basis.fingerprint(), of(Some("prose")));
        assert!(read.find(of(Some("code"))).is_some());
        for set in [None, Some("poems")] {
            let missing = read.group_of(set, Kind::Keys, 1);
            assert!(matches!(missing, Err(Error::MissingGroup { kind: Kind::Keys, layer: 1 })));
        }
    }
}

#[test]
fn a_cap_covers_all_sets() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = each();
    options.grouping = Grouping::All;
    let mut most = |bits| {
        options.bits = bits;
        fit_sets(&two(dir.path()), &options, &Silent).unwrap().report.bytes
    };
    let cap = (most(0.02) + most(8.0)) / 2;
    options.max_bytes = Some(cap);
    let capped = fit_sets(&two(dir.path()), &options, &Silent).unwrap();
    assert!(bytes(&capped.file).len() as u64 <= cap && capped.report.bits < options.bits);
    assert_eq!(capped.file.sets().len(), 2);
}

#[test]
fn a_set_that_loses_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // Columns of very different spread that do not move together: every rotation mixes them.
    let count = 400;
    let mut plain = rows(count, &[0.0; 8], &[1.0; 8], 9);
    plain.iter_mut().enumerate().for_each(|(i, v)| *v *= [8.0, 0.01, 2.0, 0.02, 1.0, 0.05, 0.5, 0.1][i % 8]);
    let path = dir.path().join("plain.safetensors");
    let names = ["layers.0.v", "layers.1.v", "layers.0.k_before_rope", "layers.1.k_before_rope"];
    write(&path, &names.map(|name| (name, vec![count, 2, 4], &plain[..])));
    let prose = two(dir.path()).swap_remove(0).with_weight(1000.0);
    let sets = [prose, Set::new("plain", vec![path])];
    let report = fit_sets(&sets, &FitOptions::default(), &Silent).unwrap().report;
    assert_eq!(report.warnings.len(), 2, "keys and values of one set: {:?}", report.warnings);
    assert!(report.warnings.iter().all(|w| w.contains("\"plain\"") && w.contains("raise its weight")));
    let lost = &report.sets[1].gains[&Kind::Keys].at[1];
    assert!(lost.basis < lost.means, "{lost:?}");
    let kept = &report.sets[0].gains[&Kind::Keys].at[1];
    assert!(kept.basis > kept.means, "{kept:?}");
    let own = fit_sets(&sets, &each(), &Silent).unwrap().report;
    assert!(own.sets[1].gains[&Kind::Keys].at[1].basis > lost.basis + 0.5);
    assert!(own.warnings.iter().all(|w| !w.contains("raise its weight")), "{:?}", own.warnings);
}

#[test]
fn sets_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |sets: &[Set], words: &str| {
        let error = fit_sets(sets, &FitOptions::default(), &Silent).unwrap_err();
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(words), "{error}");
    };
    let [prose, code] = &two(dir.path())[..] else { panic!() };
    let named = |name: &str| Set::new(name, prose.files.clone());
    fails(&[], "1 to 16 sets");
    fails(&(0..17).map(|i| named(&format!("s{i}"))).collect::<Vec<_>>(), "1 to 16 sets, not 17");
    for name in ["", "a.b", "a b", "ä", "a/b", &"x".repeat(65)] {
        fails(&[named(name)], "letters, digits");
    }
    fails(&[prose.clone(), prose.clone()], "two sets \"prose\"");
    fails(&[Set::new("empty", Vec::new())], "\"empty\" has no files");
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        fails(&[prose.clone(), code.clone().with_weight(weight)], "positive");
    }
    let few = Set::new("few", vec![capture(dir.path(), "few", &CODE, 0.0, 7)]);
    fails(&[prose.clone(), few], "set \"few\": 7 rows of keys are too few");
    let values = rows(50, &[0.0; 8], &CODE, 1);
    let other = |name: &str, tensors: &[(&str, Vec<usize>, &[f32])]| {
        let path = dir.path().join(name);
        write(&path, tensors);
        Set::new(name, vec![path])
    };
    let keys = ("layers.0.k_before_rope", vec![50, 8], &values[..]);
    let v = |name| (name, vec![50, 8], &values[..]);
    fails(&[prose.clone(), other("values", &[v("layers.0.v")])], "set \"values\": no keys were captured");
    fails(&[prose.clone(), other("short", &[v("layers.0.v"), keys.clone()])], "layers [0]");
    let hidden = [v("layers.0.v"), v("layers.1.v"), keys, v("layers.1.k_before_rope"), v("layers.1.hidden")];
    fails(&[prose.clone(), other("hidden", &hidden)], "set \"hidden\": it has hidden of layers [1]");
    let narrow = [("layers.0.v", vec![100, 4], &values[..])];
    let wide = [("layers.0.v", vec![50, 8], &values[..])];
    let error = fit_sets(&[other("wide", &wide), other("narrow", &narrow)], &FitOptions::default(), &Silent);
    assert!(matches!(error, Err(Error::Columns { found: 4, expected: 8, .. })));
    let error = fit(&prose.files, &each(), &Silent).unwrap_err();
    assert!(error.to_string().contains("needs sets"), "{error}");
}

#[test]
fn damage_of_a_file_with_sets_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = each();
    options.kinds = vec![Kind::Values];
    options.grouping = Grouping::All;
    let good = bytes(&fit_sets(&two(dir.path()), &options, &Silent).unwrap().file);
    let whole = BasisFile::parse(good.clone()).unwrap();
    let same = |read: &BasisFile| {
        assert_eq!(read.sets(), whole.sets());
        for (a, b) in read.groups().iter().zip(whole.groups()) {
            assert_eq!(a.basis.fingerprint(), b.basis.fingerprint());
        }
    };
    for length in 0..good.len() {
        assert!(BasisFile::parse(good[..length].to_vec()).is_err(), "cut to {length}");
    }
    for at in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[at / 8] ^= 1 << (at % 8);
        match BasisFile::parse(bad) {
            Ok(read) => same(&read),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit),
                "bit {at}: {error}"
            ),
        }
    }
}

/// The file with other metadata, whose checksums are right.
fn edited(good: &[u8], dir: &Path, change: impl FnOnce(&mut serde_json::Value)) -> Result<BasisFile> {
    let archive = Archive::parse(good.to_vec(), Path::new("good")).unwrap();
    let mut meta: serde_json::Value = serde_json::from_str(&archive.metadata()["basis"]).unwrap();
    change(&mut meta);
    let text = meta.to_string();
    let checksum = blake3::hash(text.as_bytes()).to_hex()[..32].to_owned();
    let content = |(index, tensor): (usize, &ArchiveTensor)| {
        let bytes = archive.read_stored(index).unwrap();
        let content = match tensor.compressed {
            true => Content::Blob(bytes),
            false => Content::Plain(tensor.dtype.unwrap(), tensor.shape.clone(), bytes),
        };
        (tensor.name.clone(), content)
    };
    let contents: Vec<(String, Content)> = archive.tensors().iter().enumerate().map(content).collect();
    let metadata = vec![("basis_checksum".to_owned(), checksum), ("basis".to_owned(), text)];
    let path = dir.join("edited.basis");
    assemble(&path, metadata, &contents, true).unwrap();
    BasisFile::open(&path)
}

#[test]
fn metadata_that_contradicts_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = bytes(&fit_sets(&two(dir.path()), &each(), &Silent).unwrap().file);
    let parse = |change: &dyn Fn(&mut serde_json::Value)| edited(&good, dir.path(), change);
    assert!(parse(&|_| {}).is_ok());
    let malformed = |words: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let error = parse(change).unwrap_err();
        assert!(
            matches!(error, Error::Malformed(_)) && error.to_string().contains(words),
            "{words}: {error}"
        );
    };
    malformed("do not agree", &|meta| meta["format"] = 1.into());
    let newer = parse(&|meta| meta["format"] = 3.into());
    assert!(matches!(newer, Err(Error::Version { found: 3, supported: 2 })));
    malformed("is no name", &|meta| meta["groups"][0]["set"] = "a.b".into());
    malformed("other layers", &|meta| meta["groups"][0]["set"] = "third".into());
    malformed("other layers", &|meta| drop(meta["groups"].as_array_mut().unwrap().pop()));
    malformed("of layers [0]", &|meta| {
        let first = meta["groups"][0].clone();
        meta["groups"].as_array_mut().unwrap().push(first);
    });
    malformed("sets; at most 16", &|meta| {
        let first = meta["groups"][0].clone();
        let set = |i: usize| {
            let mut group = first.clone();
            group["set"] = format!("s{i}").into();
            group
        };
        meta["groups"] = (0..17).map(set).collect();
    });
    // Bases of another set are other numbers.
    malformed("differ from what was written", &|meta| {
        for group in meta["groups"].as_array_mut().unwrap() {
            let name = if group["set"] == "prose" { "code" } else { "prose" };
            group["set"] = name.into();
        }
    });
}
