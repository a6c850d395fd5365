//! What goes in comes out: tensors, names, order, metadata, shards, and the files around them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use common::*;
use safetensors::tensor::Dtype;
use tempfile::tempdir;
use tenfold::{DecodeOptions, Goal};
use tenfold_archive::{
    Archive, CompressOptions, Report, Silent, Source, TensorInfo, compare, compress, compress_source,
    decompress, inspect, verify,
};

fn squeeze(input: &Path, output: &Path, options: &CompressOptions) -> Report {
    compress(input, output, options, &Silent).unwrap()
}

fn restore(input: &Path, output: &Path) {
    decompress(input, output, &DecodeOptions::default(), false, &Silent).unwrap();
}

#[test]
fn a_file_of_the_standard_library_comes_back_byte_for_byte() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &small_model(), &[("format", "pt")]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Lossless));
    assert_eq!((report.compressed.tensors, report.total.tensors), (2, 5));
    restore(&b, &c);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&c).unwrap());
    assert_eq!(list(dir.path()).len(), 3, "nothing else is left behind");
}

#[test]
fn residuals_are_layers_of_lossy_tensors() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_standard(&a, &small_model(), &[]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Bits(3.0)).with_residual(Goal::Bits(4.0)));
    let layered: Vec<_> = report.tensors.iter().filter(|row| row.codec == "layered").collect();
    assert_eq!(layered.len(), report.compressed.tensors);
    for row in layered {
        assert_eq!((row.layers.len(), row.goal.as_deref()), (2, Some("bits=3.0000 + bits=4.0000")));
        assert!(row.layers.iter().sum::<u64>() < row.stored_bytes);
    }
    assert_eq!(inspect(&b).unwrap().tensors.iter().filter(|row| row.layers.len() == 2).count(), 2);
    restore(&b, &c);
    // Lossless goals leave nothing for a layer.
    let options = CompressOptions::new(Goal::Lossless).with_residual(Goal::Bits(4.0)).with_overwrite(true);
    assert!(squeeze(&a, &b, &options).tensors.iter().all(|row| row.layers.is_empty()));
}

/// Tensors that no file holds.
struct Memory(Vec<TensorInfo>, Vec<Vec<u8>>, BTreeMap<String, String>);

impl Source for Memory {
    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.2
    }

    fn read(&self, index: usize) -> tenfold_archive::Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(&self.1[index]))
    }
}

#[test]
fn tensors_in_memory_become_a_file_and_may_replace_one() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let data: Vec<Vec<u8>> = vec![(0..32768u32).map(|i| (i / 97) as u8).collect(), vec![1, 2, 3]];
    let source = || {
        let info = |name: &str, dtype, shape: &[usize], bytes| TensorInfo {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            bytes,
        };
        let infos =
            vec![info("w", tenfold::Dtype::F32, &[64, 128], 32768), info("b", tenfold::Dtype::U8, &[3], 3)];
        Box::new(Memory(infos, data.clone(), BTreeMap::from([("k".into(), "v".into())])))
    };
    let options = CompressOptions::new(Goal::Lossless);
    let report = compress_source(source(), &path, &options, &Silent).unwrap();
    assert_eq!((report.compressed.tensors, report.total.tensors), (1, 2));
    assert_eq!(
        compress_source(source(), &path, &options, &Silent).unwrap_err().kind(),
        tenfold::engine::ErrorKind::Caller,
        "the file exists"
    );
    compress_source(source(), &path, &options.with_overwrite(true), &Silent).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.metadata()["k"], "v");
    for (index, bytes) in data.iter().enumerate() {
        assert_eq!(&archive.read(index, &DecodeOptions::default()).unwrap().data, bytes);
    }
}

