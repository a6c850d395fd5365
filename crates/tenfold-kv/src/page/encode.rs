//! From layers to a page.

use std::ops::Range;
use std::sync::Arc;

use tenfold::engine::Subject;
use tenfold::prepare::{Basis, Means, Positions, Rotation, Transform, choose};
use tenfold::{Dtype, Effort, EncodeOptions, Error, Goal, TensorView};

use super::codec::{Chain, Choice, Layer, Page, PageCodec};
use super::frame::{self, Blobs, EXACT_KEYS, EXACT_VALUES, Frame, KEYS, VALUES};
use super::share::{self, Part};
use crate::error::{Result, invalid};

/// Keys or values of a group's layers side by side.
struct Wide {
    shape: [usize; 2],
    data: Vec<u8>,
}

impl Wide {
    fn view(&self, dtype: Dtype) -> Result<TensorView<'_>> {
        Ok(TensorView::new(dtype, &self.shape, &self.data)?)
    }
}

/// Steps from which on a value that is hardly ever anything but zero is coded: before that it costs more than it is worth.
const CODED: f64 = 1.5;
/// Squared error of a value that is coded, in squared steps.
const ROUNDING: f64 = 1.0 / 12.0;
/// How much more error of a token is worth no bits.
const LOSS: f64 = 0.05;
/// Steps up to which most values become zero; squared error of others that are coded one by one; and the squared error that a bit
/// is worth, both in squared steps.
const DEAD: f64 = 1.24;
const FINE: f64 = 1.0 / 3.0;
const WORTH: f64 = 0.46;
/// Of so many neighbouring tokens one is looked at to choose a basis: the others are of the same text. At least so many are.
const SPREAD: usize = 4;
const LEAST_SEEN: usize = 8;

/// What of a layer.
type Side = for<'a> fn(&Layer<'a>) -> TensorView<'a>;

const SIDES: [(Side, usize, usize); 2] =
    [(|l| l.keys, EXACT_KEYS, KEYS), (|l| l.values, EXACT_VALUES, VALUES)];

pub(super) fn encode(codec: &PageCodec, page: &Page<'_>, goal: Goal) -> Result<Vec<u8>> {
    let (tokens, dtype) = check(codec, page)?;
    let lossless = matches!(goal, Goal::Lossless);
    let first = if lossless { tokens } else { codec.exact.0.min(tokens) };
    let last = codec.exact.1.min(tokens - first);
    let middle = first..tokens - last;
    let mut groups: Vec<(usize, Blobs<Vec<u8>>)> =
        codec.groups.iter().map(|g| (g.layers, Blobs::default())).collect();
    if first + last > 0 {
        for (i, (layers, side, _)) in sides(codec, page).into_iter().enumerate() {
            let rows = gather(layers, side, &[0..first, tokens - last..tokens]);
            groups[i / 2].1[SIDES[i % 2].1] =
                tenfold::encode(&rows.view(dtype)?, &options(codec, Goal::Lossless))?;
        }
    }
    let wide = if middle.is_empty() { Vec::new() } else { gather_all(codec, page, &middle) };
    let coded = code(codec, page, goal, dtype, &wide, &middle, &groups)?;
    for (i, blob) in coded.into_iter().enumerate() {
        groups[i / 2].1[SIDES[i % 2].2] = blob;
    }
    let bytes = frame::write(tokens, (first, last), &groups);
    match goal {
        // The exact tokens alone may take too many bytes.
        Goal::MaxBytes(cap) if bytes.len() > cap => {
            Err(Error::DoesNotFit { cap: cap as u64, need: bytes.len() as u64 }.into())
        }
        _ => Ok(bytes),
    }
}

/// A step at which a page takes about so many bytes, taken as Gaussian.
pub(super) fn start_step(codec: &PageCodec, page: &Page<'_>, bytes: usize) -> Result<f64> {
    let (tokens, dtype) = check(codec, page)?;
    let wide = gather_all(codec, page, &(0..tokens));
    let positions = page.positions.as_ref();
    let parts = wide.iter().map(|(rows, chain)| part(codec, rows.view(dtype)?, chain, positions, None));
    share::estimate_step(&parts.collect::<Result<Vec<_>>>()?, bytes)
}

