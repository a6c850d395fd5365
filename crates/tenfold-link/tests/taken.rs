//! Tensors for the caller are those of the file, each when it is there; and what is not a model travels as well.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Mutex;

use common::{Bench, Fault, Web, compressed, decoding, quick};
use tenfold::DecodeOptions;
use tenfold_archive::delta::{ApplyOptions, DeltaFile, MakeOptions, Tensors};
use tenfold_archive::{Archive, Silent};
use tenfold_link::pull::{PullOptions, Pulled, Taken, pull_tensors};
use tenfold_link::serve::{ServeOptions, Server};
use tenfold_link::{Error, MANIFEST, Result};

fn take(bench: &Bench, url: &str, mut options: PullOptions) -> Result<(Pulled, Vec<Taken>)> {
    options.cache = Some(bench.path("cache"));
    let taken = Mutex::new(Vec::new());
    let pulled = pull_tensors(
        url,
        &options,
        &|tensor| {
            taken.lock().unwrap().push(tensor);
            Ok(())
        },
        &Silent,
    )?;
    Ok((pulled, taken.into_inner().unwrap()))
}

#[test]
fn tensors_are_those_of_the_file_decoded_or_as_blobs() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let web = Web::new([("m.safetensors", compressed(&source))]);
    let archive = Archive::open(&source).unwrap();
    let url = web.url("m.safetensors");
    let (pulled, tensors) = take(&bench, &url, decoding()).unwrap();
    assert_eq!(tensors.len(), archive.tensors().len());
    assert_eq!(pulled.written, tensors.iter().map(|t| t.data.len() as u64).sum::<u64>());
    for tensor in &tensors {
        let index = archive.find(&tensor.name).unwrap();
        let right = archive.read(index, &DecodeOptions::default()).unwrap();
        assert!(!tensor.is_blob && tensor.data == right.data, "{}", tensor.name);
        assert_eq!((tensor.dtype, &tensor.shape), (Some(right.dtype), &right.shape));
    }
    let (_, blobs) = take(&bench, &url, quick()).unwrap();
    for tensor in &blobs {
        let index = archive.find(&tensor.name).unwrap();
        let right = archive.read(index, &DecodeOptions::default()).unwrap();
        assert_eq!(tensor.is_blob, archive.tensors()[index].compressed);
        let found = match tensor.is_blob {
            true => tenfold::decode(&tensor.data, &DecodeOptions::default()).unwrap().data,
            false => tensor.data.clone(),
        };
        assert!(found == right.data, "{}", tensor.name);
    }
    // Nothing stays behind.
    assert_eq!(std::fs::read_dir(bench.path("cache")).unwrap().count(), 0);
    let mut options = quick();
    (options.include, options.rows) = (vec!["embed.*".into()], Some(100..1900));
    let (_, rows) = take(&bench, &url, options).unwrap();
    let right = archive.read_rows(0, 100..1900, &DecodeOptions::default()).unwrap();
    assert_eq!((rows.len(), &rows[0].shape, rows[0].data == right.data), (1, &right.shape, true));
}

#[test]
fn a_tensor_larger_than_the_pieces_of_files_comes_whole() {
    let bench = Bench::new();
    let path = bench.path("m.safetensors");
    let values = common::values(6000 * 2000, 3);
    let view = tenfold::TensorView::from_slice(&values, &[6000, 2000]).unwrap();
    let options = tenfold::EncodeOptions::new(tenfold::Goal::Bits(2.0)).with_effort(tenfold::Effort::Fast);
    let blob = tenfold_archive::Content::Blob(tenfold::encode(&view, &options).unwrap());
    tenfold_archive::assemble(&path, Vec::new(), &[("w".to_owned(), blob)], true).unwrap();
    let url = format!("file://{}", path.display());
    let (_, tensors) = take(&bench, &url, decoding()).unwrap();
    let right = Archive::open(&path).unwrap().read(0, &DecodeOptions::default()).unwrap();
    assert!(tensors.len() == 1 && tensors[0].data == right.data);
}

#[test]
fn an_error_of_the_taker_ends_the_pull_and_the_next_one_fetches_little() {
    let bench = Bench::new();
    let bytes = compressed(&bench.path("m.safetensors"));
    let web = Web::new([("m.safetensors", bytes.clone())]);
    let mut options = decoding();
    options.cache = Some(bench.path("cache"));
    let count = Mutex::new(0);
    let fail_late = |_: Taken| {
        *count.lock().unwrap() += 1;
        if *count.lock().unwrap() < 5 { Ok(()) } else { Err(Error::Limit("enough".into())) }
    };
    let error = pull_tensors(&web.url("m.safetensors"), &options, &fail_late, &Silent).unwrap_err();
    assert!(matches!(error, Error::Limit(_)), "{error}");
    web.sent();
    let (_, tensors) = take(&bench, &web.url("m.safetensors"), decoding()).unwrap();
    assert_eq!(tensors.len(), 6, "all of them are handed over again");
    assert!(web.sent() < bytes.len() as u64 / 2, "what had arrived came again");
}

