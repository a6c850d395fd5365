//! Does it pay to give values of different expected size different tables, and where to cut?

use super::scan::Scan;
use crate::entropy::class::{ClassMap, MAX_SCALE_BITS};

/// Sums of two scales of at most 6 bits.
const SUMS: usize = 2 << MAX_SCALE_BITS;
/// The largest scale.
const TOP: u8 = (1 << MAX_SCALE_BITS) - 1;
/// Scales an octave that are tried.
const FINENESS: [f32; 3] = [1.0, 2.0, 4.0];
/// Magnitudes told apart when statistics are compared.
const BINS: usize = 48;
/// Most classes that the encoder makes.
const MOST: usize = crate::entropy::MAX_CLASSES;
/// Classes whose tables fit a core's fast cache and a GPU's shared memory with room to spare; more have
/// to save [`DEAR`] bits a value each.
const CHEAP: usize = 8;
const DEAR: f64 = 0.004;
/// Values of a row from which on pairs may have classes.
const LEAST_WIDTH: usize = 256;

type Hist = [u32; BINS];

/// Values of a sample that are neighbours in one row.
struct Run {
    row: usize,
    col: usize,
    /// The number of the first one in the sample.
    first: usize,
    len: usize,
}

fn runs(sample: &[(usize, f32)], width: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut first = 0;
    for window in sample.chunk_by(|a, b| a.0 + 1 == b.0) {
        let mut left = window.len();
        while left > 0 {
            let at = window[window.len() - left].0;
            let len = left.min(width - at % width);
            runs.push(Run { row: at / width, col: at % width, first, len });
            first += len;
            left -= len;
        }
    }
    runs
}

/// The class map that saves most bits, if one does, and whether values have classes in pairs: they do if that takes at most `shared`
/// bits a value more. `sample` holds (position, value in units), `step`
/// is in units, `values` is the length of the tensor, `table_bits` the price of another class. `known` are the scales of columns
/// that a basis knows, four an octave, if there are any.
pub(crate) fn fit(
    scan: &Scan,
    known: &[u8],
    sample: &[(usize, f32)],
    step: f64,
    values: usize,
    table_bits: f64,
    shared: Option<f64>,
) -> (Option<ClassMap>, bool) {
    let paired = shared.is_some();
    if sample.is_empty() {
        return (None, paired);
    }
    let each = values as f64 / sample.len() as f64;
    let spacing = (0.5 / step) as f32;
    let bins: Vec<u8> = sample.iter().map(|&(_, v)| bin(v.abs() * spacing)).collect();
    let runs = runs(sample, scan.width);
    let mut all = [0u32; BINS];
    bins.iter().for_each(|&b| all[b as usize] += 1);
    let whole = entropy(&all) * each;
    // A gain below this is noise of the sample or not worth a decoder's look-ups.
    let mut best = (whole - (0.003 * values as f64).max(whole * 0.002), None);
    let own = [(true, true), (true, false), (false, true)];
    let own = own.into_iter().flat_map(|(r, c)| FINENESS.map(|fine| (r, c, false, fine)));
    let by_basis = [(true, true, true, 4.0), (false, true, true, 4.0)];
    let price = |rows: &[u8], cols: &[u8], known_cols: bool, paired: bool| {
        let of_pairs: Vec<u8>;
        let each_col = if paired {
            of_pairs = (0..cols.len()).map(|i| cols[i & !1]).collect();
            &of_pairs
        } else {
            cols
        };
        let mut hist = vec![[0u32; BINS]; SUMS];
        for run in &runs {
            let r = rows.get(run.row).copied().unwrap_or(0);
            let bins = &bins[run.first..][..run.len];
            match each_col.get(run.col..run.col + run.len) {
                Some(cols) => {
                    bins.iter().zip(cols).for_each(|(&b, &c)| hist[(r + c) as usize % SUMS][b as usize] += 1)
                }
                None => bins.iter().for_each(|&b| hist[r as usize % SUMS][b as usize] += 1),
            }
        }
        let width = |v: &[u8]| v.iter().max().map_or(0, |&m| 8 - m.leading_zeros()) as f64;
        let col_bits = if known_cols { 0.0 } else { cols.len() as f64 * width(cols) };
        let side = rows.len() as f64 * width(rows) + col_bits;
        let (bits, thresholds) = cut(&hist, each, table_bits, DEAR * values as f64);
        (bits + side, thresholds)
    };
    for (use_rows, use_cols, known_cols, per_octave) in own.chain(by_basis) {
        if (use_rows && scan.rows.len() < 2)
            || (use_cols && scan.cols.len() < 2)
            || (known_cols && known.len() != scan.width)
        {
            continue;
        }
        let rows = if use_rows { scales(&scan.rows, per_octave) } else { Vec::new() };
        let cols = match (use_cols, known_cols) {
            (_, true) => known.to_vec(),
            (true, _) => scales(&scan.cols, per_octave),
            _ => Vec::new(),
        };
        let (bits, thresholds) = price(&rows, &cols, known_cols, false);
        if bits < best.0 && !thresholds.is_empty() {
            let map =
                ClassMap { width: scan.width, rows, cols, known: known_cols, thresholds, paired: false };
            best = (bits, Some((map, per_octave)));
        }
    }
    let (bits, Some((map, per_octave))) = best else { return (None, paired) };
    // Where rows have an odd number of values pairs lie otherwise in every second one, and short rows take decoders on a device long.
    let Some(most) = shared.filter(|_| scan.width.is_multiple_of(2) && scan.width >= LEAST_WIDTH) else {
        return (Some(map), false);
    };
    if map.cols.is_empty() {
        return (Some(ClassMap { paired, ..map }), true);
    }
    // The same with columns in pairs.
    let cols = if map.known { map.cols.clone() } else { scales(&in_pairs(&scan.cols), per_octave) };
    let (bits_shared, thresholds) = price(&map.rows, &cols, map.known, true);
    if bits_shared <= bits + most * values as f64 && !thresholds.is_empty() {
        return (Some(ClassMap { cols, thresholds, paired: true, ..map }), true);
    }
    (Some(map), false)
}