/// Blobs of what is quantised: keys and values of each group in turn.
fn code(
    codec: &PageCodec,
    page: &Page<'_>,
    goal: Goal,
    dtype: Dtype,
    wide: &[(Wide, &Chain)],
    middle: &Range<usize>,
    groups: &[(usize, Blobs<Vec<u8>>)],
) -> Result<Vec<Vec<u8>>> {
    let positions = page.positions.as_ref().map(|p| cut_positions(p, middle));
    let parts_at = |step: Option<f64>| -> Result<Vec<Part<'_>>> {
        wide.iter()
            .map(|(rows, chain)| part(codec, rows.view(dtype)?, chain, positions.as_ref(), step))
            .collect()
    };
    if wide.is_empty() {
        return Ok(Vec::new());
    }
    let all = page.layers.iter().map(|l| l.keys.len() + l.values.len()).sum::<usize>();
    let cap = match goal {
        Goal::MaxBytes(cap) => cap,
        Goal::Bits(bits) => (all as f64 * bits / 8.0) as usize,
        Goal::Step(step) => {
            let at = |p: &Part<'_>| Ok(p.subject.encode(&options(codec, Goal::Step(step * p.step)))?);
            return parts_at(Some(step))?.iter().map(at).collect();
        }
        _ => return Err(invalid("a page's goal must be max_bytes, bits, step or lossless")),
    };
    let layers: Vec<usize> = groups.iter().map(|g| g.0).collect();
    let tokens = page.layers.first().map_or(0, |l| l.keys.rows());
    let taken = Frame::header_room(tokens, &layers, cap)
        + groups.iter().flat_map(|g| &g.1).map(Vec::len).sum::<usize>();
    let left = cap.checked_sub(taken).ok_or(Error::DoesNotFit { cap: cap as u64, need: taken as u64 })?;
    let mut parts = parts_at(None)?;
    let mut step = share::estimate_step(&parts, left)?;
    if wide.iter().any(|(_, chain)| depends_on_step(chain)) {
        step = share::find_step(&parts, left, step)?;
        parts = parts_at(Some(step))?;
    }
    share::encode(&parts, codec.effort, left, step).map_err(|e| match e {
        crate::Error::Codec(Error::DoesNotFit { need, .. }) => {
            Error::DoesNotFit { cap: cap as u64, need: need + taken as u64 }.into()
        }
        e => e,
    })
}

fn options(codec: &PageCodec, goal: Goal) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(codec.effort).with_threads(1)
}

/// Tokens and dtype of a page that fits the codec.
fn check(codec: &PageCodec, page: &Page<'_>) -> Result<(usize, Dtype)> {
    let (have, need) = (page.layers.len(), codec.layers());
    let Some(first) = page.layers.first().filter(|_| have == need) else {
        return Err(invalid(format!("the page has {have} layers, but this codec's pages have {need}")));
    };
    let (tokens, dtype) = (first.keys.rows(), first.keys.dtype());
    if tokens == 0 {
        return Err(invalid("a page needs at least one token"));
    }
    if !dtype.is_float() {
        return Err(invalid(format!("pages must be floats, not {dtype}")));
    }
    let same = |v: &TensorView<'_>, like: &TensorView<'_>| {
        v.rows() == tokens && v.dtype() == dtype && v.cols() == like.cols()
    };
    let mut layers = page.layers.iter().enumerate();
    for group in &codec.groups {
        let mut like = None;
        for (i, layer) in layers.by_ref().take(group.layers) {
            let like = *like.get_or_insert(*layer);
            if !same(&layer.keys, &like.keys) || !same(&layer.values, &like.values) {
                return Err(invalid(format!(
                    "layer {i} of the page differs from the first of its group in dtype, tokens or width"
                )));
            }
        }
    }
    if let Some(Positions::List(list)) = &page.positions
        && list.len() != tokens
    {
        return Err(invalid(format!("{} positions for {tokens} tokens", list.len())));
    }
    Ok((tokens, dtype))
}

