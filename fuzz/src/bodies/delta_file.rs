//! Any bytes as a delta of a small model: an error, or tensors whose sizes add up. A model that refuses it is as it was.

use std::path::Path;

use tenfold::engine::{ErrorKind, Limits};
use tenfold::{Dtype, Goal, TensorView};
use tenfold_archive::delta::{self, ApplyOptions, DeltaFile, MakeOptions, Patched, TensorMut, Tensors};
use tenfold_archive::{Error, Silent};

/// Bytes that a decoded tensor may take.
const BYTES: u64 = 1 << 20;

type Model = Vec<(String, Dtype, Vec<usize>, Vec<u8>)>;

/// The model that deltas belong to.
fn base() -> Model {
    let floats = |n: usize, by: f32| -> Vec<u8> {
        (0..n).flat_map(|i| ((i as f32 * by).sin() * 0.1).to_le_bytes()).collect()
    };
    vec![
        ("a".into(), Dtype::F32, vec![64, 64], floats(4096, 0.7)),
        ("b".into(), Dtype::Bf16, vec![40], floats(20, 0.3)),
        ("c".into(), Dtype::F32, vec![3, 5], floats(15, 0.2)),
        ("d".into(), Dtype::I64, vec![4], (0..32).collect()),
    ]
}

fn tensors(model: &Model) -> Tensors<'_> {
    let views = model.iter().map(|(name, dtype, shape, data)| {
        (name.clone(), TensorView::new(*dtype, shape, data).expect("a sound tensor"))
    });
    Tensors::new(views).expect("names that differ")
}

pub fn run(input: &[u8]) {
    let file = match DeltaFile::parse(input.to_vec(), Path::new("delta")) {
        Ok(file) => file,
        Err(error) => return check_error(&error, false),
    };
    let model = base();
    let base = tensors(&model);
    let options =
        ApplyOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(BYTES));
    match Patched::new(&base, &[&file], &options) {
        Ok(patched) => match patched.read_changes(&Silent) {
            Ok(changes) => {
                for (tensor, data) in patched.tensors().iter().zip(changes) {
                    assert!(data.is_none_or(|data| data.len() as u64 == tensor.meta.bytes), "another size");
                }
            }
            Err(error) => check_error(&error, true),
        },
        Err(error) => check_error(&error, true),
    }
    let mut memory = model.clone();
    let mut slices: Vec<TensorMut<'_>> = memory
        .iter_mut()
        .map(|(name, dtype, shape, data)| TensorMut { name, dtype: *dtype, shape, data })
        .collect();
    let applied = delta::apply_in_place(&mut slices, &file, &options, &Silent);
    assert!(applied.is_ok() || memory == model, "a refused base has changed");
    // One delta alone needs no base.
    let options = MakeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(BYTES));
    match delta::squash_bytes(&[&file], None, &options, &Silent) {
        Ok((bytes, _)) => {
            let again = DeltaFile::parse(bytes, Path::new("again")).expect("what was written opens");
            assert_eq!((again.base(), again.result()), (file.base(), file.result()));
        }
        Err(error) => check_error(&error, true),
    }
}

/// The data is at fault, or belongs to another base; never the machine.
fn check_error(error: &Error, applied: bool) {
    let data = matches!(error.kind(), ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit);
    assert!(data || applied && error.kind() == ErrorKind::Caller, "{error}");
}

/// Deltas of the model: values, shapes, names, with loss.
pub fn seeds() -> Vec<Vec<u8>> {
    let old = base();
    let mut values = old.clone();
    values.iter_mut().for_each(|(.., data)| data.iter_mut().step_by(28).for_each(|b| *b ^= 1));
    let mut names = old.clone();
    names[2].0 = "e".into();
    names[1].2 = vec![4, 10];
    names[3] = ("f".into(), Dtype::U8, vec![7], vec![1; 7]);
    names.push((
        "g".into(),
        Dtype::F32,
        vec![64, 65],
        old[0].3.iter().chain(&old[0].3[..256]).copied().collect(),
    ));
    let mut all = old.clone();
    all[0].3.rotate_left(40);
    let make = |new: &Model, goal: Option<Goal>| {
        let mut options = MakeOptions::default().with_threads(1);
        options.goal = goal;
        delta::make_bytes(&tensors(&old), &tensors(new), &options, &Silent).expect("two models").0
    };
    vec![make(&old, None), make(&values, None), make(&names, None), make(&all, Some(Goal::Bits(1.0)))]
}