/// Means of neighbours, for both.
fn in_pairs(means: &[f32]) -> Vec<f32> {
    means.chunks(2).flat_map(|two| vec![two.iter().sum::<f32>() / two.len() as f32; two.len()]).collect()
}

/// Exact for small magnitudes, then logarithmic.
fn bin(a: f32) -> u8 {
    let k = a + 0.5;
    if k < 16.0 { k as u8 } else { (16.0 + (k / 16.0).log2() * 4.0).min(BINS as f32 - 1.0) as u8 }
}

/// Logarithms of scales as small integers, the smallest being 0.
fn scales(means: &[f32], per_octave: f32) -> Vec<u8> {
    scales_from(means, per_octave, lowest(means, per_octave))
}

/// Where scales start: at the smallest mean, but no farther below the largest than scales reach.
fn lowest(means: &[f32], per_octave: f32) -> f32 {
    let logs = means.iter().map(|m| log(*m, per_octave));
    let high = logs.clone().fold(f32::NEG_INFINITY, f32::max);
    logs.fold(f32::INFINITY, f32::min).max(high - TOP as f32)
}

/// The same scales for other means.
fn scales_from(means: &[f32], per_octave: f32, lowest: f32) -> Vec<u8> {
    means.iter().map(|m| ((log(*m, per_octave) - lowest).round().max(0.0) as u8).min(TOP)).collect()
}

fn log(mean: f32, per_octave: f32) -> f32 {
    mean.max(1e-30).log2() * per_octave
}

/// How means became the scales of a class map, so that another tensor's become scales that its thresholds suit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scaling {
    per_octave: f32,
    /// Whether columns have the means of pairs.
    pairs: bool,
    /// Where the scales of rows and columns start.
    lowest: (f32, f32),
}