/// Positions of some of the tokens.
fn cut_positions(positions: &Positions, rows: &Range<usize>) -> Positions {
    match positions {
        Positions::From(first) => Positions::From(first.saturating_add(rows.start as u64)),
        Positions::List(list) => Positions::List(list[rows.clone()].to_vec()),
    }
}

/// Whether a blob's transforms are chosen by its step.
fn depends_on_step(chain: &Chain) -> bool {
    match &chain.bases[..] {
        [one] => one.part.is_some(),
        _ => true,
    }
}

/// A blob to be, at the step if it is known: the gain of means depends on it, which basis is best, and what of it is needed.
fn part<'a>(
    codec: &PageCodec,
    view: TensorView<'a>,
    chain: &Chain,
    positions: Option<&Positions>,
    step: Option<f64>,
) -> Result<Part<'a>> {
    let step = step.map(|s| s * chain.step);
    let subject = |basis: Option<&Arc<Basis>>| subject(codec, view, chain, basis, positions, step);
    let made = match (&chain.bases[..], step) {
        ([], _) => subject(None)?,
        ([first, ..], None) => subject(Some(&first.basis))?,
        ([_, ..], Some(step)) => {
            let choice = cheapest(codec, view, chain, positions, step)?;
            let whole = subject(Some(&choice.basis))?;
            match &choice.part {
                Some(part) if part_does(&whole, choice.basis.rank(), &part.without, step)? => {
                    subject(Some(&part.basis))?
                }
                _ => whole,
            }
        }
    };
    Ok(Part { subject: made, values: view.len(), step: chain.step })
}

/// Rows behind a chain with a basis, ready to be quantised.
fn subject<'a>(
    codec: &PageCodec,
    view: TensorView<'a>,
    chain: &Chain,
    basis: Option<&Arc<Basis>>,
    positions: Option<&Positions>,
    step: Option<f64>,
) -> Result<Subject<'a>> {
    let transforms = transforms(chain, basis, positions, &view, step)?;
    // Which goal comes later: this one only says that there is something to quantise.
    Ok(Subject::new(&view, &options(codec, Goal::Step(1.0)).with_transforms(transforms))?)
}

/// The basis that is best at a step. All are whole, so that what one does not know counts too.
fn cheapest<'c>(
    codec: &PageCodec,
    view: TensorView<'_>,
    chain: &'c Chain,
    positions: Option<&Positions>,
    step: f64,
) -> Result<&'c Choice> {
    if let [only] = &chain.bases[..] {
        return Ok(only);
    }
    let (rows, line) = (view.rows(), view.cols() * view.dtype().size());
    let seen: Vec<usize> = (0..rows).step_by(SPREAD.min(rows / LEAST_SEEN).max(1)).collect();
    let data: Vec<u8> = seen.iter().flat_map(|row| &view.data()[row * line..][..line]).copied().collect();
    let shape = [seen.len(), view.cols()];
    let view = TensorView::new(view.dtype(), &shape, &data)?;
    let position = |row: &usize| match positions? {
        Positions::From(first) => Some(first.saturating_add(*row as u64)),
        Positions::List(list) => list.get(*row).copied(),
    };
    let positions = seen.iter().map(position).collect::<Option<_>>().map(Positions::List);
    let mut best: Option<(f64, &Choice)> = None;
    for choice in &chain.bases {
        let made = subject(codec, view, chain, Some(&choice.basis), positions.as_ref(), Some(step))?;
        let cost = cost(&made, step)?;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, choice));
        }
    }
    best.map(|(_, choice)| choice).ok_or_else(|| invalid("there is no basis to choose"))
}

/// Bits a value at a step, and those that its error is worth: behind a basis that does not fit, little may be coded, and much lost.
fn cost(subject: &Subject<'_>, step: f64) -> Result<f64> {
    let values = subject.worked_values()?;
    let error = |v: &f64| {
        let v = (v / step).abs();
        if v < DEAD { v * v } else { FINE }
    };
    let lost = values.iter().map(error).sum::<f64>() / values.len().max(1) as f64;
    Ok(subject.estimate_bits(step, Effort::Fast)? + lost / WORTH)
}

