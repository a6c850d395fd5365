//! Whatever the other end or the way between does: nothing is lost that arrived, nothing is accepted that is wrong, nothing hangs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Bench, Fault, Web, compressed, decoding, quick, restored};
use tenfold::engine::{ErrorKind, Stop};
use tenfold_link::Error;

/// A server of one model, and the model restored.
fn site(bench: &Bench) -> (Web, Vec<u8>, Vec<u8>) {
    let source = bench.path("m.safetensors");
    let bytes = compressed(&source);
    (Web::new([("m.safetensors", bytes.clone())]), bytes, restored(&source))
}

/// Makes requests for the model fail in turn, the first one not.
fn every(web: &Web, faults: Vec<Fault>) {
    let mut count = 0;
    web.behave(move |asked| {
        if !asked.path.ends_with(".safetensors") {
            return Fault::None;
        }
        count += 1;
        if count == 1 { Fault::None } else { faults[count % faults.len()].clone() }
    });
}

#[test]
fn a_link_that_breaks_again_and_again_loses_nothing() {
    let bench = Bench::new();
    let (web, bytes, plain) = site(&bench);
    every(&web, vec![Fault::Cut(100_000), Fault::Cut(0), Fault::Status(503), Fault::Cut(50_001)]);
    let mut options = decoding();
    (options.connections, options.retries) = (1, 5);
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == plain);
    // What came before each break was kept.
    assert!(web.sent() < bytes.len() as u64 + 200_000, "{} for {}", web.sent(), bytes.len());
}

#[test]
fn a_link_that_stays_broken_is_an_error_and_the_next_run_goes_on() {
    let bench = Bench::new();
    let (web, bytes, plain) = site(&bench);
    every(
        &web,
        vec![Fault::Cut(150_000), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0)],
    );
    let mut options = decoding();
    options.connections = 1;
    let error = bench.pull(&web.url("m.safetensors"), &options).unwrap_err();
    assert!(matches!(error, Error::Link { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert!(!bench.path("out").exists());
    let first = web.sent();
    web.behave(|_| Fault::None);
    let pulled = bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == plain);
    assert!(first + web.sent() < bytes.len() as u64 + 1000, "fetched again");
    assert!(pulled.fetched < bytes.len() as u64);
    assert_eq!(bench.list(), ["m.restored", "m.safetensors", "out"]);
}

#[test]
fn a_server_that_falls_silent_is_asked_again() {
    let bench = Bench::new();
    let (web, _, plain) = site(&bench);
    every(&web, vec![Fault::Stall(10_000, Duration::from_secs(3)), Fault::None]);
    let begin = Instant::now();
    let mut options = decoding();
    (options.stall, options.retries) = (Duration::from_millis(400), 8);
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == plain);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn flipped_bits_are_found_and_fetched_again() {
    let bench = Bench::new();
    let (web, bytes, plain) = site(&bench);
    let step = bytes.len() / 23;
    for at in (0..bytes.len()).step_by(step).chain([0, 8, 9, 100, bytes.len() - 1]) {
        for (options, expected) in [(quick(), &bytes), (decoding(), &plain)] {
            // The first answer that holds the byte is wrong, all others are right.
            let mut is_bent = false;
            web.behave(move |asked| {
                let holds = asked.range.is_none_or(|(start, end)| (start..end).contains(&at));
                if holds && !std::mem::replace(&mut is_bent, true) { Fault::Flip(at) } else { Fault::None }
            });
            bench.pull(&web.url("m.safetensors"), &options).unwrap_or_else(|e| panic!("byte {at}: {e}"));
            assert!(bench.out() == *expected, "byte {at}");
            std::fs::remove_file(bench.path("out")).unwrap();
        }
    }
}

#[test]
fn bits_that_stay_flipped_are_an_error() {
    let bench = Bench::new();
    let (web, bytes, _) = site(&bench);
    for at in [3, 200, bytes.len() / 2, bytes.len() - 1] {
        for options in [quick(), decoding()] {
            web.behave(move |_| Fault::Flip(at));
            let error = bench.pull(&web.url("m.safetensors"), &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Data, "byte {at}: {error}");
            assert!(!bench.path("out").exists());
        }
    }
}

#[test]
fn lies_about_lengths_and_ranges_are_no_use() {
    let bench = Bench::new();
    let (web, bytes, plain) = site(&bench);
    let len = bytes.len() as u64;
    let lies =
        [Fault::OtherRange, Fault::Total(len + 1), Fault::Total(10), Fault::Length(7), Fault::Length(-7)];
    for lie in lies {
        // Now and then: the truth comes out.
        every(&web, vec![lie.clone(), Fault::None]);
        let mut options = decoding();
        options.overwrite = true;
        bench.pull(&web.url("m.safetensors"), &options).unwrap_or_else(|e| panic!("{lie:?}: {e}"));
        assert!(bench.out() == plain, "{lie:?}");
        std::fs::remove_file(bench.path("out")).unwrap();
        // Always, from the start.
        let always = lie.clone();
        web.behave(move |_| always.clone());
        let error = bench.pull(&web.url("m.safetensors"), &decoding()).unwrap_err();
        assert!(!bench.path("out").exists(), "{lie:?} {error}");
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_not_mixed() {
    let bench = Bench::new();
    let (web, bytes, _) = site(&bench);
    every(&web, vec![Fault::Cut(100_000), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0)]);
    let mut options = quick();
    options.connections = 1;
    bench.pull(&web.url("m.safetensors"), &options).unwrap_err();
    let other = bench.path("other.safetensors");
    let tensors =
        [("a".to_owned(), tenfold_archive::Content::Plain(tenfold::Dtype::U8, vec![5], vec![1; 5]))];
    tenfold_archive::assemble(&other, Vec::new(), &tensors, false).unwrap();
    let new = std::fs::read(&other).unwrap();
    web.put("m.safetensors", new.clone());
    web.behave(|_| Fault::None);
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == new && new != bytes);
}

#[test]
fn a_token_stays_at_home() {
    let bench = Bench::new();
    let (web, bytes, _) = site(&bench);
    let stranger = Web::new([("m.safetensors", bytes.clone())]);
    let to = stranger.url("m.safetensors");
    web.behave(
        move |asked| {
            if asked.path.ends_with(".safetensors") { Fault::Redirect(to.clone()) } else { Fault::None }
        },
    );
    let mut options = quick();
    options.token = Some("secret".into());
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == bytes);
    let (home, away) = (web.asked(), stranger.asked());
    assert!(
        !home.is_empty() && home.iter().all(|asked| asked.header("authorization") == Some("Bearer secret"))
    );
    assert!(!away.is_empty() && away.iter().all(|asked| asked.header("authorization").is_none()));
    // In circles for ever.
    let round = web.url("m.safetensors");
    web.behave(move |asked| {
        if asked.path.ends_with(".safetensors") { Fault::Redirect(round.clone()) } else { Fault::None }
    });
    options.overwrite = true;
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &options), Err(Error::Protocol { .. })));
}

