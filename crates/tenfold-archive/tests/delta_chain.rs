//! Deltas in a row: applied one after the other, or joined into one that does the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::Path;

use common::*;
use tenfold::{Dtype, Goal, TensorView};
use tenfold_archive::delta::{
    self, ApplyOptions, DeltaFile, How, MakeOptions, Patched, Tensors, squash_bytes,
};
use tenfold_archive::{Error, Silent};

fn view(made: &Made) -> (String, TensorView<'_>) {
    let dtype = if made.dtype == safetensors::Dtype::F32 { Dtype::F32 } else { Dtype::Bf16 };
    (made.name.clone(), TensorView::new(dtype, &made.shape, &made.data).unwrap())
}

fn tensors(list: &[Made]) -> Tensors<'_> {
    Tensors::new(list.iter().map(view)).unwrap()
}

fn make(old: &[Made], new: &[Made], name: &str) -> DeltaFile {
    let (bytes, _) =
        delta::make_bytes(&tensors(old), &tensors(new), &MakeOptions::default(), &Silent).unwrap();
    DeltaFile::parse(bytes, Path::new(name)).unwrap()
}

/// What deltas make of a base, by name.
fn result(base: &[Made], deltas: &[&DeltaFile]) -> Result<Vec<(String, Vec<usize>, Vec<u8>)>, Error> {
    let base = tensors(base);
    let patched = Patched::new(&base, deltas, &ApplyOptions::default())?;
    patched.read_changes(&Silent)?;
    let all = patched.tensors().iter().enumerate();
    let mut all: Vec<_> = all
        .map(|(i, tensor)| {
            Ok((tensor.meta.name.clone(), tensor.meta.shape.clone(), patched.read(i)?.into_owned()))
        })
        .collect::<Result<_, Error>>()?;
    all.sort();
    Ok(all)
}

fn sorted(list: &[Made]) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let mut all: Vec<_> =
        list.iter().map(|made| (made.name.clone(), made.shape.clone(), made.data.clone())).collect();
    all.sort();
    all
}

fn squash(deltas: &[&DeltaFile], base: Option<&[Made]>) -> Result<DeltaFile, Error> {
    let base = base.map(tensors);
    let (bytes, report) = squash_bytes(deltas, base.as_ref(), &MakeOptions::default(), &Silent)?;
    let file = DeltaFile::parse(bytes, Path::new("squashed")).unwrap();
    assert_eq!(file.report(), report);
    Ok(file)
}

fn copies(list: &[Made]) -> Vec<Made> {
    list.iter().map(|made| renamed(made, &made.name)).collect()
}

fn first() -> Vec<Made> {
    vec![
        floats("a", &[64, 70], 0.05),
        halves("b", &[64, 70], 0.02),
        floats("c", &[40], 1.0),
        floats("d", &[9], 1.0),
    ]
}

#[test]
fn a_chain_makes_what_its_deltas_make() {
    let one = first();
    let two: Vec<Made> = one.iter().map(|made| trained(made, 9)).collect();
    let three: Vec<Made> = two.iter().map(|made| trained(made, 5)).collect();
    let (d1, d2, direct) = (make(&one, &two, "d1"), make(&two, &three, "d2"), make(&one, &three, "direct"));
    assert_eq!(result(&one, &[&d1, &d2]).unwrap(), sorted(&three));
    // A base that has the first already, or both.
    assert_eq!(result(&two, &[&d1, &d2]).unwrap(), sorted(&three));
    assert_eq!(result(&three, &[&d1, &d2]).unwrap(), sorted(&three));
    let squashed = squash(&[&d1, &d2], Some(&one)).unwrap();
    assert_eq!(squashed.report(), direct.report());
    assert_eq!(result(&one, &[&squashed]).unwrap(), sorted(&three));
    assert!(matches!(squash(&[&d1, &d2], None), Err(Error::NeedsBase { name }) if name == "a"));
    assert!(squash(&[&d1, &d2], Some(&three)).is_err(), "another base");
}

#[test]
fn what_goes_back_is_not_in_the_squashed_delta() {
    let one = first();
    let mut two = copies(&one);
    two[0] = trained(&one[0], 9);
    let (there, back) = (make(&one, &two, "there"), make(&two, &one, "back"));
    let squashed = squash(&[&there, &back], Some(&one)).unwrap();
    assert!(squashed.changes().is_empty() && squashed.base() == squashed.result());
}

