//! Golden deltas: a base, a delta and what it becomes, or a delta that must be refused.

use serde_json::{Value, json};
use tenfold::Dtype;
use tenfold::delta::{self, DeltaOptions};

use super::common::{Kind, Random, Sample, specials};
use super::writer::{join, split};
use super::{Entry, features};

/// A delta, and why it is refused if it is: the kind of error and part of its message.
pub struct Delta {
    note: &'static str,
    shows: &'static [&'static str],
    base: Sample,
    blob: Vec<u8>,
    refused: Option<(&'static str, &'static str)>,
}

fn made(base: &Sample, new: &Sample, tile: usize) -> Vec<u8> {
    delta::make(&base.view(), &new.view(), &DeltaOptions::default().with_tile_values(tile)).unwrap()
}

/// The same tensor with another pattern for some of its values.
fn changed(base: &Sample, mut pattern: impl FnMut(usize, u64) -> Option<u64>) -> Sample {
    let size = base.dtype.size();
    let mut new = base.clone();
    for (i, value) in new.data.chunks_exact_mut(size).enumerate() {
        let old = value.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        if let Some(pattern) = pattern(i, old) {
            value.copy_from_slice(&pattern.to_le_bytes()[..size]);
        }
    }
    new
}

/// A share of the values a few steps away from where they were.
fn trained(base: &Sample, share: f64, seed: u64) -> Sample {
    let mut r = Random::new(seed);
    let mask = u64::MAX >> (64 - 8 * base.dtype.size());
    changed(base, |_, old| {
        let by = (r.uniform() * 9.0) as u64 + 1;
        let up = r.uniform() < 0.5;
        (r.uniform() < share).then(|| if up { old.wrapping_add(by) } else { old.wrapping_sub(by) } & mask)
    })
}

pub fn deltas() -> Vec<(String, Delta)> {
    let mut all = Vec::new();
    let mut add = |name: &str, note, shows, base: Sample, new: &Sample, tile: usize| {
        let blob = made(&base, new, tile);
        all.push((name.to_string(), Delta { note, shows, base, blob, refused: None }));
    };
    for dtype in Dtype::ALL {
        let base = Sample::make(dtype, &[20, 15], Kind::Gaussian, 500);
        let mut new = trained(&base, 0.2, 501);
        if dtype.is_float() {
            let size = dtype.size();
            for (i, element) in specials(dtype).iter().enumerate() {
                new.data[(i * 31 + 7) * size..][..size].copy_from_slice(element);
            }
        }
        add(&format!("delta_{dtype}"), "every dtype; floats become what is not finite", &[], base, &new, 0);
    }
    let f32s = |values: usize| Sample::make(Dtype::F32, &[values], Kind::Gaussian, 502);
    let same = f32s(100);
    add("delta_nothing", "nothing changes", &["delta of nothing", "delta no tiles"], same.clone(), &same, 0);
    let empty = Sample::make(Dtype::Bf16, &[3, 0], Kind::Gaussian, 503);
    add("delta_empty", "a tensor without values", &["delta of nothing"], empty.clone(), &empty, 0);
    let scalar = Sample::make(Dtype::F64, &[], Kind::Gaussian, 504);
    add(
        "delta_scalar",
        "one value",
        &["delta dims 0"],
        scalar.clone(),
        &changed(&scalar, |_, old| Some(old ^ 1)),
        0,
    );
    add("delta_all", "every value changes", &[], f32s(500), &trained(&f32s(500), 1.1, 505), 0);
    let moved =
        changed(&f32s(4000), |_, old| Some(u64::from((f32::from_bits(old as u32) + 0.001).to_bits())));
    add(
        "delta_classes",
        "differences that follow the exponents",
        &["delta classes several"],
        f32s(4000),
        &moved,
        0,
    );
    let many = Sample::noise(Dtype::I8, &[5000], 509);
    add(
        "delta_lanes",
        "as many lanes as there may be",
        &["delta lanes 32"],
        many.clone(),
        &trained(&many, 1.1, 512),
        0,
    );

    let tiles = Sample::make(Dtype::Bf16, &[5, 2048], Kind::Gaussian, 506);
    let mut r = Random::new(507);
    let mixed = changed(&tiles, |i, old| match i / 2048 {
        0 => (r.uniform() < 0.9).then(|| old + 1),
        1 => (r.uniform() < 0.7).then(|| (65536.0 * r.uniform()) as u64),
        2 => (i % 2 == 0).then(|| old ^ if r.uniform() < 0.5 { 0x1000 } else { 0x4000 }),
        3 => None,
        _ => (r.uniform() < 0.3).then_some(old ^ 0x8001),
    });
    let shows = &[
        "delta way 0",
        "delta way 1",
        "delta way 2",
        "delta several tiles",
        "delta tile unchanged",
        "delta lanes 4",
    ];
    add("delta_ways", "tiles of every way, and one that changes nothing", shows, tiles, &mixed, 2048);
    let sparse = Sample::make(Dtype::Bf16, &[40_000], Kind::Gaussian, 508);
    let few = changed(&sparse, |i, old| (i % 9_000 == 7 || (12_000..13_000).contains(&i)).then(|| old + 2));
    add("delta_gaps", "long gaps, and changes side by side", &[], sparse, &few, 4096);

    all.extend(refused().into_iter().map(|(name, delta)| (name.to_string(), delta)));
    all
}

/// The kind of error and part of its message; the base, and the delta.
type Spoiled = ((&'static str, &'static str), Sample, Vec<u8>);

