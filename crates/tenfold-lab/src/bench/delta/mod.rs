//! Deltas: what they take beside what others make of the same two versions, and how long one thread takes to apply them. Files are versions of
//! one model, the first of them the base of all others. `--part cuda` applies deltas on a device instead: [`super::cuda::delta`].

pub(super) mod cases;
pub(super) mod rivals;

use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;
use tenfold::delta::{self, DeltaOptions, Verify};
use tenfold::engine::Limits;
use tenfold::{Dtype, TensorView};

use super::clock::time;
use super::report::number;
use super::table::Table;
use super::{BenchArgs, Report, progress};
use crate::metrics::median;
use cases::{Spread, Versions};
use rivals::Rival;

/// Bytes for the matrix of 1024 × 4096 values of which a tenth changes.
const MATRIX: f64 = 1.30 * 1048576.0;
/// Of a model of which a hundredth changes: bytes over the entropy of places and values.
const NEAR: f64 = 1.05;
/// How often as fast as XOR and zstd -3 one thread applies the same.
const APPLY: f64 = 3.0;
/// Bytes of a tensor that stays as it is.
const SAME: f64 = 64.0;

#[derive(Serialize)]
struct Row {
    case: String,
    coder: String,
    values: usize,
    changed: usize,
    bytes: usize,
    bits_per_change: f64,
    /// Of the entropy of places and values.
    over_entropy: f64,
    make_s: f64,
    /// One thread, where it was timed.
    apply_s: Option<f64>,
}

pub(super) fn run(args: &BenchArgs, report: &mut Report, out: &mut dyn Write) -> Result<()> {
    let mut bench = Bench {
        args,
        report,
        table: Table::new(&["case", "coder", "bytes", "bits a change", "over entropy", "apply, GB/s"]),
    };
    if let [base, versions @ ..] = &args.files[..] {
        ensure!(!versions.is_empty(), "name at least two files: versions of one model, the base first");
        for version in versions {
            bench.real(base, version)?;
        }
    } else {
        bench.made_up()?;
    }
    bench.table.print(out)?;
    Ok(())
}

struct Bench<'a> {
    args: &'a BenchArgs,
    report: &'a mut Report,
    table: Table,
}