#[test]
fn deltas_of_different_tensors_are_joined_without_a_base() {
    let one = first();
    let mut two = copies(&one);
    two[0] = trained(&one[0], 9);
    let mut three = copies(&two);
    three[1] = trained(&two[1], 7);
    let (d1, d2, direct) = (make(&one, &two, "d1"), make(&two, &three, "d2"), make(&one, &three, "direct"));
    let squashed = squash(&[&d1, &d2], None).unwrap();
    assert_eq!(squashed.report(), direct.report());
    assert_eq!(result(&one, &[&squashed]).unwrap(), sorted(&three));
}

#[test]
fn added_removed_and_renamed_tensors_are_joined_too() {
    let one = first();
    // d goes, e comes, c has another name.
    let two =
        vec![renamed(&one[0], "a"), trained(&one[1], 9), renamed(&one[2], "c2"), floats("e", &[64, 65], 0.1)];
    // e changes, c2 is trained under its new name, b is copied, d comes back.
    let three = vec![
        renamed(&two[0], "a"),
        renamed(&two[1], "b"),
        renamed(&two[1], "b copy"),
        trained(&two[2], 4),
        trained(&two[3], 8),
        floats("d", &[11], 2.0),
    ];
    let (d1, d2) = (make(&one, &two, "d1"), make(&two, &three, "d2"));
    for base in [None, Some(one.as_slice())] {
        let squashed = squash(&[&d1, &d2], base).unwrap();
        let change = |name: &str| squashed.changes().iter().find(|change| change.name == name).unwrap();
        assert_eq!((change("c2").how, change("c2").from.as_deref()), (How::Delta, Some("c")));
        assert_eq!((change("b copy").how, change("b copy").from.as_deref()), (How::Delta, Some("b")));
        assert_eq!(change("e").how, How::Stored);
        assert_eq!(squashed.removed(), ["c"]);
        assert_eq!(result(&one, &[&squashed]).unwrap(), sorted(&three));
        assert_eq!(result(&three, &[&squashed]).unwrap(), sorted(&three), "applied before");
        assert_eq!(result(&one, &[&d1, &d2]).unwrap(), sorted(&three));
    }
}

#[test]
fn lossy_deltas_keep_their_result_when_they_are_joined() {
    let one = first();
    let mut two = copies(&one);
    two[0].data.rotate_left(400);
    let options = MakeOptions::default().with_goal(Goal::Bits(1.0));
    let (bytes, report) = delta::make_bytes(&tensors(&one), &tensors(&two), &options, &Silent).unwrap();
    assert!(!report.exact);
    let lossy = DeltaFile::parse(bytes, Path::new("lossy")).unwrap();
    let rough = result(&one, &[&lossy]).unwrap();
    let mut mid = copies(&one);
    mid[0].data = rough[0].2.clone();
    let mut three = copies(&mid);
    three[0] = trained(&mid[0], 6);
    let exact = make(&mid, &three, "exact");
    let squashed = squash(&[&lossy, &exact], Some(&one)).unwrap();
    assert!(squashed.report().exact, "from the base to the known result, bit for bit");
    assert_eq!(result(&one, &[&squashed]).unwrap(), sorted(&three));
    assert!(matches!(squash(&[&lossy, &exact], None), Err(Error::NeedsBase { .. })));
    assert_eq!(squash(&[&lossy], None).unwrap().report(), lossy.report());
}

#[test]
fn holes_and_wrong_orders_are_told_apart() {
    let one = first();
    let two: Vec<Made> = one.iter().map(|made| trained(made, 9)).collect();
    let three: Vec<Made> = two.iter().map(|made| trained(made, 5)).collect();
    let four: Vec<Made> = three.iter().map(|made| trained(made, 3)).collect();
    let (d1, d2, d3) = (make(&one, &two, "d1"), make(&two, &three, "d2"), make(&three, &four, "d3"));
    for base in [None, Some(one.as_slice())] {
        let error = squash(&[&d1, &d3], base).err().unwrap();
        assert!(matches!(&error, Error::Chain { .. }) && error.to_string().contains("missing"), "{error}");
        let error = squash(&[&d1, &d3, &d2], base).err().unwrap();
        assert!(
            matches!(&error, Error::Chain { .. }) && error.to_string().contains("out of order"),
            "{error}"
        );
        assert!(error.to_string().contains("d2 comes next"), "{error}");
    }
    assert!(matches!(result(&one, &[&d2, &d1]), Err(Error::Chain { .. })));
    assert!(result(&one, &[]).is_err());
    assert_eq!(result(&one, &[&d1, &d2, &d3]).unwrap(), sorted(&four));
}
