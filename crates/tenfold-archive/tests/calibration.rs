//! Calibrations: what they are worth, how bits are shared by them, what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::path::{Path, PathBuf};

use common::*;
use safetensors::tensor::Dtype;
use tempfile::{TempDir, tempdir};
use tenfold::Goal;
use tenfold::engine::ErrorKind;
use tenfold_archive::{
    Alloc, Calibration, CompressOptions, Error, Importance, Part, Report, Silent, compress, compress_part,
    join_parts,
};

const NAMES: [&str; 3] = ["layers.0.weight", "layers.1.weight", "layers.2.weight"];
const COLS: usize = 96;

fn vector(name: &str, shape: &[usize], values: &[f32]) -> Made {
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Made { name: name.into(), dtype: Dtype::F32, shape: shape.into(), data }
}

/// Inputs that go together with their neighbours, of which some are large.
fn inputs() -> Vec<f32> {
    let size = |j: usize| if j.is_multiple_of(8) { 4.0f32 } else { 1.0 };
    let at = |i: usize, j: usize| size(i) * size(j) * 0.9f32.powi(i.abs_diff(j) as i32);
    (0..COLS * COLS).map(|k| at(k / COLS, k % COLS)).collect()
}

fn norm(made: &Made) -> f64 {
    let values = made.data.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)));
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// A folder with a model of three weights and its calibration. Errors of the second cost a hundred times those of the first; the third
/// is not known.
struct Setup {
    dir: TempDir,
    input: PathBuf,
    file: PathBuf,
    layers: String,
    tensors: Vec<Made>,
}

fn setup() -> Setup {
    let dir = tempdir().unwrap();
    let (input, file) = (dir.path().join("model.safetensors"), dir.path().join("calibration.safetensors"));
    let model: Vec<Made> = NAMES.iter().map(|name| floats(name, &[128, COLS], 0.05)).collect();
    write_standard(&input, &model, &[]);
    let layer = |i: usize| {
        let norm = norm(&model[i]);
        format!(
            "{:?}: {{\"matrix\": \"shared.inputs\", \"rows\": 128, \"cols\": {COLS}, \"tokens\": 9, \"damping\": 0.1, \"norm\": {norm}}}",
            NAMES[i]
        )
    };
    let layers = format!("{{{}, {}}}", layer(0), layer(1));
    let tensors = vec![
        vector("shared.inputs", &[1, COLS, COLS], &inputs()),
        vector("layers.0.weight.outputs", &[128], &[0.001; 128]),
        vector("layers.1.weight.outputs", &[128], &[0.1; 128]),
    ];
    let made = Setup { dir, input, file, layers, tensors };
    made.write(&made.layers, &made.tensors);
    made
}

impl Setup {
    fn write(&self, layers: &str, tensors: &[Made]) {
        write_standard(&self.file, tensors, &[("calibration.format", "1"), ("calibration.layers", layers)]);
    }

    fn compress(&self, options: CompressOptions) -> tenfold_archive::Result<Report> {
        compress(
            &self.input,
            &self.dir.path().join("small.safetensors"),
            &options.with_overwrite(true),
            &Silent,
        )
    }

    fn read(&self) -> Calibration {
        Calibration::read(&self.file).unwrap()
    }
}

fn bits(report: &Report) -> Vec<f64> {
    NAMES
        .iter()
        .map(|name| report.tensors.iter().find(|row| row.name == *name).unwrap().bits_per_value)
        .collect()
}

#[test]
fn losses_are_reported_and_fall_with_bits() {
    let setup = setup();
    let by = setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read())).unwrap();
    let known: Vec<&str> =
        by.tensors.iter().filter(|row| row.loss.is_some()).map(|row| row.name.as_str()).collect();
    assert_eq!(known, NAMES[..2]);
    assert!(bits(&by).iter().all(|bits| (bits / 3.0 - 1.0).abs() < 0.05), "{:?}", bits(&by));
    let coarse =
        setup.compress(CompressOptions::new(Goal::Bits(2.0)).with_calibration(setup.read())).unwrap();
    assert!(by.loss().unwrap() < 0.5 * coarse.loss().unwrap());
}

