//! What goes wrong is told by exit code and text, and leaves no half-written output.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::time::{Duration, Instant};

use common::{Bench, write_model};

const COMPRESS: [&str; 4] = ["compress", "model.safetensors", "-o", "small.safetensors"];

fn compress<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&COMPRESS[..], more].concat()
}

#[test]
fn wrong_usage_is_code_2() {
    let bench = Bench::new();
    let text = bench.fails(2, &COMPRESS);
    assert!(text.contains("--bits") && text.contains("--lossless"), "{text}");
    bench.fails(2, &compress(&["--bits", "3", "--lossless"]));
    for bad in ["-1", "0", "nan", "inf", "three"] {
        bench.fails(2, &compress(&["--bits", bad]));
    }
    bench.fails(2, &compress(&["--bits", "3", "--alloc", "fair"]));
    bench.fails(2, &compress(&["--bits", "3", "--include", "["]));
    bench.fails(2, &compress(&["--lossless", "--alloc", "step"]));
    bench.fails(2, &["explode"]);
    std::fs::write(bench.path("r.toml"), "[default]\nbitz = 3\n").unwrap();
    let text = bench.fails(2, &compress(&["--recipe", "r.toml"]));
    assert!(text.contains("bitz") && text.contains("r.toml"), "{text}");
    assert_eq!(bench.list(), ["model.safetensors", "r.toml"]);
}

#[test]
fn an_existing_output_and_the_input_itself_are_code_2() {
    let bench = Bench::new();
    bench.ok(&compress(&["--lossless"]));
    let text = bench.fails(2, &compress(&["--lossless"]));
    assert!(text.contains("--force"), "{text}");
    bench.ok(&compress(&["--lossless", "--force"]));
    let text = bench
        .fails(2, &["compress", "model.safetensors", "-o", "./model.safetensors", "--lossless", "--force"]);
    assert!(text.contains("both input and output"), "{text}");
    bench.fails(2, &["decompress", "small.safetensors", "-o", "small.safetensors", "--force"]);
}

#[test]
fn bad_data_and_failed_checks_are_code_3() {
    let bench = Bench::new();
    std::fs::write(bench.path("junk.safetensors"), "this is no model at all").unwrap();
    for command in ["inspect", "verify"] {
        bench.fails(3, &[command, "junk.safetensors"]);
    }
    bench.fails(3, &["compare", "model.safetensors", "junk.safetensors"]);
    bench.fails(3, &["decompress", "model.safetensors", "-o", "x.safetensors"]);
    write_model(&bench.path("other.safetensors"), 1, 64, 96);
    bench.fails(3, &["compare", "model.safetensors", "other.safetensors", "--fail-above", "1"]);
    assert!(!bench.ok(&["compare", "model.safetensors", "other.safetensors"]).is_empty());

    bench.ok(&compress(&["--lossless"]));
    let whole = std::fs::read(bench.path("small.safetensors")).unwrap();
    std::fs::write(bench.path("small.safetensors"), &whole[..whole.len() - 1]).unwrap();
    bench.fails(3, &["verify", "small.safetensors"]);
    let mut bent = whole;
    let middle = bent.len() / 2;
    bent[middle] ^= 4;
    std::fs::write(bench.path("small.safetensors"), bent).unwrap();
    let text = bench.fails(3, &["verify", "small.safetensors"]);
    assert!(text.contains("layers."), "the tensor is named: {text}");
}

#[test]
fn limits_are_code_5() {
    let bench = Bench::new();
    bench.fails(5, &compress(&["--max-bytes", "10"]));
    assert_eq!(bench.list(), ["model.safetensors"]);
    bench.ok(&compress(&["--bits", "3"]));
    bench.fails(5, &["verify", "small.safetensors", "--max-tensor-bytes", "1000"]);
    bench.fails(5, &["decompress", "small.safetensors", "-o", "x.safetensors", "--max-tensor-bytes", "1000"]);
    bench.ok(&["verify", "small.safetensors", "--max-tensor-bytes", "24576"]);
}

#[test]
fn a_newer_format_is_code_4() {
    let bench = Bench::new();
    bench.ok(&compress(&["--lossless"]));
    let mut bytes = std::fs::read(bench.path("small.safetensors")).unwrap();
    let key = b"tenfold.format\":\"1";
    let at = bytes.windows(key.len()).position(|w| w == key).unwrap() + key.len() - 1;
    bytes[at] = b'7';
    std::fs::write(bench.path("small.safetensors"), bytes).unwrap();
    let text = bench.fails(4, &["inspect", "small.safetensors"]);
    assert!(text.contains("newer tenfold"), "{text}");
}

#[test]
fn what_the_machine_refuses_is_code_6() {
    let bench = Bench::new();
    bench.fails(6, &["inspect", "absent.safetensors"]);
    bench.fails(6, &["compress", "model.safetensors", "-o", "absent/small.safetensors", "--lossless"]);
    bench.fails(6, &compress(&["--recipe", "absent.toml"]));
}

#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_folder_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let folder = bench.path("locked");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not bind the superuser; nobody may write into /proc.
    let locked = if std::fs::write(folder.join("probe"), "").is_err() { "locked" } else { "/proc" };
    let text = bench
        .fails(6, &["compress", "model.safetensors", "-o", &format!("{locked}/b.safetensors"), "--lossless"]);
    assert!(text.contains(locked), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_leaves_nothing() {
    let bench = Bench::new();
    std::fs::write(bench.path("small.safetensors"), "old").unwrap();
    // A limit on file sizes stands for the full disk: writes fail half-way, with an error and no signal.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} compress model.safetensors -o small.safetensors --lossless --force",
        env!("CARGO_BIN_EXE_tenfold")
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(bench.dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("small.safetensors"), "{text}");
    assert_eq!(std::fs::read(bench.path("small.safetensors")).unwrap(), b"old");
    assert_eq!(bench.list(), ["model.safetensors", "small.safetensors"]);
}

#[test]
fn a_killed_run_leaves_no_target_and_the_next_one_clears_up() {
    let bench = Bench::new();
    write_model(&bench.path("model.safetensors"), 24, 1024, 1024);
    let mut child =
        bench.command(&compress(&["--bits", "3", "--effort", "best", "--threads", "1"])).spawn().unwrap();
    let start = Instant::now();
    // Wait until it writes.
    while bench.list().len() == 1 && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(30));
    child.kill().unwrap();
    let killed = !child.wait().unwrap().success();
    if killed {
        assert!(!bench.path("small.safetensors").exists());
        assert!(bench.list().iter().any(|name| name.ends_with(".tenfold-tmp")), "{:?}", bench.list());
    }
    write_model(&bench.path("model.safetensors"), 1, 64, 64);
    bench.ok(&compress(&["--bits", "3", "--force"]));
    assert_eq!(bench.list(), ["model.safetensors", "small.safetensors"]);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let bench = Bench::new();
    let mut child = bench
        .command(&["inspect", "model.safetensors"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