/// Whether coordinates can be left out at a step: in no row would enough of them be coded to make a difference to its error.
fn part_does(whole: &Subject<'_>, rank: usize, without: &[Range<usize>], step: f64) -> Result<bool> {
    let values = whole.worked_values()?;
    let does = |row: &[f64]| {
        let square = |v: &f64| (v / step).powi(2);
        let rest = without.iter().flat_map(|range| &row[range.clone()]);
        let lost: f64 = rest.map(square).filter(|v| !(*v < CODED * CODED)).sum();
        let kept: f64 = row.iter().map(|v| square(v).min(ROUNDING)).sum();
        lost <= LOSS * kept
    };
    Ok(values.chunks_exact(rank).all(does))
}

/// The transforms of a chain. Without a basis and with a known common step, the values decide whether means pay for
/// their bytes, and whether undoing positions helps.
fn transforms(
    chain: &Chain,
    basis: Option<&Arc<Basis>>,
    positions: Option<&Positions>,
    view: &TensorView<'_>,
    step: Option<f64>,
) -> Result<Vec<Transform>> {
    let mut transforms = Vec::new();
    if let Some(rope) = &chain.rope {
        let positions = positions
            .ok_or_else(|| invalid("keys have rotary positions: state the positions of the page"))?;
        transforms.push(Transform::Rope(rope.clone().with_positions(positions.clone())?));
    }
    if let Some(basis) = basis {
        transforms.push(Transform::Basis(Rotation::named(basis)));
        return Ok(transforms);
    }
    let Some(step) = step else { return Ok(transforms) };
    let mut values = view.to_f64().unwrap_or_default();
    let mut chains = vec![Vec::new()];
    if let Some(Transform::Rope(rope)) = transforms.first() {
        chains.push(transforms.clone());
        chains.push(vec![Transform::Means(Means::measure(&values, view.cols()))]);
        rope.forward(&mut values, view.cols(), 0);
    }
    transforms.push(Transform::Means(Means::measure(&values, view.cols())));
    chains.push(transforms);
    let options = EncodeOptions::new(Goal::Step(step)).with_threads(1);
    Ok(choose(view, &options, &chains)?)
}

/// Keys and values of each group in turn: layers, which of the two, and their chain.
fn sides<'p, 'c>(codec: &'c PageCodec, page: &'p Page<'_>) -> Vec<(&'p [Layer<'p>], Side, &'c Chain)> {
    let mut left = &page.layers[..];
    let each = codec.groups.iter().flat_map(|group| {
        let (layers, rest) = left.split_at(group.layers);
        left = rest;
        [(layers, SIDES[0].0, &group.keys), (layers, SIDES[1].0, &group.values)]
    });
    each.collect()
}

/// The same with some rows of the layers side by side.
fn gather_all<'c>(codec: &'c PageCodec, page: &Page<'_>, rows: &Range<usize>) -> Vec<(Wide, &'c Chain)> {
    let rows = std::slice::from_ref(rows);
    sides(codec, page).into_iter().map(|(layers, side, chain)| (gather(layers, side, rows), chain)).collect()
}

/// Some rows of keys or values of layers, side by side.
fn gather(layers: &[Layer<'_>], side: Side, rows: &[Range<usize>]) -> Wide {
    let views: Vec<TensorView<'_>> = layers.iter().map(side).collect();
    let count = rows.iter().map(Range::len).sum();
    let cols = views.iter().map(TensorView::cols).sum();
    let mut data = Vec::with_capacity(count * cols * views.first().map_or(0, |v| v.dtype().size()));
    for row in rows.iter().flat_map(Range::clone) {
        for v in &views {
            let line = v.cols() * v.dtype().size();
            data.extend_from_slice(&v.data()[row * line..][..line]);
        }
    }
    Wide { shape: [count, cols], data }
}