#[test]
fn the_compressed_file_is_valid_safetensors_with_plain_tensors_aligned() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    let model = small_model();
    write_standard(&a, &model, &[("format", "pt")]);
    squeeze(&a, &b, &CompressOptions::new(Goal::Bits(3.0)));
    let file = std::fs::read(&b).unwrap();
    let (header, metadata) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    for made in &model {
        let stored = tensors.tensor(&made.name).unwrap();
        if made.name.starts_with("layers") {
            assert_eq!((stored.dtype(), stored.shape().len()), (Dtype::U8, 1));
            assert!(tenfold::inspect(stored.data()).is_ok());
        } else {
            assert_eq!(
                (stored.dtype(), stored.shape(), stored.data()),
                (made.dtype, &made.shape[..], &made.data[..])
            );
            let offset = 8 + header + metadata.info(&made.name).unwrap().data_offsets.0;
            assert_eq!(offset % (made.dtype.bitsize() / 8), 0, "{} is not aligned", made.name);
        }
    }
}

#[test]
fn header_order_and_data_order_are_kept_where_they_differ() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    let big = floats("z", &[64, 64], 1.0).data;
    let header = r#"{"z":{"dtype":"F32","shape":[64,64],"data_offsets":[6,16390]},"__metadata__":{"k2":"v","k1":"w"},"none":{"dtype":"F16","shape":[0,4],"data_offsets":[6,6]},"a \"q\" ü":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}"#;
    write_raw(&a, header, &[vec![1; 6], big].concat());
    squeeze(&a, &b, &CompressOptions::new(Goal::Lossless).with_include("none"));
    restore(&b, &c);
    let restored = std::fs::read(&c).unwrap();
    let length = u64::from_le_bytes(restored[..8].try_into().unwrap()) as usize;
    let text = std::str::from_utf8(&restored[8..8 + length]).unwrap().trim_end();
    let expected = r#"{"__metadata__":{"k2":"v","k1":"w"},"z":{"dtype":"F32","shape":[64,64],"data_offsets":[6,16390]},"none":{"dtype":"F16","shape":[0,4],"data_offsets":[6,6]},"a \"q\" ü":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}"#;
    assert_eq!(text, expected);
    assert_eq!(restored[8 + length..], std::fs::read(&a).unwrap()[8 + header.len()..]);
}