impl Scaling {
    /// The one by which [`fit`] made this map from this scan.
    pub(crate) fn of(map: &ClassMap, scan: &Scan) -> Option<Scaling> {
        let all = FINENESS.into_iter().flat_map(|per_octave| [(per_octave, false), (per_octave, true)]);
        all.map(|(per_octave, pairs)| {
            let cols = columns(scan, pairs);
            Scaling { per_octave, pairs, lowest: (lowest(&scan.rows, per_octave), lowest(&cols, per_octave)) }
        })
        .find(|scaling| scaling.map(map, scan, &map.cols) == *map)
    }

    /// The same for a tensor whose values are larger by a factor.
    pub(crate) fn times(self, factor: f64) -> Scaling {
        let more = factor.log2() as f32 * self.per_octave;
        Scaling { lowest: (self.lowest.0 + more, self.lowest.1 + more), ..self }
    }

    /// A map with the thresholds of this one for the rows and columns of another tensor; `known` are the scales of columns that a
    /// basis knows.
    pub(crate) fn map(&self, like: &ClassMap, scan: &Scan, known: &[u8]) -> ClassMap {
        let rows = match like.rows.is_empty() {
            true => Vec::new(),
            false => scales_from(&scan.rows, self.per_octave, self.lowest.0),
        };
        let cols = match (like.known, like.cols.is_empty()) {
            (true, _) => known.to_vec(),
            (_, true) => Vec::new(),
            _ => scales_from(&columns(scan, self.pairs), self.per_octave, self.lowest.1),
        };
        ClassMap { rows, cols, ..like.clone() }
    }
}

/// Means of columns, or of pairs of them.
fn columns(scan: &Scan, pairs: bool) -> Vec<f32> {
    if pairs { in_pairs(&scan.cols) } else { scan.cols.clone() }
}

/// Total entropy in bits.
fn entropy(h: &Hist) -> f64 {
    let n: u32 = h.iter().sum();
    let term = |&c: &u32| if c == 0 { 0.0 } else { c as f64 * (n as f64 / c as f64).log2() };
    h.iter().map(term).sum()
}

/// Merges neighbouring sums until merging further would cost more than a table; returns the bits of the
/// whole tensor and the thresholds.
fn cut(hist: &[Hist], each: f64, table_bits: f64, dear_bits: f64) -> (f64, Vec<u8>) {
    // (first sum, histogram, entropy), empty sums joined to their neighbour.
    let mut parts: Vec<(usize, Hist, f64)> = Vec::new();
    for (sum, h) in hist.iter().enumerate() {
        if h.iter().any(|&c| c > 0) {
            parts.push((sum, *h, entropy(h)));
        }
    }
    let join = |a: &Hist, b: &Hist| {
        let mut h = *a;
        h.iter_mut().zip(b).for_each(|(x, y)| *x += y);
        h
    };
    // What joining part i to part i − 1 would give; only the neighbours of a joint change.
    let try_join = |parts: &[(usize, Hist, f64)], i: usize| {
        let h = join(&parts[i - 1].1, &parts[i].1);
        let e = entropy(&h);
        ((e - parts[i - 1].2 - parts[i].2) * each, h, e)
    };
    let mut joints: Vec<(f64, Hist, f64)> = (1..parts.len()).map(|i| try_join(&parts, i)).collect();
    while let Some((i, joint)) = joints.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)) {
        let price = if parts.len() > CHEAP { table_bits.max(dear_bits) } else { table_bits };
        if joint.0 >= price && parts.len() <= MOST {
            break;
        }
        parts[i] = (parts[i].0, joint.1, joint.2);
        parts.remove(i + 1);
        joints.remove(i);
        for j in [i.wrapping_sub(1), i] {
            if j < joints.len() {
                joints[j] = try_join(&parts, j + 1);
            }
        }
    }
    let bits = parts.iter().map(|p| p.2).sum::<f64>() * each + table_bits * (parts.len().max(1) - 1) as f64;
    (bits, parts.iter().skip(1).map(|p| p.0 as u8).collect())
}
