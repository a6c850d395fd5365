//! A model made in parts has the bytes of one made at once, whatever its layout.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::{floats, halves, small_model, write_standard};
use tenfold::{Effort, Goal};
use tenfold_archive::{
    Alloc, CompressOptions, Error, Part, Silent, compress, compress_part, join_parts, parts_folder,
};

fn options() -> CompressOptions {
    CompressOptions::new(Goal::Bits(3.0)).with_effort(Effort::Fast).with_threads(1)
}

fn make_all(input: &Path, output: &Path, of: usize, options: &CompressOptions) {
    for number in (1..=of).rev() {
        let report = compress_part(input, output, Part::new(number, of).unwrap(), options, &Silent).unwrap();
        assert!(!report.was_done && report.path.exists());
    }
}

#[test]
fn a_file_in_any_number_of_parts() {
    let dir = tempfile::tempdir().unwrap();
    let (input, one) = (dir.path().join("m.safetensors"), dir.path().join("one.safetensors"));
    write_standard(&input, &small_model(), &[("format", "pt")]);
    for options in [options(), options().with_alloc(Alloc::Ramp(0.5)).with_residual(Goal::Bits(4.0))] {
        compress(&input, &one, &options.clone().with_overwrite(true), &Silent).unwrap();
        // More parts than tensors: some are empty.
        for of in [1, 2, 9] {
            let output = dir.path().join(format!("{of}.safetensors"));
            let _ = std::fs::remove_dir_all(parts_folder(&output));
            make_all(&input, &output, of, &options);
            let report = join_parts(&input, &output, &options.clone().with_overwrite(true), &Silent).unwrap();
            assert!(report.compressed.tensors > 1);
            assert_eq!(std::fs::read(&output).unwrap(), std::fs::read(&one).unwrap(), "{of}");
        }
    }
}

#[test]
fn a_folder_of_shards_with_its_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("model");
    std::fs::create_dir(&input).unwrap();
    write_standard(&input.join("a.safetensors"), &[floats("x", &[64, 96], 0.05)], &[]);
    write_standard(
        &input.join("b.safetensors"),
        &[halves("y", &[80, 64], 0.02), floats("n", &[8], 1.0)],
        &[],
    );
    let index = r#"{"metadata": {}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors", "n": "b.safetensors"}}"#;
    std::fs::write(input.join("model.safetensors.index.json"), index).unwrap();
    std::fs::write(input.join("config.json"), "{\"model_type\": \"llama\"}").unwrap();
    let (one, many) = (dir.path().join("one"), dir.path().join("many"));
    compress(&input, &one, &options(), &Silent).unwrap();
    make_all(&input, &many, 2, &options());
    join_parts(&input, &many, &options(), &Silent).unwrap();
    for entry in std::fs::read_dir(&one).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(
            std::fs::read(one.join(&name)).unwrap(),
            std::fs::read(many.join(&name)).unwrap(),
            "{name:?}"
        );
    }
}

#[test]
fn what_does_not_belong_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("m.safetensors"), dir.path().join("out.safetensors"));
    write_standard(&input, &small_model(), &[]);
    let part = |number| compress_part(&input, &output, Part::new(number, 2).unwrap(), &options(), &Silent);
    part(2).unwrap();
    let missing = join_parts(&input, &output, &options(), &Silent).unwrap_err();
    assert!(matches!(&missing, Error::MissingPart { part, .. } if part == "1/2"), "{missing}");
    part(1).unwrap();
    assert!(part(1).unwrap().was_done);
    let other = options().with_effort(Effort::Balanced);
    assert!(matches!(join_parts(&input, &output, &other, &Silent), Err(Error::OtherPart { .. })));
    write_standard(
        &input,
        &[floats("layers.0.weight", &[64, 96], 0.07), halves("layers.1.weight", &[80, 64], 0.02)],
        &[],
    );
    assert!(matches!(join_parts(&input, &output, &options(), &Silent), Err(Error::OtherPart { .. })));
    assert!(!output.exists());
    for (number, of) in [(0, 1), (2, 1), (1, 0), (1, Part::MOST + 1)] {
        assert!(Part::new(number, of).is_err());
    }
}
