//! From captured tensors to a file of bases: the recipe.

use std::path::PathBuf;

use half::bf16;
use rayon::prelude::*;
use tenfold_archive::Progress;

use super::capture::{Captured, Names, Turned};
use super::components::Components;
use super::file::{BasisFile, GroupMeta, Meta, Numbers};
use super::gain::{Gain, leave_one_out};
use super::kind::Kind;
use super::metric::Metric;
use super::moments::Moments;
use super::report::{GroupReport, Report, Summary};
use super::rope::RopeSpec;
use super::stored::{Opened, Stored, cost};
use super::water::level;
use crate::error::{Error, Result, invalid};

/// Rows read at a time.
const ROWS: usize = 1024;
/// Components weaker than this part of the level are left out: they are zeros nearly everywhere.
const KEEP: f64 = 0.25;
/// Least rate that a file can serve, in bits a value.
const LEAST_BITS: f64 = 0.02;
/// How often all bases are compressed again to meet a cap, and what part of it is near enough.
const TRIES: usize = 9;
const NEAR: f64 = 0.97;

/// How layers are taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// So many layers that follow each other among those captured.
    Layers(usize),
    /// All layers.
    All,
    /// Each head of each layer alone.
    Heads,
}

impl Grouping {
    fn name(self) -> String {
        match self {
            Grouping::Layers(n) => n.to_string(),
            Grouping::All => "all".into(),
            Grouping::Heads => "head".into(),
        }
    }

    /// Hidden states are sent at one place of a model at a time.
    fn groups(self, kind: Kind, layers: &[usize]) -> Vec<Vec<usize>> {
        let size = match self {
            Grouping::Layers(n) if kind != Kind::Hidden => n,
            Grouping::All if kind != Kind::Hidden => layers.len(),
            _ => 1,
        };
        layers.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
    }
}

/// How many vectors a basis has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// As many as count at the rate to serve.
    Needed,
    /// As many as there are columns.
    All,
    /// So many, or as many as there are columns.
    Count(usize),
}

/// What is known of the rotary positions of captured keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// Nothing: keys must have been captured before them.
    Unknown,
    /// The model has none.
    Plain,
    /// What they are.
    Rope(RopeSpec),
}

/// How to fit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FitOptions {
    /// What to make bases for. Default: all that was captured.
    pub kinds: Vec<Kind>,
    /// Which layers share a basis. Default: none do.
    pub grouping: Grouping,
    /// Other ways whose gain is reported too. Default: none.
    pub compare: Vec<Grouping>,
    /// Vectors of a basis. Default: as many as are needed.
    pub rank: Rank,
    /// Highest rate, in bits a value, that the bases are to serve. Default: 4.
    pub bits: f64,
    /// Cap on the file. Default: none.
    pub max_bytes: Option<u64>,
    /// Rotary positions of keys. Default: unknown.
    pub keys: Keys,
    /// Tokens behind which positions start again. Default: never.
    pub context: Option<u64>,
    /// Columns of a head. Default: those of the rotary positions.
    pub head_dim: Option<usize>,
    /// Parts of the rows of which one is left out in turn to measure the gain; fewer than 2: it is not measured. Default: 4.
    pub parts: usize,
    /// Rates at which gains are reported. Default: 2 and 4 bits.
    pub rates: Vec<f64>,
    /// Names of captured tensors.
    pub names: Names,
    /// A file of metrics under the names of captured tensors: a number for each column, or a matrix for each head.
    pub metrics: Option<PathBuf>,
    /// Fingerprint of the model. Default: none.
    pub model: Option<String>,
    /// Worker threads; 0 (the default) uses the current pool.
    pub threads: usize,
}

