//! `tenfold-lab race` leaves a page that draws itself, goes on where it was stopped, and says what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

#[path = "../../tenfold-cli/tests/common/mod.rs"]
mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Bench;
use serde_json::Value;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)> \"&' k_cache";

/// The browser that opens the page. A page nobody opened is a page nobody tested, so this does not skip.
fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    found.expect("no Chromium on PATH: install the package `chromium` (apt-get install chromium)")
}

/// Opens a page without a window and returns what the browser prints.
fn open(page: &Path, hash: &str, flags: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let fixed = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                 --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars \
                 --virtual-time-budget=5000 --window-size=390,844";
    let output = Command::new(browser())
        .args(fixed.split_whitespace())
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(flags)
        .arg(format!("file://{}{hash}", page.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A `data-` attribute of the page's root.
fn counted(dom: &str, name: &str) -> String {
    let root = &dom[dom.find("<html").unwrap()..];
    let root = &root[..root.find('>').unwrap()];
    let start = root.find(&format!("data-{name}=\"")).unwrap_or_else(|| panic!("no {name} in {root}"));
    root[start..].split('"').nth(1).unwrap().to_string()
}

fn number(dom: &str, name: &str) -> usize {
    counted(dom, name).parse().unwrap()
}

/// Adds a file `kv.safetensors` whose only tensor, 128 × 32 values, has a hostile name.
fn write_hostile(bench: &Bench) {
    let entry = serde_json::json!({ "dtype": "F32", "shape": [128, 32], "data_offsets": [0, 16384] });
    let mut header = serde_json::json!({ HOSTILE: entry }).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend((0..4096u32).flat_map(|i| ((f64::from(i) * 1.7).sin() as f32).to_le_bytes()));
    std::fs::write(bench.path("kv.safetensors"), bytes).unwrap();
}

fn small_race(bench: &Bench) -> Value {
    write_hostile(bench);
    let args = [
        "race",
        "model.safetensors",
        "kv.safetensors",
        "--peers",
        "fast,best",
        "--rates",
        "2,3",
        "--repeats",
        "1",
    ];
    let text = bench.ok(&[&args[..], &["--reference", "fast"]].concat());
    assert!(text.starts_with("No point of another lossy coder"), "{text}");
    serde_json::from_slice(&std::fs::read(bench.path("race/race.json")).unwrap()).unwrap()
}

#[test]
fn the_page_draws_itself() {
    let bench = Bench::new();
    let report = small_race(&bench);
    let page = bench.path("race/race.html");
    let dom = open(&page, "", &["--dump-dom"]);
    assert_eq!((counted(&dom, "done"), counted(&dom, "errors")), ("yes".into(), String::new()));
    assert_eq!(number(&dom, "overflow"), 0, "a phone would scroll sideways");
    let rows = report["rows"].as_array().unwrap();
    let families = report["families"].as_array().unwrap().len();
    // The first kind, weights, as means: a point for each family and rate.
    let rates: HashSet<String> = rows.iter().map(|r| r["target"].to_string()).collect();
    assert_eq!(number(&dom, "curves"), families);
    assert_eq!(number(&dom, "points"), families * rates.len());
    // The first tensor and a map of the error for each family, read back from the canvases.
    let side = |i: usize| report["tensors"][0]["shape"][i].as_u64().unwrap().min(96) as usize;
    assert_eq!(number(&dom, "maps"), families);
    assert_eq!(number(&dom, "cells"), (1 + families) * side(0) * side(1));
    assert!(number(&dom, "colours") > 50, "{}", number(&dom, "colours"));
    // Each family's speeds on one thread and, where there are cores, on all.
    let threads = rows[0]["speeds"].as_array().unwrap().len();
    assert_eq!(number(&dom, "bars"), families * threads);
    assert_eq!(number(&dom, "equal-rows"), families);
    assert_eq!(number(&dom, "losses"), 0);
    // The hostile name is text and nothing else.
    assert!(dom.contains("&lt;/script&gt;&lt;img src=x"), "the name is shown");
    assert!(!dom.contains("<img"), "and not obeyed");
}

/// What a reader does: hide a coder, look at another axis, kind, tensor and direction, switch the theme. After
/// each, what the page counts is noted.
const READER: &str = "<script>
const root = document.documentElement, seen = [];
const press = selector => document.querySelector(selector).click();
const note = () => seen.push([root.dataset.curves, root.dataset.points, root.dataset.cells, root.dataset.theme].join(' '));
press('#legend .keys button'); note();
press('#legend .keys button'); press('#axes button:nth-child(1)'); press('#kinds button:nth-child(2)'); note();
const tensor = document.getElementById('heat-tensor');
tensor.value = '2'; tensor.dispatchEvent(new Event('change')); note();
press('#ways button:nth-child(2)'); press('#theme'); note();
press('#legend h3 button:nth-of-type(2)'); note();
root.dataset.seen = seen.join(', ');
</script></body>";

#[test]
fn the_page_obeys_its_reader() {
    let bench = Bench::new();
    small_race(&bench);
    let page = std::fs::read_to_string(bench.path("race/race.html")).unwrap();
    let read = bench.path("race/read.html");
    std::fs::write(&read, page.replace("</body>", READER)).unwrap();
    let dom = open(&read, "#theme=light", &["--dump-dom"]);
    assert_eq!(counted(&dom, "errors"), "");
    // Three pictures each: of a tensor of 64 × 96 values, then of one of 128 × 32.
    let (cells, other) = (3 * 64 * 96, 3 * 96 * 32);
    let expected = [
        format!("1 2 {cells} light"),
        format!("2 4 {cells} light"),
        format!("2 4 {other} light"),
        format!("2 4 {other} dark"),
        format!("0 0 {other} dark"),
    ];
    assert_eq!(counted(&dom, "seen"), expected.join(", "));
    assert!(dom.contains("NMSE (mean squared error / variance)"), "the axis that was chosen");
}

/// Colours of a picture and its mean brightness, 0 to 255.
fn look(path: &Path) -> (usize, f64) {
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (390, 844));
    let size = info.color_type.samples();
    let pixels: Vec<&[u8]> = pixels[..info.buffer_size()].chunks_exact(size).collect();
    let sum: f64 = pixels.iter().map(|p| p[..3].iter().map(|&c| f64::from(c)).sum::<f64>() / 3.0).sum();
    (pixels.iter().collect::<HashSet<_>>().len(), sum / pixels.len() as f64)
}

#[test]
fn the_page_is_light_and_dark() {
    let bench = Bench::new();
    small_race(&bench);
    let page = bench.path("race/race.html");
    for (theme, bright) in [("light", 200.0..256.0), ("dark", 10.0..70.0)] {
        let picture = bench.path(&format!("{theme}.png"));
        open(&page, &format!("#theme={theme}"), &[&format!("--screenshot={}", picture.display())]);
        let (colours, mean) = look(&picture);
        assert!(colours > 100, "{theme}: {colours} colours");
        assert!(bright.contains(&mean), "{theme}: {mean}");
    }
    // Without a choice the system's decides.
    let plain = open(&page, "", &["--dump-dom"]);
    assert_eq!(counted(&plain, "theme"), "light");
    let dark = open(&page, "", &["--dump-dom", "--blink-settings=preferredColorScheme=0"]);
    assert_eq!(counted(&dark, "theme"), "dark");
}

#[test]
fn a_race_that_was_killed_goes_on() {
    let bench = Bench::new();
    let args = [
        "race",
        "model.safetensors",
        "--peers",
        "fast,balanced,best",
        "--no-speed",
        "--rates",
        "1,2,3,4,5,6",
    ];
    let state = bench.path("race/state.jsonl");
    let lines = || std::fs::read(&state).unwrap_or_default().iter().filter(|&&b| b == b'\n').count();
    let mut child = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while lines() < 3 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = lines();
    assert!(kept >= 3, "{kept}");
    // A write that was cut short.
    let mut torn = std::fs::read(&state).unwrap();
    torn.extend(b"{\"key\":{\"tensor\":\"lay");
    std::fs::write(&state, torn).unwrap();
    bench.ok(&args);
    let report: Value =
        serde_json::from_slice(&std::fs::read(bench.path("race/race.json")).unwrap()).unwrap();
    let all = report["rows"].as_array().unwrap().len();
    assert_eq!(all, 2 * 3 * 6);
    let note = format!("{kept} of {all} measurements are from an earlier run");
    assert!(
        report["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().starts_with(&note)),
        "{report}"
    );
    assert!(report["rows"].as_array().unwrap().iter().all(|r| r["failure"].is_null()));
}

#[test]
fn what_is_wrong_is_told_by_code_and_text() {
    let bench = Bench::new();
    let text = bench.fails(2, &["race", "model.safetensors", "--peers", "nobody"]);
    assert!(text.contains("nobody") && text.contains("best"), "{text}");
    bench.fails(2, &["race"]);
    bench.fails(2, &["race", "model.safetensors", "--rates", "0"]);
    bench.fails(2, &["race", "model.safetensors", "--tensors", "nothing*"]);
    std::fs::write(bench.path("junk.safetensors"), "no tensors at all").unwrap();
    bench.fails(3, &["race", "junk.safetensors"]);
    bench.fails(6, &["race", "gone.safetensors"]);
    assert!(!bench.path("race").exists(), "a race that does not start leaves nothing");
    let list = bench.ok(&["race", "--list"]);
    assert!(list.lines().any(|l| l.starts_with("best ") && l.ends_with("here")), "{list}");
}
