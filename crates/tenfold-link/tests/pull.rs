//! What is pulled is what is there: whole files, parts, rows, decoded on the way; from servers with and without ranges, from folders.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Bench, Fault, Web, compressed, decoding, quick, restored};
use tenfold::DecodeOptions;
use tenfold_archive::Archive;
use tenfold_link::{Error, FileEntry, MANIFEST, Manifest};

#[test]
fn a_file_arrives_as_it_is_and_decoded_as_decompress_restores_it() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let web = Web::new([("m.safetensors", bytes.clone())]);
    let pulled = bench.pull(&web.url("m.safetensors"), &quick()).unwrap();
    assert!(bench.out() == bytes);
    assert_eq!((pulled.files, pulled.fetched, pulled.unchecked), (1, bytes.len() as u64, 0));
    std::fs::remove_file(bench.path("out")).unwrap();
    bench.pull(&web.url("m.safetensors"), &decoding()).unwrap();
    assert!(bench.out() == restored(&source));
    assert_eq!(bench.list(), ["m.restored", "m.safetensors", "out"]);
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &quick()), Err(Error::OutputExists(_))));
}

#[test]
fn a_server_without_ranges_will_do() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let web = Web::new([("m.safetensors", bytes.clone())]);
    // The second answer breaks in the middle, and the third starts over.
    let mut count = 0;
    web.behave(move |asked| {
        count += usize::from(asked.path.ends_with("safetensors"));
        Fault::NoRanges((count == 2).then_some(400_000))
    });
    bench.pull(&web.url("m.safetensors"), &decoding()).unwrap();
    assert!(bench.out() == restored(&source));
}

#[test]
fn only_what_is_wanted_is_fetched() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let archive = Archive::open(&source).unwrap();
    let web = Web::new([("m.safetensors", bytes.clone())]);
    let mut options = quick();
    options.include = vec!["layers.[12].*".into(), "norm.*".into()];
    let pulled = bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(pulled.fetched < bytes.len() as u64 * 3 / 4, "{} of {}", pulled.fetched, bytes.len());
    let part = Archive::open(&bench.path("out")).unwrap();
    let names: Vec<&str> = part.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["norm.weight", "layers.1.weight", "layers.2.weight"]);
    let read = |archive: &Archive, name: &str| {
        archive.read(archive.find(name).unwrap(), &DecodeOptions::default()).unwrap().data
    };
    for name in names {
        assert!(read(&part, name) == read(&archive, name), "{name}");
    }
    tenfold_archive::verify(&bench.path("out"), &DecodeOptions::default(), &tenfold_archive::Silent).unwrap();
    // The same, decoded.
    options.decode = true;
    options.overwrite = true;
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    let part = Archive::open(&bench.path("out")).unwrap();
    assert!(!part.is_compressed());
    assert!(read(&part, "layers.2.weight") == read(&archive, "layers.2.weight"));
    options.include = vec!["nothing.*".into()];
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &options), Err(Error::InvalidArgument(_))));
}

#[test]
fn rows_come_from_the_tiles_that_hold_them() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let archive = Archive::open(&source).unwrap();
    let web = Web::new([("m.safetensors", bytes.clone())]);
    for (name, rows) in [("embed.weight", 1500..1600), ("layers.1.weight", 3..4), ("layers.2.weight", 10..64)]
    {
        let mut options = quick();
        (options.include, options.rows, options.overwrite) = (vec![name.into()], Some(rows.clone()), true);
        let pulled = bench.pull(&web.url("m.safetensors"), &options).unwrap();
        let index = archive.find(name).unwrap();
        let expected = archive.read_rows(index, rows, &DecodeOptions::default()).unwrap();
        let part = Archive::open(&bench.path("out")).unwrap();
        let found = part.read(0, &DecodeOptions::default()).unwrap();
        assert_eq!((&found.shape, found.data == expected.data), (&expected.shape, true), "{name}");
        if name == "embed.weight" {
            let stored = archive.tensors()[index].stored_bytes;
            assert!(pulled.fetched < 64 * 1024 * 3 + stored * 2 / 3, "{} of {stored}", pulled.fetched);
        }
    }
    let mut options = quick();
    (options.include, options.rows) = (vec!["embed.weight".into()], Some(2999..3001));
    options.overwrite = true;
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &options), Err(Error::Archive(_))));
}