/// Deltas that must be refused; all checksums are right.
fn refused() -> Vec<(&'static str, Delta)> {
    let base = Sample::make(Dtype::Bf16, &[300], Kind::Gaussian, 510);
    let blob = made(&base, &trained(&base, 0.2, 511), 0);
    // Magic to shape take 14 bytes, the number of transforms one, then base, flags and result.
    let (flags, geometry) = (14 + 1 + 16, 14 + 1 + 33);
    let header = |spoil: &dyn Fn(&mut Vec<u8>)| {
        let (mut header, tiles) = split(&blob);
        spoil(&mut header);
        join(header, &tiles)
    };
    let tile = |spoil: &dyn Fn(&mut Vec<u8>)| {
        let (header, mut tiles) = split(&blob);
        spoil(&mut tiles[0]);
        join(header, &tiles)
    };
    let head = |change: &dyn Fn(u32) -> u32| {
        tile(&|tile| {
            let head = u32::from_le_bytes([tile[0], tile[1], tile[2], tile[3]]);
            tile[..4].copy_from_slice(&change(head).to_le_bytes());
        })
    };
    let other = changed(&base, |i, old| (i % 3 == 0).then_some(old ^ 1));
    let data = |message, blob: Vec<u8>| (("data", message), base.clone(), blob);
    let cases: Vec<(&'static str, &'static str, Spoiled)> = vec![
        ("wrong_base", "the base is another", (("caller", "fingerprint"), other, blob.clone())),
        ("wrong_base_elsewhere", "the base is another in a value that does not change", {
            let at = unchanged(&base, &blob);
            (("caller", "fingerprint"), changed(&base, |i, old| (i == at).then_some(old ^ 1)), blob.clone())
        }),
        ("flags", "flags that mean nothing", data("flags", header(&|h| h[flags] |= 16))),
        ("flags_no_way", "tiles without a way", data("flags", header(&|h| h[flags] = 1))),
        ("geometry", "more lanes than there may be", data("geometry", header(&|h| h[geometry] = 6))),
        ("gap_tables", "no table of gaps", data("tables", header(&|h| h[geometry + 3] = 0))),
        ("classes", "more classes than there may be", data("tables", header(&|h| h[geometry + 4] = 17))),
        (
            "no_changes",
            "a tile without changes that has bytes",
            data("changes no values", head(&|h| h & !0xff_ffff)),
        ),
        (
            "many_changes",
            "more changes than values",
            data("changes no values", head(&|h| h & !0xff_ffff | 301)),
        ),
        ("gap_table", "a table of gaps that is not there", data("table", head(&|h| h | 7 << 24))),
        ("way", "a way that is not there", data("table", head(&|h| h | 3 << 28))),
        (
            "before",
            "sums that fit neither base nor result",
            (("caller", "fingerprint"), base.clone(), tile(&|t| t[4] ^= 1)),
        ),
        ("after", "new values have another sum", data("what it says", tile(&|t| t[12] ^= 1))),
        ("more_changes", "a stream ends early", data("", head(&|h| h + 1))),
        ("fewer_changes", "a stream has symbols left", data("", head(&|h| h - 1))),
        ("left_over", "bytes behind the raw bits", data("left over", tile(&|t| t.extend([0; 4])))),
        ("padding", "padding that is not zero", {
            let len = split(&blob).1[0].len();
            data("", tile(&move |t| t[len - 1] |= 0x80))
        }),
        ("gap_words", "a stream longer than its tile", data("", tile(&|t| t[22] = 1))),
        ("state", "a lane's state is out of range", data("state", tile(&|t| t[28..32].fill(0)))),
    ];
    let delta = |(name, note, (refused, base, blob))| {
        (name, Delta { note, shows: &[], base, blob, refused: Some(refused) })
    };
    cases.into_iter().map(delta).collect()
}

/// The first value that a delta leaves as it is.
fn unchanged(base: &Sample, blob: &[u8]) -> usize {
    let new = delta::apply(blob, &base.view(), &DeltaOptions::default()).unwrap().data;
    let size = base.dtype.size();
    base.data.chunks(size).zip(new.chunks(size)).position(|(old, new)| old == new).unwrap()
}

pub fn entry(delta: &(String, Delta)) -> Result<Entry, String> {
    let (name, Delta { note, shows, base, blob, refused }) = delta;
    let result = delta::apply(blob, &base.view(), &DeltaOptions::default());
    let crc = |bytes: &[u8]| format!("{:08x}", crc32fast::hash(bytes));
    let mut entry = json!({
        "name": name,
        "note": note,
        "file": format!("{name}.tnf"),
        "base": format!("{name}.base"),
        "dtype": base.dtype.name(),
        "shape": base.shape,
        "file_crc32": crc(blob),
        "base_crc32": crc(&base.data),
    });
    let mut files = vec![("tnf", blob.clone()), ("base", base.data.clone())];
    match (refused, result) {
        (None, Ok(result)) => {
            let found = features::delta(blob);
            let missing: Vec<&&str> = shows.iter().filter(|f| !found.contains(**f)).collect();
            if !missing.is_empty() {
                return Err(format!("{missing:?} is not in {found:?}"));
            }
            entry["expected"] = Value::from(format!("{name}.bin"));
            entry["expected_crc32"] = Value::from(crc(&result.data));
            entry["features"] = json!(found);
            files.push(("bin", result.data));
        }
        (Some((kind, message)), Err(error)) => {
            let found = format!("{:?}", error.kind()).to_lowercase();
            if found != *kind || !error.to_string().contains(message) {
                return Err(format!("{found}: {error}"));
            }
            entry["kind"] = Value::from(*kind);
            entry["message"] = Value::from(*message);
        }
        (None, Err(error)) => return Err(error.to_string()),
        (Some(_), Ok(_)) => return Err("is not refused".into()),
    }
    Ok((entry, files))
}
