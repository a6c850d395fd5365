//! Whole races among a few real peers and some that misbehave.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use ::tenfold::{Dtype, Effort, Goal, Tensor, TensorView};
use safetensors::tensor::TensorView as FileView;
use tenfold_cli::exit::Usage;

use super::run::STATE_FILE;
use super::*;
use crate::load::Malformed;
use crate::peers::{
    Abilities, Coder, Combined, Fidelity, Kind, Peer, PeerError, Quantiser, Rate, Rtn, Tenfold, Zstd,
};
use crate::synth;

const HOSTILE: &str = "</script><script>alert(\"x\")</script>, 'quoted'";

/// Rounds to 4 bits, and counts.
struct Counting(&'static AtomicUsize);

/// Not on this machine, or always failing.
struct Broken(bool);

/// Keeps the tensor behind our backs: few bytes, hardly an error.
struct Cheat;
static KEPT: Mutex<Option<Tensor>> = Mutex::new(None);

const FIXED: Abilities = Abilities { fidelity: Fidelity::Lossy, rate: Rate::Fixed, timed: true };
const ROUNDING: Combined = rounding(4);

const fn rounding(bits: u8) -> Combined {
    Combined { quantiser: Quantiser::Rtn(Rtn { bits, group: 64, symmetric: false }), coder: Coder::Packed }
}

impl Peer for Counting {
    fn name(&self) -> String {
        "counting".into()
    }
    fn abilities(&self) -> Abilities {
        FIXED
    }
    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        self.0.fetch_add(1, SeqCst);
        ROUNDING.encode(view)
    }
    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        ROUNDING.decode(bytes)
    }
}

impl Peer for Broken {
    fn name(&self) -> String {
        "broken".into()
    }
    fn abilities(&self) -> Abilities {
        FIXED
    }
    fn probe(&self) -> Result<(), PeerError> {
        if self.0 { Err(PeerError::NotAvailable("install libbroken".into())) } else { Ok(()) }
    }
    fn encode(&self, _: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        Err(PeerError::Failed("out of order".into()))
    }
    fn decode(&self, _: &[u8]) -> Result<Tensor, PeerError> {
        Err(PeerError::Failed("out of order".into()))
    }
}

impl Peer for Cheat {
    fn name(&self) -> String {
        "cheat".into()
    }
    fn abilities(&self) -> Abilities {
        FIXED
    }
    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let fine = rounding(8);
        *KEPT.lock().unwrap() = Some(fine.decode(&fine.encode(view)?)?);
        Ok(vec![0; view.len() * 5 / 16])
    }
    fn decode(&self, _: &[u8]) -> Result<Tensor, PeerError> {
        KEPT.lock().unwrap().clone().ok_or_else(|| PeerError::Corrupt("nothing kept".into()))
    }
}

fn best() -> Family {
    Family::new("best", "tenfold best", Kind::Ours, |rates| {
        let aimed = |&b: &f64| Box::new(Tenfold::new(Goal::Bits(b), Effort::Best)) as Box<dyn Peer>;
        rates.iter().map(aimed).collect()
    })
}

fn rtn() -> Family {
    Family::new("rtn", "round to nearest", Kind::Quantiser, |_| {
        (2..=8).map(|bits| Box::new(rounding(bits)) as Box<dyn Peer>).collect()
    })
}

fn zstd() -> Family {
    Family::new("zstd", "zstd", Kind::Lossless, |_| vec![Box::new(Zstd { level: 3 })])
}

fn broken() -> [Family; 2] {
    [
        Family::new("absent", "not installed", Kind::Video, |_| vec![Box::new(Broken(true))]),
        Family::new("failing", "always failing", Kind::Entropy, |_| vec![Box::new(Broken(false))]),
    ]
}

/// A file with two tensors of 64 × 96 values, one of a hostile name.
fn write(path: &Path, seed: u64) {
    let tensor = |seed| synth::gaussian(Dtype::F32, &[64, 96], 0.1, seed).unwrap();
    let (a, b) = (tensor(1), tensor(seed));
    let file = |t| FileView::new(safetensors::Dtype::F32, vec![64, 96], t).unwrap();
    let tensors = [("a.weight", file(&a.data)), (HOSTILE, file(&b.data))];
    safetensors::serialize_to_file(tensors, None, path).unwrap();
}

fn quiet(folder: &Path) -> RaceArgs {
    let file = folder.join("model.safetensors");
    if !file.exists() {
        write(&file, 2);
    }
    let mut args = RaceArgs::new(vec![file]);
    args.rates = vec![2.0, 3.0, 4.5];
    args.repeats = 1;
    args.quiet = true;
    args.reference = "rtn".into();
    args.out = folder.join("out");
    args.command = "tenfold-lab race model".into();
    args
}

fn run_race(args: &RaceArgs, families: &[Family]) -> (Report, String) {
    let mut out = Vec::new();
    let report = race(args, families, &mut out).unwrap();
    (report, String::from_utf8(out).unwrap())
}