#[test]
fn wrong_bytes_never_reach_the_taker() {
    let bench = Bench::new();
    let bytes = compressed(&bench.path("m.safetensors"));
    let web = Web::new([("m.safetensors", bytes.clone())]);
    let (_, right) = take(&bench, &web.url("m.safetensors"), decoding()).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 7) {
        web.behave(move |_| Fault::Flip(at));
        for options in [quick(), decoding()] {
            // Right bytes of the run before would be taken.
            bench.forget();
            let error = take(&bench, &web.url("m.safetensors"), options).unwrap_err();
            assert_eq!(error.kind(), tenfold::engine::ErrorKind::Data, "byte {at}: {error}");
        }
    }
    web.behave(|_| Fault::None);
    assert!(take(&bench, &web.url("m.safetensors"), decoding()).unwrap().1 == right);
}

/// Two versions of a model and the delta between them.
fn delta(bench: &Bench) -> Vec<u8> {
    let model = |name: &str, seed: u64| {
        let mut values = common::values(64 * 512, 5);
        values.iter_mut().step_by(97).for_each(|v| *v += seed as f32 * 1e-3);
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let content = tenfold_archive::Content::Plain(tenfold::Dtype::F32, vec![64, 512], bytes);
        tenfold_archive::assemble(&bench.path(name), Vec::new(), &[("w".to_owned(), content)], true).unwrap();
        bench.path(name)
    };
    let (base, new) = (model("base.safetensors", 0), model("new.safetensors", 1));
    let path = bench.path("d.safetensors");
    let (base, new) = (Archive::open(&base).unwrap(), Archive::open(&new).unwrap());
    let decode = DecodeOptions::default();
    let (base, new) = (Tensors::of_archive(&base, &decode), Tensors::of_archive(&new, &decode));
    tenfold_archive::delta::make(&base, &new, &path, &MakeOptions::default(), &Silent).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn deltas_are_pulled_checked_and_applied() {
    let bench = Bench::new();
    let bytes = delta(&bench);
    let web = Web::new([("d.safetensors", bytes.clone())]);
    let url = web.url("d.safetensors");
    bench.pull(&url, &quick()).unwrap();
    assert!(bench.out() == bytes);
    let made = bench.path("made.safetensors");
    let base = Archive::open(&bench.path("base.safetensors")).unwrap();
    let delta = DeltaFile::open(&bench.path("out")).unwrap();
    tenfold_archive::delta::apply(&base, &[&delta], &made, &ApplyOptions::default(), &Silent).unwrap();
    let read = |path: &std::path::Path| {
        Archive::open(path).unwrap().read(0, &DecodeOptions::default()).unwrap().data
    };
    assert!(read(&made) == read(&bench.path("new.safetensors")));
    std::fs::remove_file(bench.path("out")).unwrap();
    // Wrong bytes are found, and a delta has no tensors of its own.
    for at in (200..bytes.len()).step_by(bytes.len() / 5) {
        web.behave(move |_| Fault::Flip(at));
        bench.forget();
        let error = bench.pull(&url, &quick()).unwrap_err();
        assert_eq!(error.kind(), tenfold::engine::ErrorKind::Data, "byte {at}: {error}");
    }
    web.behave(|_| Fault::None);
    for error in [bench.pull(&url, &decoding()).unwrap_err(), take(&bench, &url, quick()).unwrap_err()] {
        assert!(matches!(error, Error::Archive(tenfold_archive::Error::IsDelta(_))), "{error}");
    }
}

/// Records of a store of pages: opaque here, whole or not at all, checked by the digests of the server.
#[test]
fn pages_of_a_cache_travel_with_digests() {
    let bench = Bench::new();
    let site = bench.path("site");
    let folder = site.join("4f1c");
    std::fs::create_dir_all(&folder).unwrap();
    let pages: Vec<(String, Vec<u8>)> = (0..5u8)
        .map(|i| (format!("page-{i}.tnkv"), (0..50_000u32).map(|n| (n as u8).wrapping_mul(i + 3)).collect()))
        .collect();
    pages.iter().for_each(|(name, page)| std::fs::write(folder.join(name), page).unwrap());
    let server = Server::start(&site, "127.0.0.1:0", ServeOptions::default()).unwrap();
    let url = format!("http://{}/", server.addr());
    let pulled = bench.pull(&url, &quick()).unwrap();
    assert_eq!((pulled.files, pulled.unchecked), (5, 0));
    for (name, page) in &pages {
        assert!(std::fs::read(bench.path("out/4f1c").join(name)).unwrap() == *page, "{name}");
    }
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    let pulled = bench.pull(&format!("{url}4f1c/page-2.tnkv"), &quick()).unwrap();
    assert_eq!((pulled.files, pulled.unchecked), (1, 0));
    assert!(bench.out() == pages[2].1);
    // From any web server, with the manifest beside them: a flipped bit is found.
    let manifest = serde_json::to_vec(&tenfold_link::serve::manifest_of(&site).unwrap()).unwrap();
    let web = Web::new([(MANIFEST, manifest), ("4f1c/page-0.tnkv", pages[0].1.clone())]);
    web.behave(|asked| if asked.path.ends_with(".tnkv") { Fault::Flip(30_000) } else { Fault::None });
    let error = take(&bench, &web.url(""), quick()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "no tensors: {error}");
    std::fs::remove_file(bench.path("out")).unwrap();
    let error = bench.pull(&web.url(""), &quick()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}