#[test]
fn bits_go_where_the_loss_is() {
    let setup = setup();
    let equal = setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read())).unwrap();
    let options =
        CompressOptions::new(Goal::Bits(3.0)).with_alloc(Alloc::Loss).with_calibration(setup.read());
    let shared = setup.compress(options).unwrap();
    let [first, second, other] = bits(&shared)[..] else { panic!() };
    assert!(second > first + 2.0 && ((first + second) / 6.0 - 1.0).abs() < 0.03, "{first} {second}");
    assert!((other / 3.0 - 1.0).abs() < 0.02, "{other}");
    assert!(shared.loss().unwrap() < 0.5 * equal.loss().unwrap());
}

#[test]
fn a_loss_is_a_goal() {
    let setup = setup();
    for goal in [0.003, 0.05] {
        let mut options = CompressOptions::default().with_calibration(setup.read()).with_loss(goal);
        options.effort = Some(tenfold::Effort::Fast);
        let report = setup.compress(options).unwrap();
        let loss = report.loss().unwrap();
        assert!(loss <= goal && loss > 0.8 * goal, "{goal}: {loss}");
        assert!(!report.tensors.iter().find(|row| row.name == NAMES[2]).unwrap().is_compressed());
    }
}

fn refused(result: tenfold_archive::Result<impl Sized>, kind: ErrorKind, part: &str) {
    let error = result.err().unwrap();
    assert!(error.to_string().contains(part) && error.kind() == kind, "{error}: {:?}", error.kind());
}

#[test]
fn calibrations_of_other_models_are_refused() {
    let setup = setup();
    let with =
        |calibration| setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_calibration(calibration));
    setup.write(&setup.layers.replace("layers.", "blocks."), &setup.tensors[..1]);
    refused(with(setup.read()), ErrorKind::Caller, "none is here");
    setup.write(&setup.layers.replace("\"rows\": 128", "\"rows\": 64"), &setup.tensors[..1]);
    refused(with(setup.read()), ErrorKind::Caller, "has the shape [64, 96] there");
    setup.write(&setup.layers.replace("\"norm\": ", "\"norm\": 1"), &setup.tensors);
    refused(with(setup.read()), ErrorKind::Caller, "the norm of tensor");
}

#[test]
fn damaged_calibrations_are_refused() {
    let setup = setup();
    let read = |layers: &str, tensors: &[Made]| {
        setup.write(layers, tensors);
        Calibration::read(&setup.file)
    };
    refused(read("", &setup.tensors), ErrorKind::Data, "calibration.layers");
    refused(read("{}", &setup.tensors), ErrorKind::Data, "no layers");
    refused(read(&setup.layers, &setup.tensors[1..]), ErrorKind::Data, "matrix that is not there");
    refused(read(&setup.layers.replace("0.1,", "-1,"), &setup.tensors), ErrorKind::Data, "damping");
    let flat = [vector("shared.inputs", &[COLS, COLS], &inputs())];
    refused(read(&setup.layers, &flat), ErrorKind::Data, "blocks of float32");
    let short = [
        vector("shared.inputs", &[1, COLS, COLS], &inputs()),
        vector("layers.0.weight.outputs", &[3], &[1.0; 3]),
    ];
    refused(read(&setup.layers, &short), ErrorKind::Data, "must be 128 numbers");
    refused(Calibration::read(&setup.input), ErrorKind::Data, "not a calibration");
    refused(Calibration::read(Path::new("nowhere")), ErrorKind::Environment, "nowhere");
    write_standard(&setup.file, &setup.tensors, &[("calibration.format", "2")]);
    refused(Calibration::read(&setup.file), ErrorKind::Unsupported, "format");
    let mut nan = inputs();
    nan[5] = f32::NAN;
    setup.write(&setup.layers, &[vector("shared.inputs", &[1, COLS, COLS], &nan)]);
    let options = CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read());
    refused(setup.compress(options), ErrorKind::Caller, "not finite");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let setup = setup();
    let importance = Importance::new([(NAMES[0].to_owned(), vec![1.0; COLS])]).unwrap();
    let options =
        CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read()).with_importance(importance);
    refused(setup.compress(options), ErrorKind::Caller, "takes the place of importance");
    refused(
        setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_alloc(Alloc::Loss)),
        ErrorKind::Caller,
        "calibration",
    );
    refused(setup.compress(CompressOptions::default().with_loss(0.1)), ErrorKind::Caller, "calibration");
    let options = CompressOptions::default().with_calibration(setup.read()).with_loss(-1.0);
    refused(setup.compress(options), ErrorKind::Caller, "positive");
}