#[test]
fn shards_index_and_the_rest_of_the_folder_come_back() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let (small, back) = (dir.path().join("small"), dir.path().join("back"));
    let report = squeeze(&model, &small, &CompressOptions::new(Goal::Lossless));
    assert_eq!(list(&small), list(&model));
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(small.join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], report.total.stored_bytes);
    assert_eq!(index["metadata"]["note"], "kept");
    for (name, file) in index["weight_map"].as_object().unwrap() {
        with_standard(&small.join(file.as_str().unwrap()), |tensors| assert!(tensors.tensor(name).is_ok()));
    }
    restore(&small, &back);
    for name in list(&model).iter().filter(|name| name.contains('.')) {
        assert_eq!(
            std::fs::read(model.join(name)).unwrap(),
            std::fs::read(back.join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(std::fs::read(back.join("1_Pooling/config.json")).unwrap(), b"{\"a\":1}");
    assert_eq!(list(dir.path()), ["back", "model", "small"]);
}

#[test]
fn the_configuration_of_a_model_names_the_codec_while_it_is_compressed() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let original = "{\n  \"model_type\": \"llama\",\n  \"eps\": 1e-05\n}";
    std::fs::write(model.join("config.json"), original).unwrap();
    let (small, back) = (dir.path().join("small"), dir.path().join("back"));
    squeeze(&model, &small, &CompressOptions::new(Goal::Bits(4.0)));
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(small.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["quantization_config"], serde_json::json!({"quant_method": "tenfold", "format": 1}));
    assert_eq!(config["model_type"], "llama");
    restore(&small, &back);
    assert_eq!(std::fs::read_to_string(back.join("config.json")).unwrap(), original);
    assert_eq!(std::fs::read(small.join("1_Pooling/config.json")).unwrap(), b"{\"a\":1}");
}

/// Other writers give every shard the same metadata.
#[test]
fn shards_may_name_the_blobs_of_the_whole_model() {
    let dir = tempdir().unwrap();
    let blob = |seed: f32| {
        let values: Vec<f32> = (0..64).map(|i| seed + i as f32).collect();
        let view = tenfold::TensorView::from_slice(&values, &[8, 8]).unwrap();
        tenfold::encode(&view, &tenfold::EncodeOptions::new(Goal::Lossless)).unwrap()
    };
    let tags = r#"{"a":{"dtype":"F32","shape":[8,8]},"b":{"dtype":"F32","shape":[8,8]}}"#;
    let metadata = [("tenfold.format", "1"), ("tenfold.tensors", tags), ("tenfold.scope", "model")];
    for name in ["a", "b"] {
        let data = blob(name.len() as f32);
        let made = Made { name: name.to_owned(), dtype: Dtype::U8, shape: vec![data.len()], data };
        write_standard(
            &dir.path().join(format!("{name}.safetensors")),
            std::slice::from_ref(&made),
            &metadata,
        );
        write_standard(&dir.path().join(format!("lone-{name}.safetensors")), &[made], &metadata[..2]);
    }
    let index = r#"{"weight_map":{"a":"a.safetensors","b":"b.safetensors"}}"#;
    std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let archive = Archive::open(&dir.path().join("model.safetensors.index.json")).unwrap();
    assert!(archive.tensors().iter().all(|tensor| tensor.compressed && tensor.shape == [8, 8]));
    assert!(archive.read(1, &DecodeOptions::default()).is_ok());
    // Without the scope a name that is not there is a fault.
    assert!(Archive::open(&dir.path().join("lone-a.safetensors")).is_err());
}

#[test]
fn an_index_gives_the_shards_alone_and_a_folder_may_hold_one_file() {
    let dir = tempdir().unwrap();
    let model = sharded(&dir);
    let out = dir.path().join("small");
    squeeze(&model.join("model.safetensors.index.json"), &out, &CompressOptions::new(Goal::Bits(4.0)));
    assert_eq!(list(&out).len(), 3);

    let single = dir.path().join("single");
    std::fs::create_dir(&single).unwrap();
    write_standard(&single.join("weights.safetensors"), &small_model(), &[]);
    std::fs::write(single.join("tokenizer.json"), "{}").unwrap();
    let out = dir.path().join("single-small");
    squeeze(&single, &out, &CompressOptions::new(Goal::Bits(4.0)));
    assert_eq!(list(&out), ["tokenizer.json", "weights.safetensors"]);
    assert!(Archive::open(&out).unwrap().is_compressed());
}

#[test]
fn types_that_the_codec_does_not_have_pass_through() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    let model = [
        bytes("c", Dtype::C64, &[64, 64]),
        bytes("f4", Dtype::F4, &[64, 64]),
        bytes("e8", Dtype::F8_E8M0, &[64, 64]),
    ];
    write_standard(&a, &model, &[]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Lossless).with_include("*"));
    assert_eq!(report.compressed.tensors, 0);
    restore(&b, &c);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&c).unwrap());
    let archive = Archive::open(&b).unwrap();
    assert_eq!(
        archive.read(0, &DecodeOptions::default()).unwrap_err().kind(),
        tenfold::engine::ErrorKind::Unsupported
    );
}

#[test]
fn scalars_vectors_and_empty_tensors_can_be_included() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    let mut model =
        vec![floats("scalar", &[], 1.0), floats("vector", &[11], 1.0), floats("empty", &[0, 5], 1.0)];
    model.extend([bytes("bool", Dtype::BOOL, &[9]), bytes("int", Dtype::I16, &[3, 5])]);
    write_standard(&a, &model, &[]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Lossless).with_include("*"));
    assert_eq!(report.compressed.tensors, 5);
    restore(&b, &c);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&c).unwrap());
}