#[test]
fn names_that_lead_out_are_refused() {
    let bench = Bench::new();
    let entry = serde_json::json!({"name": "../evil", "bytes": 1, "blake3": "0".repeat(64)});
    let manifest = serde_json::json!({"tenfold_manifest": 1, "files": [entry]});
    let index = serde_json::json!({"weight_map": {"a": "../../evil.safetensors"}});
    let web = Web::new([
        ("a/tenfold.manifest.json", manifest.to_string().into_bytes()),
        ("b/model.safetensors.index.json", index.to_string().into_bytes()),
        ("evil", vec![1]),
    ]);
    for url in [web.url("a/"), web.url("b/")] {
        let error = bench.pull(&url, &quick()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    }
    assert!(bench.list().is_empty(), "{:?}", bench.list());
}

#[test]
fn a_stop_keeps_what_has_arrived() {
    let bench = Bench::new();
    let (web, bytes, plain) = site(&bench);
    let mut options = decoding();
    (options.stop, options.stall, options.connections) = (Stop::new(), Duration::from_secs(30), 1);
    let count = Arc::new(AtomicUsize::new(0));
    let (stop, counted) = (options.stop.clone(), count.clone());
    web.behave(move |asked| {
        if asked.path.ends_with(".safetensors") && counted.fetch_add(1, Ordering::SeqCst) == 1 {
            let stop = stop.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                stop.stop();
            });
            return Fault::Stall(200_000, Duration::from_secs(5));
        }
        Fault::None
    });
    let begin = Instant::now();
    assert!(matches!(bench.pull(&web.url("m.safetensors"), &options), Err(Error::Stopped)));
    assert!(begin.elapsed() < Duration::from_secs(4), "a stop must not wait for the server");
    assert!(!bench.path("out").exists());
    web.sent();
    options.stop = Stop::new();
    bench.pull(&web.url("m.safetensors"), &options).unwrap();
    assert!(bench.out() == plain);
    assert!(web.sent() < bytes.len() as u64 - 150_000, "what had arrived came again");
}

#[test]
fn two_runs_do_not_write_the_same_output() {
    let bench = Bench::new();
    let (web, ..) = site(&bench);
    web.behave(|asked| {
        let is_late = asked.range.is_some_and(|(start, _)| start > 0);
        if is_late { Fault::Stall(0, Duration::from_millis(300)) } else { Fault::None }
    });
    let url = web.url("m.safetensors");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| bench.pull(&url, &quick()));
        std::thread::sleep(Duration::from_millis(150));
        assert!(matches!(bench.pull(&url, &quick()), Err(Error::Busy(_))));
        let _ = first.join();
    });
}

#[test]
fn a_full_disk_is_an_error_and_not_half_a_file() {
    // A small file system, where this process may make one.
    let bench = Bench::new();
    let (web, ..) = site(&bench);
    let small = bench.path("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |args: &[&str]| std::process::Command::new(args[0]).args(&args[1..]).output();
    let at = small.to_str().unwrap();
    let made = mount(&["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", at]);
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: no file system can be mounted here");
        return;
    }
    let found = tenfold_link::pull::pull(
        &web.url("m.safetensors"),
        &small.join("out"),
        &quick(),
        &tenfold_archive::Silent,
    );
    let is_absent = !small.join("out").exists();
    let _ = mount(&["umount", at]);
    let error = found.unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert!(is_absent);
}