impl Bench<'_> {
    fn made_up(&mut self) -> Result<()> {
        let quick = self.args.quick;
        let rows = if quick { 16 } else { 1024 };
        let matrix = cases::made(Dtype::F32, &[rows, 4096], 0.1, Spread::Uniform)?;
        let ours = self.case("f32, 1024 × 4096, a tenth changed", &[&matrix], true)?;
        if !quick {
            self.report.at_most("bytes, f32, 1024 × 4096, a tenth changed", ours.bytes as f64, MATRIX);
        }
        let values = self.args.size_or(if quick { 1 << 18 } else { 64 << 20 });
        for (share, spread, name) in [
            (0.01, Spread::Uniform, "bf16, 1 % changed, anywhere"),
            (0.03, Spread::Uniform, "bf16, 3 % changed, anywhere"),
            (0.01, Spread::Clustered, "bf16, 1 % changed, in clusters"),
            (0.03, Spread::Clustered, "bf16, 3 % changed, in clusters"),
        ] {
            let model = cases::made(Dtype::Bf16, &[values], share, spread)?;
            let ours = self.case(name, &[&model], true)?;
            if spread == Spread::Uniform && share == 0.01 {
                self.report.at_most(format!("bytes over entropy, {name}"), ours.over_entropy, NEAR);
                self.report.at_least(
                    format!("times as fast as XOR and zstd -3, one thread, {name}"),
                    ours.faster,
                    APPLY,
                );
            }
        }
        let same = Versions { new: matrix.old.clone(), ..matrix };
        let ours = self.case("f32, nothing changed", &[&same], false)?;
        self.report.at_most("bytes, nothing changed", ours.bytes as f64, SAME);
        Ok(())
    }

    fn real(&mut self, base: &Path, version: &Path) -> Result<()> {
        let found = cases::of_files(base, version)?;
        let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let title = format!("{} → {}", name(base), name(version));
        let ours = self.case(&title, &found.iter().collect::<Vec<_>>(), true)?;
        self.report.at_most(format!("bytes over the smallest of the others', {title}"), ours.over_best, 1.0);
        Ok(())
    }

    /// Everybody on one case, which may have many tensors.
    fn case(&mut self, case: &str, tensors: &[&Versions], others: bool) -> Result<Ours> {
        let rivals: &[Rival] = if others && self.args.peers { &Rival::ALL } else { &[] };
        let bar = progress::bar(1 + rivals.len(), self.args.quiet);
        bar.set_message(format!("{case}: tenfold"));
        let changed = tensors.iter().map(|one| one.pairs().filter(|(old, new)| old != new).count()).sum();
        let entropy: f64 = tensors.iter().map(|one| one.entropy_bytes()).sum();
        let (mut bytes, mut made, mut applied) = (0, 0.0, 0.0);
        for one in tensors {
            let (seconds, blob) = time(|| make(one));
            let blob = blob?;
            (bytes, made) = (bytes + blob.len(), made + seconds);
            applied += self.timed(one, |tensor| apply(one, &blob, tensor))?;
        }
        self.row(case, "tenfold".into(), tensors, changed, (bytes, entropy), (made, Some(applied)))?;
        bar.inc(1);
        let (mut best, mut by_xor) = (usize::MAX, f64::NAN);
        for &rival in rivals {
            bar.set_message(format!("{case}: {}", rival.name()));
            let (mut size, mut made, mut applied) = (0, 0.0, None);
            for one in tensors {
                let (seconds, frame) = time(|| rival.encode(one));
                let frame = frame?;
                (size, made) = (size + frame.len(), made + seconds);
                if rival == Rival::Xor(3) {
                    let mut room = Vec::new();
                    let seconds = self.timed(one, |tensor| Rival::apply(&frame, tensor, &mut room))?;
                    applied = Some(applied.unwrap_or(0.0) + seconds);
                }
            }
            (best, by_xor) = (best.min(size), applied.unwrap_or(by_xor));
            self.row(case, rival.name(), tensors, changed, (size, entropy), (made, applied))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let over_best = if rivals.is_empty() { f64::NAN } else { bytes as f64 / best as f64 };
        Ok(Ours { bytes, over_entropy: bytes as f64 / entropy, over_best, faster: by_xor / applied })
    }

    /// Seconds that bringing a tensor up to date takes, which must end in the new version.
    fn timed(&self, versions: &Versions, mut apply: impl FnMut(&mut [u8]) -> Result<()>) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..self.args.repeats.unwrap_or(3) {
            let mut tensor = versions.old.clone();
            let (seconds, done) = time(|| apply(&mut tensor));
            done?;
            ensure!(tensor == versions.new, "the tensor is not the new one");
            times.push(seconds);
        }
        Ok(median(&times))
    }

    fn row(
        &mut self,
        case: &str,
        coder: String,
        tensors: &[&Versions],
        changed: usize,
        (bytes, entropy): (usize, f64),
        (make_s, apply_s): (f64, Option<f64>),
    ) -> Result<()> {
        let values = tensors.iter().map(|one| one.values()).sum();
        let tensor_bytes: usize = tensors.iter().map(|one| one.old.len()).sum();
        let bits_per_change = 8.0 * bytes as f64 / changed.max(1) as f64;
        let over_entropy = bytes as f64 / entropy.max(1.0);
        let speed = apply_s.map_or(String::new(), |s| number(tensor_bytes as f64 / s.max(1e-12) / 1e9));
        self.table.row([
            case.to_string(),
            coder.clone(),
            bytes.to_string(),
            number(bits_per_change),
            number(over_entropy),
            speed,
        ]);
        let case = case.to_string();
        self.report.row(&Row {
            case,
            coder,
            values,
            changed,
            bytes,
            bits_per_change,
            over_entropy,
            make_s,
            apply_s,
        })
    }
}

struct Ours {
    bytes: usize,
    over_entropy: f64,
    over_best: f64,
    faster: f64,
}

fn options() -> DeltaOptions {
    DeltaOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(u64::MAX))
}

fn make(versions: &Versions) -> Result<Vec<u8>> {
    let view = |data| TensorView::new(versions.dtype, &versions.shape, data);
    Ok(delta::make(&view(&versions.old)?, &view(&versions.new)?, &options().with_threads(0))?)
}

/// As XOR and zstd do: the sums of what changes are compared, the rest of the tensor is not read.
fn apply(versions: &Versions, blob: &[u8], tensor: &mut [u8]) -> Result<()> {
    let options = options().with_verify(Verify::Touched);
    delta::apply_in_place(blob, versions.dtype, &versions.shape, tensor, &options)?;
    Ok(())
}