impl Default for FitOptions {
    fn default() -> Self {
        FitOptions {
            kinds: Vec::new(),
            grouping: Grouping::Layers(1),
            compare: Vec::new(),
            rank: Rank::Needed,
            bits: 4.0,
            max_bytes: None,
            keys: Keys::Unknown,
            context: None,
            head_dim: None,
            parts: 4,
            rates: vec![2.0, 4.0],
            names: Names::default(),
            metrics: None,
            model: None,
            threads: 0,
        }
    }
}

impl FitOptions {
    fn check(&self) -> Result<()> {
        if !(self.bits.is_finite() && self.bits >= LEAST_BITS && self.bits <= 16.0) {
            return Err(invalid(format!("bases serve rates from {LEAST_BITS} to 16 bits a value, not {}", self.bits)));
        }
        if self.rates.iter().any(|r| !(r.is_finite() && *r > 0.0)) {
            return Err(invalid("rates must be positive numbers"));
        }
        let groupings = std::iter::once(&self.grouping).chain(&self.compare);
        if self.rank == Rank::Count(0) || groupings.clone().any(|g| *g == Grouping::Layers(0)) {
            return Err(invalid("a basis has a vector and a layer at least"));
        }
        if groupings.clone().any(|g| *g == Grouping::Heads) && self.head().is_none() {
            return Err(invalid("bases for heads need the columns of a head"));
        }
        if self.context == Some(0) || self.head_dim == Some(0) {
            return Err(invalid("a context has a token at least, and a head a column"));
        }
        Ok(())
    }

    fn head(&self) -> Option<usize> {
        self.head_dim.or(match &self.keys {
            Keys::Rope(rope) => Some(rope.head()),
            _ => None,
        })
    }
}

/// What a fit gives.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fitted {
    /// The bases.
    pub file: BasisFile,
    /// What they are worth and what they cost.
    pub report: Report,
}

/// One group before its vectors are compressed.
struct Measured {
    kind: Kind,
    layers: Vec<usize>,
    cols: usize,
    tokens: u64,
    gain: Option<Gain>,
    /// One for each block of columns.
    blocks: Vec<Components>,
}

