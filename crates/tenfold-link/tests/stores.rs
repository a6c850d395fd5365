//! Object stores are pulled as web servers are: by ranges, one version of an object, signed. The store is a web server that looks at what
//! is asked of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "stores")]

mod common;

use common::{Asked, Bench, Fault, Web, compressed, decoding, quick, restored};
use tenfold_link::Error;
use tenfold_link::pull::PullOptions;

/// Settings that lead requests for a store here.
fn settings(scheme: &str, web: &Web) -> Vec<(String, String)> {
    let here = format!("http://{}", web.addr);
    let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    match scheme {
        "s3" => of(&[
            ("aws_endpoint", &here),
            ("aws_region", "nowhere-1"),
            ("aws_access_key_id", "name"),
            ("aws_secret_access_key", "secret"),
        ]),
        "gs" => of(&[("google_base_url", &here), ("google_bearer_token", "badge")]),
        _ => of(&[
            ("azure_endpoint", &here),
            ("azure_storage_account_name", "account"),
            ("azure_storage_account_key", "c2VjcmV0"),
        ]),
    }
}

fn with(scheme: &str, web: &Web, mut options: PullOptions) -> PullOptions {
    options.store = settings(scheme, web);
    options
}

/// Whether requests carry what the store asks for as proof.
fn is_signed(scheme: &str, asked: &Asked) -> bool {
    let proof = asked.header("authorization").unwrap_or_default();
    match scheme {
        "s3" => proof.starts_with("AWS4-HMAC-SHA256 Credential=name/"),
        "gs" => proof == "Bearer badge",
        _ => proof.starts_with("SharedKey account:"),
    }
}

#[test]
fn files_come_from_each_kind_of_store_by_ranges_and_signed() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let plain = restored(&source);
    for scheme in ["s3", "gs", "az"] {
        let web = Web::new([("models/a/m.safetensors", bytes.clone())]);
        let url = format!("{scheme}://models/a/m.safetensors");
        let pulled =
            bench.pull(&url, &with(scheme, &web, quick())).unwrap_or_else(|e| panic!("{scheme}: {e}"));
        assert!(bench.out() == bytes, "{scheme}");
        assert_eq!(pulled.fetched, bytes.len() as u64);
        let asked = web.asked();
        let of_model = || asked.iter().filter(|asked| asked.path.ends_with("m.safetensors"));
        assert!(of_model().count() > 1 && of_model().all(|asked| asked.range.is_some()), "{scheme}");
        assert!(asked.iter().all(|asked| is_signed(scheme, asked)), "{scheme}: {asked:?}");
        std::fs::remove_file(bench.path("out")).unwrap();
        bench.pull(&url, &with(scheme, &web, decoding())).unwrap();
        assert!(bench.out() == plain, "{scheme}");
        std::fs::remove_file(bench.path("out")).unwrap();
    }
}

#[test]
fn a_folder_in_a_bucket_is_a_model() {
    let bench = Bench::new();
    let bytes = compressed(&bench.path("m.safetensors"));
    let config = b"{\"model_type\": \"llama\"}\n".to_vec();
    let web = Web::new([
        ("models/llama/model.safetensors", bytes.clone()),
        ("models/llama/config.json", config.clone()),
        ("models/llama/merges.txt", Vec::new()),
    ]);
    for url in ["s3://models/llama", "s3://models/llama/"] {
        bench.pull(url, &with("s3", &web, quick())).unwrap();
        let read = |name: &str| std::fs::read(bench.path("out").join(name)).unwrap();
        assert!(read("model.safetensors") == bytes && read("config.json") == config);
        assert!(read("merges.txt").is_empty());
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

#[test]
fn a_store_that_breaks_off_is_asked_for_the_rest() {
    let bench = Bench::new();
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    let web = Web::new([("models/m.safetensors", bytes.clone())]);
    let mut count = 0;
    web.behave(move |asked| {
        count += usize::from(asked.path.ends_with("safetensors"));
        match count % 4 {
            2 => Fault::Cut(100_000),
            3 => Fault::Status(503),
            _ => Fault::None,
        }
    });
    let mut options = with("s3", &web, decoding());
    (options.connections, options.retries) = (1, 5);
    bench.pull("s3://models/m.safetensors", &options).unwrap();
    assert!(bench.out() == restored(&source));
    assert!(web.sent() < bytes.len() as u64 + 300_000, "what had arrived came again");
}

#[test]
fn another_version_of_an_object_is_not_mixed_in() {
    let bench = Bench::new();
    let bytes = compressed(&bench.path("m.safetensors"));
    let web = Web::new([("models/m.safetensors", bytes.clone())]);
    let mut count = 0;
    web.behave(move |asked| {
        count += usize::from(asked.path.ends_with("safetensors"));
        if count < 2 { Fault::None } else { Fault::Cut(100_000) }
    });
    let mut options = with("s3", &web, quick());
    (options.connections, options.retries) = (1, 0);
    bench.pull("s3://models/m.safetensors", &options).unwrap_err();
    let asked = web.asked();
    assert!(asked.iter().any(|asked| asked.header("if-match").is_some()), "{asked:?}");
    // The object is another one from the second request of a run on.
    let other = bytes.iter().rev().copied().collect::<Vec<u8>>();
    let (shared, mut first) = (std::sync::Arc::new(web), true);
    let store = shared.clone();
    shared.behave(move |asked| {
        if asked.path.ends_with("safetensors") && std::mem::replace(&mut first, false) {
            let (store, other) = (store.clone(), other.clone());
            std::thread::spawn(move || store.put("models/m.safetensors", other));
            return Fault::Stall(0, std::time::Duration::from_millis(100));
        }
        Fault::None
    });
    options.retries = 5;
    let error = bench.pull("s3://models/m.safetensors", &options).unwrap_err();
    assert!(matches!(error, Error::Changed(_) | Error::Archive(_)), "{error}");
    assert!(!bench.path("out").exists());
}

#[test]
fn what_a_store_refuses_is_an_error_that_says_so() {
    let bench = Bench::new();
    let web = Web::new([("models/m.safetensors", compressed(&bench.path("m.safetensors")))]);
    let options = with("s3", &web, quick());
    let error = bench.pull("s3://models/none.safetensors", &options).unwrap_err();
    assert!(matches!(error, Error::Refused { status: 404, .. }), "{error}");
    for (status, expected) in [(403, 403), (401, 401)] {
        web.behave(move |_| Fault::Status(status));
        let error = bench.pull("s3://models/m.safetensors", &options).unwrap_err();
        assert!(matches!(error, Error::Refused { status, .. } if status == expected), "{status}: {error}");
    }
    let mut options = quick();
    options.store = vec![("nonsense".into(), "x".into())];
    assert!(matches!(bench.pull("s3://models/m", &options), Err(Error::InvalidArgument(_))));
    assert!(matches!(bench.pull("s3:///m", &quick()), Err(Error::InvalidArgument(_))));
}