/// A folder as model hubs have it: shards, an index, a configuration.
fn folder(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let one = compressed(&bench.path("model-00001-of-00002.safetensors"));
    let two = {
        let path = bench.path("model-00002-of-00002.safetensors");
        let blob = tenfold::encode(
            &tenfold::TensorView::from_slice(&common::values(8192, 5), &[64, 128]).unwrap(),
            &tenfold::EncodeOptions::new(tenfold::Goal::Bits(4.0)),
        );
        let tensors = [("head.weight".to_owned(), tenfold_archive::Content::Blob(blob.unwrap()))];
        tenfold_archive::assemble(&path, Vec::new(), &tensors, true).unwrap();
        std::fs::read(path).unwrap()
    };
    let mut map = serde_json::Map::new();
    for (shard, bytes) in
        [("model-00001-of-00002.safetensors", &one), ("model-00002-of-00002.safetensors", &two)]
    {
        let archive = Archive::parse(bytes.clone(), shard.as_ref()).unwrap();
        for tensor in archive.tensors() {
            map.insert(tensor.name.clone(), shard.into());
        }
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    let config = "{\n  \"quantization_config\": {\"quant_method\": \"tenfold\", \"format\": 1},\n  \"model_type\": \"llama\"}\n";
    let files = vec![
        ("model.safetensors.index.json".to_owned(), serde_json::to_vec_pretty(&index).unwrap()),
        ("model-00001-of-00002.safetensors".to_owned(), one),
        ("model-00002-of-00002.safetensors".to_owned(), two),
        ("config.json".to_owned(), config.into()),
    ];
    let place = bench.path("folder");
    std::fs::create_dir(&place).unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(place.join(name), bytes).unwrap());
    files
}

#[test]
fn folders_come_whole_from_plain_servers_and_from_disk() {
    let bench = Bench::new();
    let files = folder(&bench);
    let plain = bench.path("plain");
    let source = bench.path("folder");
    tenfold_archive::decompress(&source, &plain, &DecodeOptions::default(), false, &tenfold_archive::Silent)
        .unwrap();
    let at = |name: &str| format!("models/{name}");
    let web = Web::new(files.iter().map(|(name, bytes)| (at(name), bytes.clone())));
    for url in [web.url("models/"), web.url("models"), format!("file://{}", source.display())] {
        for decode in [false, true] {
            let mut options = quick();
            options.decode = decode;
            bench.pull(&url, &options).unwrap();
            for (name, bytes) in &files {
                let expected = if decode { std::fs::read(plain.join(name)).unwrap() } else { bytes.clone() };
                assert!(
                    std::fs::read(bench.path("out").join(name)).unwrap() == expected,
                    "{url} {name} {decode}"
                );
            }
            std::fs::remove_dir_all(bench.path("out")).unwrap();
        }
    }
    let mut options = quick();
    options.include = vec!["head.*".into()];
    bench.pull(&web.url("models/"), &options).unwrap();
    let part = Archive::open(&bench.path("out")).unwrap();
    assert_eq!(part.tensors().len(), 1);
}

#[test]
fn a_manifest_beside_the_files_is_believed() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let manifest = Manifest::new(vec![FileEntry::of_file(&source, "m.safetensors").unwrap()]);
    let text = serde_json::to_vec(&manifest).unwrap();
    let web = Web::new([("m.safetensors", bytes.clone()), (MANIFEST, text)]);
    for options in [quick(), decoding()] {
        bench.pull(&web.url("m.safetensors"), &options).unwrap();
        std::fs::remove_file(bench.path("out")).unwrap();
    }
    // Another file under the same name, sound in itself, is not what the manifest promised.
    let other = bench.path("other.safetensors");
    let tensors =
        [("a".to_owned(), tenfold_archive::Content::Plain(tenfold::Dtype::U8, vec![5], vec![1; 5]))];
    tenfold_archive::assemble(&other, Vec::new(), &tensors, false).unwrap();
    let mut sound = std::fs::read(&other).unwrap();
    web.put("m.safetensors", sound.clone());
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &quick()), Err(Error::Corrupt { .. })));
    sound[9] ^= 1;
    let mut entry = FileEntry::of_file(&other, "m.safetensors").unwrap();
    entry.blake3 = "0".repeat(64);
    entry.head = None;
    entry.tensors.clear();
    web.put(MANIFEST, serde_json::to_vec(&Manifest::new(vec![entry])).unwrap());
    assert!(matches!(
        bench.pull(&web.url("m.safetensors"), &quick()),
        Err(Error::Corrupt { .. } | Error::Archive(_))
    ));
    assert!(!bench.path("out").exists());
}