/// Finds bases for captured tensors.
pub fn fit(paths: &[PathBuf], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    options.check()?;
    if options.threads == 0 {
        return fit_here(paths, options, progress);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    pool.map_err(|e| tenfold::Error::Threads(e.to_string()))?.install(|| fit_here(paths, options, progress))
}

fn fit_here(paths: &[PathBuf], options: &FitOptions, progress: &dyn Progress) -> Result<Fitted> {
    let captured = Captured::open(paths, &options.names)?;
    let kinds = kinds(&captured, options)?;
    let metrics = options.metrics.as_ref().map(|path| Metrics::open(path, &options.names)).transpose()?;
    let passes = 1 + options.compare.len() as u64;
    progress.start(passes * total_bytes(&captured, &kinds)?);

    let all = |grouping| -> Result<Vec<Measured>> {
        let mut out = Vec::new();
        for &kind in &kinds {
            for layers in grouping_of(grouping, kind, &captured) {
                progress.message(&format!("{kind} of layers {layers:?}"));
                out.push(measure(&captured, kind, layers, grouping, options, metrics.as_ref(), progress)?);
            }
        }
        Ok(out)
    };
    let measured = all(options.grouping)?;
    let mut summaries = summarise(&measured, options.grouping);
    for &other in &options.compare {
        summaries.extend(summarise(&all(other)?, other));
    }
    progress.message("compressing vectors");
    let pressed = press(&measured, options, metrics.is_some())?;
    let groups = measured.iter().zip(&pressed.groups).map(|(m, p)| m.report(p)).collect();
    let bytes = pressed.file.max_bytes()?;
    Ok(Fitted { report: Report { groups, summaries, bytes, bits: pressed.bits }, file: pressed.file })
}

/// What is asked for and there.
fn kinds(captured: &Captured, options: &FitOptions) -> Result<Vec<Kind>> {
    let there: Vec<Kind> = Kind::ALL.into_iter().filter(|&k| !captured.layers(k).is_empty()).collect();
    let kinds = if options.kinds.is_empty() { there.clone() } else { options.kinds.clone() };
    if let Some(missing) = kinds.iter().find(|kind| !there.contains(kind)) {
        return Err(invalid(format!("no {missing} were captured")));
    }
    match captured.any_turned() {
        Some(name) if options.keys == Keys::Unknown && kinds.contains(&Kind::Keys) => Err(invalid(format!(
            "keys {name:?} were captured behind rotary positions: say what those are, or that there are none"
        ))),
        _ => Ok(kinds),
    }
}

fn grouping_of(grouping: Grouping, kind: Kind, captured: &Captured) -> Vec<Vec<usize>> {
    grouping.groups(kind, &captured.layers(kind))
}

fn total_bytes(captured: &Captured, kinds: &[Kind]) -> Result<u64> {
    let mut total = 0;
    for &kind in kinds {
        for layer in captured.layers(kind) {
            total += captured.size(kind, layer)?.1;
        }
    }
    Ok(total)
}

/// Sums over the rows of a group, in parts, and what follows from them.
fn measure(
    captured: &Captured,
    kind: Kind,
    layers: Vec<usize>,
    grouping: Grouping,
    options: &FitOptions,
    metrics: Option<&Metrics>,
    progress: &dyn Progress,
) -> Result<Measured> {
    let parts = gather(captured, kind, &layers, options, progress)?;
    let cols = parts[0].cols();
    let tokens = parts.iter().map(Moments::count).sum();
    let blocks = match (grouping, kind, options.head()) {
        (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) if cols.is_multiple_of(head) => cols / head,
        (Grouping::Heads, Kind::Keys | Kind::Values, Some(head)) => {
            return Err(invalid(format!("{kind} of layers {layers:?} have {cols} columns, not heads of {head}")));
        }
        _ => 1,
    };
    let metric = metrics.map(|m| m.of(kind, &layers)).transpose()?;
    let width = cols / blocks;
    let mut found = Vec::with_capacity(blocks);
    let mut gains = Vec::new();
    for block in 0..blocks {
        let range = block * width..(block + 1) * width;
        let metric = metric.as_ref().map(|m| m.part(range.clone())).transpose()?;
        let parts: Vec<Moments> = match blocks {
            1 => parts.clone(),
            _ => parts.iter().map(|p| p.columns(range.clone())).collect::<Result<_>>()?,
        };
        if parts.len() > 1 {
            gains.push(leave_one_out(&parts, metric.as_ref(), &options.rates)?);
        }
        let mut whole = Moments::new(width)?;
        parts.iter().try_for_each(|part| whole.merge(part))?;
        found.push(Components::of(&whole, metric.as_ref())?);
    }
    let gain = (!gains.is_empty()).then(|| Gain::mean(&gains.iter().map(|g| (g, 1.0)).collect::<Vec<_>>()));
    Ok(Measured { kind, layers, cols, tokens, gain, blocks: found })
}

/// Reads the rows of a group; each tensor is cut into as many parts as are asked for.
fn gather(
    captured: &Captured,
    kind: Kind,
    layers: &[usize],
    options: &FitOptions,
    progress: &dyn Progress,
) -> Result<Vec<Moments>> {
    let mut cols = 0;
    let mut first = None;
    for &layer in layers {
        let (found, _) = captured.size(kind, layer)?;
        let expected = *first.get_or_insert(found);
        if found != expected {
            return Err(Error::Columns { tensor: format!("{kind} of layer {layer}"), found, expected });
        }
        cols += found;
    }
    let count = options.parts.max(1);
    let mut parts = (0..count).map(|_| Moments::new(cols)).collect::<Result<Vec<_>>>()?;
    let rope = match &options.keys {
        Keys::Rope(rope) => Some(rope),
        _ => None,
    };
    let turned = Turned { rope, context: options.context };
    captured.rows(kind, layers, &turned, ROWS, |rows| {
        let mut at = rows.first;
        let end = rows.first + rows.values.len() / cols;
        while at < end {
            let part = at * count / rows.of;
            // The first row of the next part.
            let until = ((part + 1) * rows.of).div_ceil(count).min(end);
            let values = &rows.values[(at - rows.first) * cols..(until - rows.first) * cols];
            parts[part].add(values, rows.name, at as u64)?;
            at = until;
        }
        progress.advance(rows.bytes);
        Ok(())
    })?;
    if parts.iter().any(|p| p.count() < 2) {
        let rows: u64 = parts.iter().map(Moments::count).sum();
        return Err(invalid(format!("{rows} rows of {kind} are too few for a basis and {count} parts")));
    }
    Ok(parts)
}

fn summarise(measured: &[Measured], grouping: Grouping) -> Vec<Summary> {
    let of_kind = |kind: Kind| {
        let of = measured.iter().filter(|m| m.kind == kind);
        let gains: Vec<(&Gain, f64)> = of.filter_map(|m| Some((m.gain.as_ref()?, m.cols as f64))).collect();
        (!gains.is_empty()).then(|| Summary { kind, group: grouping.name(), gain: Gain::mean(&gains) })
    };
    Kind::ALL.into_iter().filter_map(of_kind).collect()
}

/// Bases compressed at a rate.
struct Pressed {
    bits: f64,
    file: BasisFile,
    groups: Vec<PressedGroup>,
}

struct PressedGroup {
    rank: usize,
    bytes: u64,
    loss: f64,
}

impl Measured {
    fn report(&self, pressed: &PressedGroup) -> GroupReport {
        GroupReport {
            kind: self.kind,
            layers: self.layers.clone(),
            cols: self.cols,
            tokens: self.tokens,
            rank: pressed.rank,
            bytes: pressed.bytes,
            loss: pressed.loss,
            gain: self.gain.clone(),
        }
    }

    fn variances(&self) -> Vec<f64> {
        self.blocks.iter().flat_map(|b| b.variances().iter().copied()).collect()
    }
}

/// Compresses all bases for the highest rate up to that asked for at which they keep within the cap.
fn press(measured: &[Measured], options: &FitOptions, common: bool) -> Result<Pressed> {
    let best = press_at(measured, options, common, options.bits)?;
    let Some(cap) = options.max_bytes else { return Ok(best) };
    if best.file.max_bytes()? <= cap {
        return Ok(best);
    }
    let mut good = press_at(measured, options, common, LEAST_BITS)?;
    let mut size = good.file.max_bytes()?;
    if size > cap {
        return Err(Error::DoesNotFit { cap, need: size });
    }
    let mut too_high = options.bits;
    for _ in 0..TRIES {
        if size as f64 >= NEAR * cap as f64 {
            break;
        }
        let middle = 0.5 * (good.bits + too_high);
        let tried = press_at(measured, options, common, middle)?;
        let bytes = tried.file.max_bytes()?;
        if bytes <= cap {
            (good, size) = (tried, bytes);
        } else {
            too_high = middle;
        }
    }
    Ok(good)
}

/// Compresses all bases for a rate. With metrics all have one level: errors are in the same units then.
fn press_at(measured: &[Measured], options: &FitOptions, common: bool, bits: f64) -> Result<Pressed> {
    let pooled = common.then(|| {
        let all: Vec<f64> = measured.iter().flat_map(Measured::variances).collect();
        level(&all, measured.iter().map(|m| m.cols).sum(), bits)
    });
    let theta = |m: &Measured| pooled.unwrap_or_else(|| level(&m.variances(), m.cols, bits));
    let made: Vec<(GroupMeta, Numbers, Vec<Opened>, PressedGroup)> = measured
        .par_iter()
        .map(|group| press_group(group, options.rank, theta(group)))
        .collect::<Result<_>>()?;
    let (mut metas, mut numbers, mut opened, mut groups) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (meta, number, open, group) in made {
        metas.push(meta);
        numbers.push(number);
        opened.push(open);
        groups.push(group);
    }
    let rope = match &options.keys {
        Keys::Rope(rope) => Some(rope.clone()),
        _ => None,
    };
    let meta = Meta { format: 1, model: options.model.clone(), rope, head_dim: options.head(), groups: metas };
    Ok(Pressed { bits, file: BasisFile::new(meta, &numbers, &opened)?, groups })
}

fn press_group(
    group: &Measured,
    rank: Rank,
    theta: f64,
) -> Result<(GroupMeta, Numbers, Vec<Opened>, PressedGroup)> {
    let mut numbers = Numbers { blocks: Vec::new(), means: Vec::new(), deviations: Vec::new() };
    let mut opened = Vec::new();
    let mut lost = 0.0;
    for block in &group.blocks {
        let needed = block.variances().iter().filter(|v| **v > KEEP * theta).count();
        let rank = match rank {
            Rank::Needed => needed.max(1),
            Rank::All => block.cols(),
            Rank::Count(n) => n.min(block.cols()),
        };
        let stored = Stored::new(block, rank, theta)?;
        let open = stored.open()?;
        let (variances, bits) = cost(block, &open, theta)?;
        lost += bits;
        numbers.deviations.extend(variances.iter().map(|v| bf16::from_f64(v.sqrt())));
        numbers.means.extend(block.means().iter().map(|&m| bf16::from_f64(m)));
        numbers.blocks.push(stored);
        opened.push(open);
    }
    let bytes = numbers.blocks.iter().map(Stored::bytes).sum::<u64>()
        + 2 * (numbers.means.len() + numbers.deviations.len()) as u64;
    let pressed =
        PressedGroup { rank: numbers.deviations.len(), bytes, loss: lost / group.cols as f64 };
    let blocks = numbers.blocks.iter().map(|b| b.metric.as_ref().map_or(0, |(size, _)| *size)).collect();
    let meta = GroupMeta { kind: group.kind, layers: group.layers.clone(), blocks };
    Ok((meta, numbers, opened, pressed))
}

/// Metrics of layers.
struct Metrics(std::collections::BTreeMap<(Kind, usize), Metric>);

impl Metrics {
    fn open(path: &std::path::Path, names: &Names) -> Result<Self> {
        let archive = tenfold_archive::Archive::open(path)?;
        let mut found = std::collections::BTreeMap::new();
        for (index, tensor) in archive.tensors().iter().enumerate() {
            let Some((kind, layer, _)) = names.read(&tensor.name) else { continue };
            let values = archive.read(index, &tenfold::DecodeOptions::default())?.view()?.to_f64();
            let values = values.ok_or_else(|| invalid(format!("metric {:?} does not hold floats", tensor.name)))?;
            let metric = match tensor.shape.as_slice() {
                [_] => Metric::columns(&values),
                [_, rows, cols] if rows == cols => Metric::blocks(*rows, &values),
                shape => Err(invalid(format!("neither columns nor heads of square matrices: {shape:?}"))),
            };
            let metric = metric.map_err(|e| invalid(format!("metric {:?}: {e}", tensor.name)))?;
            if found.insert((kind, layer), metric).is_some() {
                return Err(invalid(format!("two metrics for {kind} of layer {layer}")));
            }
        }
        Ok(Metrics(found))
    }

    fn of(&self, kind: Kind, layers: &[usize]) -> Result<Metric> {
        let mut parts = Vec::with_capacity(layers.len());
        for &layer in layers {
            let metric = self.0.get(&(kind, layer));
            parts.push(metric.ok_or_else(|| invalid(format!("no metric for {kind} of layer {layer}")))?.clone());
        }
        Metric::join(&parts)
    }
}
