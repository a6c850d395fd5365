//! A folder that is offered: to this client, to others, to careless ones and to rude ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Bench, compressed, decoding, quick, restored};
use tenfold::DecodeOptions;
use tenfold_archive::{Archive, CompressOptions, Content, Silent, assemble};
use tenfold_link::serve::{EncodeLimits, ServeOptions, Server};
use tenfold_link::{Error, MANIFEST, Manifest};

/// Options that differ from the default.
fn with(change: impl FnOnce(&mut ServeOptions)) -> ServeOptions {
    let mut options = ServeOptions::default();
    change(&mut options);
    options
}

fn start(folder: &Path, options: ServeOptions) -> Server {
    Server::start(folder, "127.0.0.1:0", options).unwrap()
}

/// A request in its own words, and the answer to it.
fn talk(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(server: &Server, path: &str, headers: &str) -> String {
    talk(server, &format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n"))
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// A folder with a compressed model and a configuration.
fn site(bench: &Bench) -> (std::path::PathBuf, Vec<u8>) {
    let folder = bench.path("site");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    std::fs::write(folder.join("sub/a b.txt"), "0123456789").unwrap();
    std::fs::write(folder.join(".hidden"), "secret").unwrap();
    std::fs::write(bench.path("outside"), "secret").unwrap();
    let bytes = compressed(&folder.join("m.safetensors"));
    (folder, bytes)
}

#[test]
fn a_folder_comes_whole_checked_and_decoded() {
    let bench = Bench::new();
    let (folder, bytes) = site(&bench);
    let server = start(&folder, ServeOptions::default());
    let url = format!("http://{}/", server.addr());
    let pulled = bench.pull(&url, &quick()).unwrap();
    assert_eq!((pulled.files, pulled.unchecked), (3, 0));
    let out = bench.path("out");
    assert!(std::fs::read(out.join("m.safetensors")).unwrap() == bytes);
    assert_eq!(std::fs::read(out.join("sub/a b.txt")).unwrap(), b"0123456789");
    std::fs::remove_dir_all(&out).unwrap();
    let plain = restored(&folder.join("m.safetensors"));
    bench.pull(&format!("{url}m.safetensors"), &decoding()).unwrap();
    assert!(bench.out() == plain);
    server.shutdown();
}

#[test]
fn it_speaks_http_as_others_do() {
    let bench = Bench::new();
    let (folder, bytes) = site(&bench);
    let server = start(&folder, ServeOptions::default());
    let whole = get(&server, "/sub/a%20b.txt", "");
    assert!(whole.ends_with("\r\n\r\n0123456789") && status(&whole) == 200, "{whole}");
    let tag = format!("\"b3-{}\"", blake3::hash(b"0123456789").to_hex());
    assert!(whole.contains(&format!("etag: {tag}")), "{whole}");
    let part = get(&server, "/sub/a%20b.txt", "Range: bytes=2-4\r\n");
    assert!(part.contains("content-range: bytes 2-4/10") && part.ends_with("234") && status(&part) == 206);
    assert!(get(&server, "/sub/a%20b.txt", "Range: bytes=-3\r\n").ends_with("789"));
    let gone = get(&server, "/sub/a%20b.txt", "Range: bytes=10-\r\n");
    assert!(status(&gone) == 416 && gone.contains("bytes */10"));
    let other = get(&server, "/sub/a%20b.txt", "Range: bytes=2-4\r\nIf-Range: \"x\"\r\n");
    assert_eq!(status(&other), 200);
    assert_eq!(status(&get(&server, "/sub/a%20b.txt", &format!("If-None-Match: {tag}\r\n"))), 304);
    let head = talk(&server, "HEAD /m.safetensors HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(
        head.contains(&format!("content-length: {}", bytes.len())) && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(status(&talk(&server, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")), 405);
    let manifest = get(&server, &format!("/{MANIFEST}"), "");
    let text = manifest.split_once("\r\n\r\n").unwrap().1;
    let manifest = Manifest::parse(text.as_bytes(), "u").unwrap();
    let names: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["config.json", "m.safetensors", "sub/a b.txt"]);
    assert_eq!(manifest.files[1].blake3, blake3::hash(&bytes).to_hex().to_string());
    assert_eq!(manifest.files[1].tensors.len(), 6);
}

#[test]
fn nothing_outside_of_the_folder_exists() {
    let bench = Bench::new();
    let (folder, _) = site(&bench);
    std::os::unix::fs::symlink(bench.path("outside"), folder.join("link")).unwrap();
    std::os::unix::fs::symlink(bench.dir.path(), folder.join("up")).unwrap();
    std::os::unix::fs::symlink(folder.join("config.json"), folder.join("within.json")).unwrap();
    let server = start(&folder, ServeOptions::default());
    for path in [
        "/../outside",
        "/%2e%2e/outside",
        "/sub/../../outside",
        "/sub/..%2f..%2foutside",
        "/link",
        "/up/outside",
        "/.hidden",
        "//etc/passwd",
        "/sub//a",
        "/%00",
        "/sub/%5c..%5coutside",
        "/",
        "/sub",
        "/up/tenfold.manifest.json",
        "/../tenfold.manifest.json",
        "/%ff",
        "/%2",
    ] {
        let answer = get(&server, path, "");
        assert!(matches!(status(&answer), 400 | 404), "{path}: {answer}");
        assert!(!answer.contains("secret"), "{path}");
    }
    assert_eq!(status(&get(&server, "/within.json", "")), 200);
}

#[test]
fn a_token_is_asked_for_and_limits_hold() {
    let bench = Bench::new();
    let (folder, bytes) = site(&bench);
    let options = with(|options| options.token = Some("right".into()));
    let server = start(&folder, options);
    assert_eq!(status(&get(&server, "/config.json", "")), 401);
    assert_eq!(status(&get(&server, "/config.json", "Authorization: Bearer wrong\r\n")), 401);
    assert_eq!(status(&get(&server, "/config.json", "Authorization: Bearer right\r\n")), 200);
    let url = format!("http://{}/m.safetensors", server.addr());
    assert!(matches!(bench.pull(&url, &quick()), Err(Error::Refused { status: 401, .. })));
    let mut named = quick();
    named.token = Some("right".into());
    bench.pull(&url, &named).unwrap();
    assert!(bench.out() == bytes);
    let long = format!("X: {}\r\n", "a".repeat(40_000));
    assert!(matches!(status(&get(&server, "/config.json", &long)), 0 | 400 | 431));
    let many: String = (0..200).map(|i| format!("X{i}: a\r\n")).collect();
    assert!(matches!(status(&get(&server, "/config.json", &many)), 0 | 400 | 431));
}

#[test]
fn a_hundred_connections_at_once_get_what_they_ask_for() {
    let bench = Bench::new();
    let (folder, bytes) = site(&bench);
    let server = start(&folder, with(|options| options.connections = 16));
    std::thread::scope(|scope| {
        for i in 0..100usize {
            let (server, bytes) = (&server, &bytes);
            scope.spawn(move || {
                let at = i * 997 % (bytes.len() - 5000);
                let mut stream = TcpStream::connect(server.addr()).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let request = format!(
                    "GET /m.safetensors HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: bytes={at}-{}\r\n\r\n",
                    at + 4999
                );
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                assert!(answer.ends_with(&bytes[at..at + 5000]), "{i}");
            });
        }
    });
}

#[test]
fn idle_and_slow_peers_are_let_go() {
    let bench = Bench::new();
    let folder = bench.path("site");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("big.bin"), vec![7; 64 << 20]).unwrap();
    let options = with(|options| {
        (options.connections, options.least_rate) = (2, 1 << 20);
        (options.header_time, options.idle) = (Duration::from_millis(300), Duration::from_millis(500));
    });
    let server = start(&folder, options);
    let connect = || TcpStream::connect(server.addr()).unwrap();
    let ends = |mut stream: TcpStream| {
        let begin = Instant::now();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        rest
    };
    // One that says nothing, and one that never ends its headers.
    let silent = connect();
    let mut slow = connect();
    slow.write_all(b"GET /big.bin HTTP/1.1\r\nHost: h\r\nX: ").unwrap();
    ends(silent);
    ends(slow);
    // One that reads a few bytes now and then: it keeps its place for a short time only.
    let mut drip = connect();
    drip.write_all(b"GET /big.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut some = [0; 1000];
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        if drip.read(&mut some).is_err() {
            break;
        }
    }
    let rest = ends(drip);
    assert!(rest.len() < 60 << 20, "the whole file went to a peer that does not read: {}", rest.len());
    // And the places are free again.
    assert_eq!(status(&get(&server, "/big.bin", "Range: bytes=0-0\r\n")), 206);
}

#[test]
fn tls_and_http_2_work_and_strangers_certificates_do_not() {
    let bench = Bench::new();
    let (folder, bytes) = site(&bench);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
    let (certificate, key) = (bench.path("cert.pem"), bench.path("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let options = with(|options| options.tls = Some((certificate.clone(), key.clone())));
    let server = start(&folder, options);
    let url = format!("https://localhost:{}/m.safetensors", server.addr().port());
    assert!(matches!(bench.pull(&url, &quick()), Err(Error::Environment(_))));
    let mut options = quick();
    options.ca = Some(certificate.clone());
    bench.pull(&url, &options).unwrap();
    assert!(bench.out() == bytes);
    let swapped = with(|options| options.tls = Some((key, certificate)));
    assert!(matches!(Server::start(&folder, "127.0.0.1:0", swapped), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_shutdown_waits_for_answers_under_way() {
    let bench = Bench::new();
    let folder = bench.path("site");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("big.bin"), vec![7; 8 << 20]).unwrap();
    let server = start(&folder, ServeOptions::default());
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"GET /big.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    let (addr, reader) = (
        server.addr(),
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest.len()
        }),
    );
    server.shutdown();
    assert!(reader.join().unwrap() > (8 << 20) - 1000);
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn plain_models_are_encoded_on_request() {
    let bench = Bench::new();
    let folder = bench.path("site");
    std::fs::create_dir(&folder).unwrap();
    let bytes = common::values(96 * 128, 3).iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let tensors = [("w".to_owned(), Content::Plain(tenfold::Dtype::F32, vec![96, 128], bytes))];
    let source = folder.join("m.safetensors");
    assemble(&source, Vec::new(), &tensors, false).unwrap();
    // `assemble` marks its files as tenfold's; a plain one is what decompressing gives.
    let plain = restored(&source);
    std::fs::write(&source, &plain).unwrap();
    std::fs::remove_file(folder.join("m.restored")).unwrap();
    let options = with(|options| options.encode = Some(EncodeLimits::new(bench.path("cache"))));
    let server = start(&folder, options);
    let url = format!("http://{}/m.safetensors", server.addr());
    let mut asked = quick();
    (asked.query, asked.overwrite) = (Some("bits=3&effort=fast".into()), true);
    let expected = {
        let path = bench.path("expected");
        let options = CompressOptions::new(tenfold::Goal::Bits(3.0)).with_effort(tenfold::Effort::Fast);
        tenfold_archive::compress(&source, &path, &options, &Silent).unwrap();
        std::fs::read(path).unwrap()
    };
    for _ in 0..2 {
        let pulled = bench.pull(&url, &asked).unwrap();
        assert!(bench.out() == expected);
        assert_eq!(pulled.unchecked, 0);
    }
    asked.decode = true;
    bench.pull(&url, &asked).unwrap();
    assert!(!Archive::open(&bench.path("out")).unwrap().is_compressed());
    // Over a link that is faster than any encoder the plain file comes: the goal goes for all or nothing.
    asked.query = Some("bits=2.5".into());
    asked.bandwidth = Some(1e15);
    bench.pull(&url, &asked).unwrap();
    assert!(bench.out() == plain);
    // Over a slow one it does not.
    asked.bandwidth = Some(1e3);
    (asked.decode, asked.query) = (false, Some("bits=2".into()));
    bench.pull(&url, &asked).unwrap();
    let archive = Archive::open(&bench.path("out")).unwrap();
    assert!(archive.is_compressed() && archive.read(0, &DecodeOptions::default()).is_ok());
    asked.query = Some("nonsense=2".into());
    assert!(matches!(bench.pull(&url, &asked), Err(Error::Refused { status: 400, .. })));
    let without = start(&folder, ServeOptions::default());
    asked.query = Some("bits=3".into());
    let url = format!("http://{}/m.safetensors", without.addr());
    assert!(matches!(bench.pull(&url, &asked), Err(Error::Refused { status: 403, .. })));
}