#[test]
fn everything_is_written_and_nobody_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let args = quiet(folder.path());
    let families: Vec<Family> = [best(), rtn(), zstd()].into_iter().chain(broken()).collect();
    let (report, text) = run_race(&args, &families);
    // Two tensors: three rates, seven widths, one lossless, one failure.
    assert_eq!(report.rows.len(), 2 * (3 + 7 + 1 + 1));
    assert!(text.starts_with("tenfold best loses nowhere"), "{text}");
    assert!(text.contains("install libbroken") && text.contains("out of order"), "{text}");
    assert!(text.contains("against rtn"), "{text}");
    assert_eq!(report.not_available.len(), 1);
    assert_eq!(report.failures().count(), 2);
    for row in report.rows.iter().filter(|r| r.lossless) {
        let m = row.measured.as_ref().unwrap();
        assert_eq!((m.nmse, m.gap, m.max_error), (Some(0.0), None, 0.0));
    }
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(args.out.join("race.json")).unwrap()).unwrap();
    for field in ["command", "commit", "version", "date", "machine", "headline", "equal_error", "gaps"] {
        assert!(!json[field].is_null(), "{field}");
    }
    assert_eq!(json["rows"].as_array().unwrap().len(), report.rows.len());
    assert_eq!(json["rows"][0]["bytes"], report.rows[0].measured.as_ref().unwrap().bytes);
    let csv = fs::read_to_string(args.out.join("race.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + report.rows.len());
    assert!(csv.contains("\"</script><script>alert(\"\"x\"\")</script>, 'quoted'\""));
    let page = fs::read_to_string(args.out.join("race.html")).unwrap();
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("</script>").count(), 2, "data and program");
    for name in ["gap", "nmse", "max-error"] {
        let svg = fs::read_to_string(args.out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("round to nearest"));
        let png = fs::read(args.out.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5000);
    }
    assert!(
        !fs::read_dir(&args.out).unwrap().any(|f| f.unwrap().path().extension().is_some_and(|e| e == "part"))
    );
}

#[test]
fn a_race_goes_on_where_it_was() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let folder = tempfile::tempdir().unwrap();
    let mut args = quiet(folder.path());
    args.speed = false;
    let counting = Family::new("count", "counting", Kind::Quantiser, |_| vec![Box::new(Counting(&COUNT))]);
    let families = [rtn(), counting];
    let (first, _) = run_race(&args, &families);
    assert_eq!(COUNT.load(SeqCst), 2, "once a tensor");
    let (again, _) = run_race(&args, &families);
    assert_eq!(COUNT.load(SeqCst), 2, "nothing is measured twice");
    assert_eq!(first.rows, again.rows);
    assert!(again.notes.iter().any(|n| n.starts_with("16 of 16 measurements are from an earlier run")));

    // Killed within the last line: that one is missing.
    let state = args.out.join(STATE_FILE);
    let text = fs::read(&state).unwrap();
    fs::write(&state, &text[..text.len() - 10]).unwrap();
    let (resumed, _) = run_race(&args, &families);
    assert_eq!(COUNT.load(SeqCst), 3);
    assert_eq!(first.rows, resumed.rows);
    assert_eq!(fs::read(&state).unwrap().len(), text.len());

    // One of the two tensors changes, then everything is asked for anew.
    write(&args.files[0], 3);
    run_race(&args, &families);
    assert_eq!(COUNT.load(SeqCst), 4);
    args.fresh = true;
    run_race(&args, &families);
    assert_eq!(COUNT.load(SeqCst), 6);
}

#[test]
fn where_ours_loses_stands_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = quiet(folder.path());
    args.tensors = vec!["a.*".into()];
    let cheat = Family::new("cheat", "the cheat", Kind::Video, |_| vec![Box::new(Cheat)]);
    let (report, text) = run_race(&args, &[best(), cheat]);
    assert_eq!(report.losses.found.len(), 1);
    let loss = &report.losses.found[0];
    assert_eq!((loss.tensor.as_str(), loss.bits), ("a.weight", 2.5));
    assert!(loss.nmse < loss.ours);
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), "tenfold best loses at 1 of 1 points of other lossy coders.");
    assert!(lines.next().unwrap().contains("model / a.weight: cheat at 2.50 bits"), "{text}");
    assert!(text.contains("the reference \"rtn\" has no points here"), "{text}");
    assert!(report.equal_error.is_none());
}

#[test]
fn tensors_are_chosen_cut_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = quiet(folder.path());
    args.max_values = Some(1000);
    args.kind = Some(TensorKind::Kv);
    args.speed = false;
    let (report, _) = run_race(&args, &[rtn()]);
    assert!(report.tensors.iter().all(|t| t.shape == [10, 96] && t.kind == TensorKind::Kv));
    assert_eq!((report.tensors[0].values, report.tensors[0].values_in_file), (960, 6144));
    assert!(report.rows.iter().all(|r| r.measured.as_ref().is_some_and(|m| m.speeds.is_empty())));
    assert!(report.notes.iter().any(|n| n.contains("cut to their first whole rows")));
    assert!(report.headline.contains("did not run"), "ours was not there");
}

#[test]
fn what_cannot_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |args: &RaceArgs| race(args, &[rtn()], &mut Vec::new()).unwrap_err();
    let args = quiet(folder.path());
    let none = fails(&RaceArgs { files: Vec::new(), ..args.clone() });
    assert!(none.is::<Usage>(), "{none}");
    let none = fails(&RaceArgs { tensors: vec!["nothing".into()], ..args.clone() });
    assert!(none.is::<Usage>(), "{none}");
    let bad = fails(&RaceArgs { tensors: vec!["[".into()], ..args.clone() });
    assert!(bad.is::<Usage>(), "{bad}");
    let junk = folder.path().join("junk");
    fs::write(&junk, "no tensors").unwrap();
    let bad = fails(&RaceArgs { files: vec![junk], ..args.clone() });
    assert!(bad.is::<Malformed>(), "{bad}");
    let gone = fails(&RaceArgs { files: vec![folder.path().join("gone")], ..args });
    assert!(gone.is::<std::io::Error>(), "{gone}");
}
