//! `plan`: what to send how, its page, its check, and the cluster model.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader};

use common::Bench;

#[test]
fn a_token_is_sent_raw_and_says_so() {
    let bench = Bench::new();
    let args =
        ["plan", "--shape", "1x576", "--cpu", "--effort", "fast", "--link", "100Mb/s", "--link", "10Gb/s"];
    let text = bench.ok(&args);
    assert_eq!(text.matches("send raw: it fits into one packet").count(), 2, "{text}");
    let json = bench.json(&[&args[..], &["--json"]].concat());
    assert!(json["kinds"][0]["links"][0]["choice"]["way"].is_null());
    assert_eq!(json["kinds"][0]["links"][0]["choice"]["reason"], "one-packet");
}

#[test]
fn stated_rates_decide_without_measuring() {
    let bench = Bench::new();
    let json = bench.json(&[
        "plan",
        "--link",
        "50Mb/s",
        "--link",
        "10Gb/s",
        "--threads",
        "2",
        "--rates",
        "150MB/s,400MB/s,6.4",
        "--json",
    ]);
    let links = &json["kinds"][0]["links"];
    assert_eq!(links[0]["choice"]["way"], 0);
    assert!(links[0]["choice"]["speedup"].as_f64().unwrap() > 5.7);
    assert!(links[1]["choice"]["way"].is_null());
    assert_eq!(links[1]["choice"]["reason"], "not-faster");
    let even = json["kinds"][0]["ways"][0]["break_even"].as_f64().unwrap();
    assert!((250e6..301e6).contains(&even), "{even}");
}

#[test]
fn a_plan_of_a_file_is_checked_and_drawn() {
    let bench = Bench::new();
    let args = [
        "plan",
        "model.safetensors",
        "--cpu",
        "--effort",
        "fast",
        "--bits",
        "3",
        "--link",
        "400kB/s",
        "--check",
        "--check-bytes",
        "1MiB",
        "--html",
        "plan.html",
        "--json",
    ];
    let output = bench.run(&args);
    // A busy machine may make the shorter run miss its forecast: that is what exit code 3 is for.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 2);
    assert_eq!((&checks[0]["way"], &checks[1]["chosen"]), (&"raw".into(), &true.into()));
    // How near a forecast comes is for `--check` to say on an idle machine. A raw run cannot be quicker than its link.
    assert!(checks.iter().all(|check| check["off"].as_f64().unwrap().is_finite()));
    assert!(checks[0]["measured"].as_f64().unwrap() > 0.9 * (1 << 20) as f64 / 400e3);
    let names: Vec<&str> =
        json["kinds"].as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["f32 matrices", "f32 small"]);
    let page = std::fs::read_to_string(bench.path("plan.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Forecasts and runs") && !page.contains("<script"));
    assert!(
        !page.contains("NaN") && !page.contains("http://") || page.contains("http://www.w3.org/2000/svg")
    );
}

#[test]
fn another_machine_listens() {
    let bench = Bench::new();
    let mut listen = bench.command(&["plan", "listen", "127.0.0.1:0"]);
    let mut child = listen.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    let json =
        bench.json(&["plan", "model.safetensors", "--cpu", "--effort", "fast", "--to", &address, "--json"]);
    assert!(json["kinds"][0]["links"][0]["link"]["bytes_per_second"].as_f64().unwrap() > 1e6);
    // One that speaks another protocol does not end it.
    std::io::Write::write_all(
        &mut std::net::TcpStream::connect(&address).unwrap(),
        b"GET / HTTP/1.1\r\n\r\n",
    )
    .unwrap();
    bench.ok(&["plan", "--shape", "1x576", "--cpu", "--effort", "fast", "--to", &address]);
    child.kill().unwrap();
    child.wait().unwrap();
    bench.fails(6, &["plan", "--shape", "1x576", "--cpu", "--to", &address]);
}

#[test]
fn clusters_have_a_page_drawings_and_inputs() {
    let bench = Bench::new();
    let text = bench.ok(&["plan", "cluster", "--html", "c.html", "--svg", "c"]);
    assert!(text.contains("31.7") || text.contains("4.32"), "{text}");
    for file in ["c.html", "c-performance.svg", "c-energy.svg"] {
        assert!(std::fs::read_to_string(bench.path(file)).unwrap().contains("<svg"), "{file}");
    }
    let inputs = bench.ok(&["plan", "cluster", "--print-inputs"]);
    std::fs::write(bench.path("mine.toml"), inputs.replace("overlap = 0.0", "overlap = 1.0")).unwrap();
    let json = bench.json(&["plan", "cluster", "--inputs", "mine.toml", "--area", "20000", "--json"]);
    assert_eq!(json["inputs"]["workload"]["overlap"], 1.0);
    std::fs::write(bench.path("bad.toml"), "[model]").unwrap();
    bench.fails(3, &["plan", "cluster", "--inputs", "bad.toml"]);
    bench.fails(2, &["plan", "cluster", "--area", "100"]);
    bench.fails(6, &["plan", "cluster", "--inputs", "none.toml"]);
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let bench = Bench::new();
    bench.fails(2, &["plan", "--link", "fast"]);
    bench.fails(2, &["plan", "--check"]);
    bench.fails(2, &["plan", "--shape", "0x4"]);
    bench.fails(2, &["plan", "--rates", "1,2"]);
    bench.fails(2, &["plan", "--qp", "3"]);
    bench.fails(6, &["plan", "missing.safetensors"]);
}