#[test]
fn blocks_may_end_past_the_last_column() {
    let setup = setup();
    let width = 50;
    let whole = inputs();
    let at = |i: usize, j: usize| if i < COLS && j < COLS { whole[i * COLS + j] } else { 0.0 };
    let blocks: Vec<f32> =
        (0..2 * width * width).map(|k| at(k / width, k / (width * width) * width + k % width)).collect();
    let mut tensors = vec![vector("shared.inputs", &[2, width, width], &blocks)];
    tensors.extend(setup.tensors[1..].iter().map(|one| Made {
        name: one.name.clone(),
        dtype: one.dtype,
        shape: one.shape.clone(),
        data: one.data.clone(),
    }));
    setup.write(&setup.layers, &tensors);
    let report =
        setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read())).unwrap();
    assert!(report.loss().unwrap() > 0.0);
}

#[test]
fn blobs_that_the_caller_made_are_taken_as_they_are() {
    let setup = setup();
    let values: Vec<f32> = vec![0.25; 128 * COLS];
    let view = tenfold::TensorView::from_slice(&values, &[128, COLS]).unwrap();
    let blob = tenfold::encode(&view, &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap();
    let path = setup.dir.path().join("blob");
    std::fs::write(&path, &blob).unwrap();
    let made = |name: &str| {
        let files = [(name.to_owned(), path.clone())].into();
        setup.compress(CompressOptions::new(Goal::Bits(3.0)).with_exclude("*").with_made(files))
    };
    let report = made(NAMES[1]).unwrap();
    assert_eq!(report.compressed.tensors, 1);
    assert_eq!(report.compressed.stored_bytes, blob.len() as u64);
    refused(made("other"), ErrorKind::Caller, "does not have");
    let view = tenfold::TensorView::from_slice(&values, &[COLS, 128]).unwrap();
    std::fs::write(&path, tenfold::encode(&view, &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap())
        .unwrap();
    refused(made(NAMES[1]), ErrorKind::Caller, "but the tensor is");
}

#[test]
fn parts_are_calibrated_as_the_whole_is() {
    let setup = setup();
    let (one, many) = (setup.dir.path().join("one.safetensors"), setup.dir.path().join("many.safetensors"));
    let options = || CompressOptions::new(Goal::Bits(3.0)).with_calibration(setup.read());
    let part = |number| {
        compress_part(&setup.input, &many, Part::new(number, 2).unwrap(), &options(), &Silent).unwrap()
    };
    let at_once = compress(&setup.input, &one, &options(), &Silent).unwrap();
    part(1);
    part(2);
    let joined = join_parts(&setup.input, &many, &options(), &Silent).unwrap();
    assert_eq!(std::fs::read(&many).unwrap(), std::fs::read(&one).unwrap());
    assert!((joined.loss().unwrap() / at_once.loss().unwrap() - 1.0).abs() < 1e-12);
    assert!(part(1).was_done);

    setup.write(&setup.layers.replace("\"damping\": 0.1", "\"damping\": 0.2"), &setup.tensors);
    let other = join_parts(&setup.input, &many, &options().with_overwrite(true), &Silent);
    assert!(matches!(other, Err(Error::OtherPart { .. })));
    let whole = join_parts(&setup.input, &many, &options().with_alloc(Alloc::Loss), &Silent).unwrap_err();
    assert!(whole.to_string().contains("without knowing one another"), "{whole}");
}