#[test]
fn a_file_without_tensors_is_a_model_too() {
    let dir = tempdir().unwrap();
    let [a, b, c] = ["a.safetensors", "b.safetensors", "c.safetensors"].map(|n| dir.path().join(n));
    write_raw(&a, "{}", &[]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Bits(2.0)));
    assert_eq!(report.total.tensors, 0);
    restore(&b, &c);
    assert_eq!(Archive::open(&c).unwrap().tensors().len(), 0);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let dir = tempdir().unwrap();
    let a = dir.path().join("a.safetensors");
    write_standard(&a, &small_model(), &[]);
    let outputs = [1, 2, 5].map(|threads| {
        let out = dir.path().join(format!("{threads}.safetensors"));
        squeeze(&a, &out, &CompressOptions::new(Goal::Bits(3.0)).with_threads(threads));
        std::fs::read(out).unwrap()
    });
    assert!(outputs.iter().all(|bytes| *bytes == outputs[0]));
}

#[test]
fn an_archive_reads_tensors_and_rows_of_either_kind() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    let model = small_model();
    write_standard(&a, &model, &[("format", "pt")]);
    squeeze(&a, &b, &CompressOptions::new(Goal::Lossless));
    let options = DecodeOptions::default();
    for path in [&a, &b] {
        let archive = Archive::open(path).unwrap();
        assert_eq!(archive.metadata().len(), 1);
        for made in &model {
            let index = archive.find(&made.name).unwrap();
            let tensor = archive.read(index, &options).unwrap();
            assert_eq!((&tensor.shape, &tensor.data), (&made.shape, &made.data));
            let mut room = vec![0; made.data.len()];
            archive.read_into(index, None, &options, &mut room).unwrap();
            assert_eq!(room, made.data);
            room.push(0);
            assert!(archive.read_into(index, None, &options, &mut room).is_err());
        }
        let index = archive.find("layers.0.weight").unwrap();
        let mut room = vec![0; 3 * 96 * 4];
        archive.read_into(index, Some(10..13), &options, &mut room).unwrap();
        assert_eq!(room, model[0].data[10 * 96 * 4..13 * 96 * 4]);
        assert!(archive.read_into(index, Some(62..65), &options, &mut room).is_err());
        let rows = archive.read_rows(index, 10..13, &options).unwrap();
        assert_eq!(rows.shape, [3, 96]);
        assert_eq!(rows.data, model[0].data[10 * 96 * 4..13 * 96 * 4]);
        assert!(archive.read_rows(index, 60..65, &options).is_err());
        assert!(archive.read(99, &options).is_err());
        assert!(archive.find("absent").is_none());
    }
}

#[test]
fn inspect_verify_and_compare_agree_with_what_was_done() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, &small_model(), &[]);
    let report = squeeze(&a, &b, &CompressOptions::new(Goal::Lossless));
    let seen = inspect(&b).unwrap();
    assert_eq!((&seen.total, &seen.compressed), (&report.total, &report.compressed));
    let names = |report: &Report| report.tensors.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&seen), names(&report));
    let verified = verify(&b, &DecodeOptions::default(), &Silent).unwrap();
    assert_eq!((verified.tensors, verified.blobs), (5, 2));
    let comparison = compare(&a, &b, &DecodeOptions::default(), &Silent).unwrap();
    assert!(
        comparison.total.identical && comparison.tensors.iter().all(|diff| diff.identical && diff.mse == 0.0)
    );
}

#[test]
fn compare_finds_differences_and_what_is_missing() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    let mut model = small_model();
    write_standard(&a, &model, &[]);
    let at = 5 * 4;
    let value = f32::from_le_bytes(model[0].data[at..at + 4].try_into().unwrap());
    model[0].data[at..at + 4].copy_from_slice(&(value + 2.0).to_le_bytes());
    model[2] = floats("norm.weight", &[65], 1.0);
    model[4].name = "other".into();
    write_standard(&b, &model, &[]);
    let comparison = compare(&a, &b, &DecodeOptions::default(), &Silent).unwrap();
    let diff = comparison.tensors.iter().find(|diff| diff.name == "layers.0.weight").unwrap();
    assert!((diff.max_error - 2.0).abs() < 1e-6 && (diff.mse - 4.0 / 6144.0).abs() < 1e-9 && !diff.identical);
    assert_eq!(comparison.only_in_first, ["flag"]);
    assert_eq!(comparison.only_in_second, ["other"]);
    assert_eq!(comparison.not_comparable, ["norm.weight"]);
}
