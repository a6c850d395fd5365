//! From layers to a page.

use std::ops::Range;

use tenfold::engine::Subject;
use tenfold::prepare::{Means, Positions, Rotation, Transform, choose};
use tenfold::{Dtype, EncodeOptions, Error, Goal, TensorView};

use super::codec::{Chain, Layer, Page, PageCodec};
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
    let mut groups: Vec<(usize, Blobs<Vec<u8>>)> = Vec::with_capacity(codec.groups.len());
    let mut wide = Vec::new();
    let mut start = 0;
    for group in &codec.groups {
        let layers = &page.layers[start..start + group.layers];
        start += group.layers;
        let mut blobs = Blobs::default();
        for ((side, exact, _), chain) in SIDES.iter().zip([&group.keys, &group.values]) {
            if first + last > 0 {
                let rows = gather(layers, *side, &[0..first, tokens - last..tokens]);
                blobs[*exact] = tenfold::encode(&rows.view(dtype)?, &options(codec, Goal::Lossless))?;
            }
            if !middle.is_empty() {
                wide.push((gather(layers, *side, std::slice::from_ref(&middle)), chain));
            }
        }
        groups.push((group.layers, blobs));
    }
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
    let all = 0..tokens;
    let mut parts = Vec::new();
    let mut start = 0;
    let mut wide = Vec::new();
    for group in &codec.groups {
        let layers = &page.layers[start..start + group.layers];
        start += group.layers;
        for ((side, _, _), chain) in SIDES.iter().zip([&group.keys, &group.values]) {
            wide.push((gather(layers, *side, std::slice::from_ref(&all)), chain));
        }
    }
    for (rows, chain) in &wide {
        let view = rows.view(dtype)?;
        let transforms = transforms(chain, page.positions.as_ref(), &view, None)?;
        let subject = Subject::new(&view, &options(codec, Goal::Step(1.0)).with_transforms(transforms))?;
        parts.push(Part { subject, values: view.len(), step: chain.step });
    }
    share::estimate_step(&parts, bytes)
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
    // At the step, if it is known: the gain of means depends on it.
    let parts_at = |step: Option<f64>| -> Result<Vec<Part<'_>>> {
        let mut parts = Vec::with_capacity(wide.len());
        for (rows, chain) in wide {
            let view = rows.view(dtype)?;
            let subject = |chain: &Chain| {
                let transforms = transforms(chain, positions.as_ref(), &view, step)?;
                // Which goal comes later: this one only says that there is something to quantise.
                let options = options(codec, Goal::Step(1.0)).with_transforms(transforms);
                Ok::<_, crate::Error>(Subject::new(&view, &options)?)
            };
            let mut whole = subject(chain)?;
            if let (Some(part), Some(step)) = (&chain.part, step)
                && part_does(&whole, view.cols(), &part.without, step * chain.step)?
            {
                let basis = Some(part.basis.clone());
                whole = subject(&Chain { basis, part: None, ..(*chain).clone() })?;
            }
            parts.push(Part { subject: whole, values: view.len(), step: chain.step });
        }
        Ok(parts)
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
    if wide.iter().any(|(_, chain)| chain.basis.is_none() || chain.part.is_some()) {
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

/// Whether coordinates can be left out at a step: in no row would enough of them be coded to make a difference to its error.
fn part_does(whole: &Subject<'_>, cols: usize, without: &[Range<usize>], step: f64) -> Result<bool> {
    let values = whole.worked_values()?;
    let does = |row: &[f64]| {
        let square = |v: &f64| (v / step).powi(2);
        let rest = without.iter().flat_map(|range| &row[range.clone()]);
        let lost: f64 = rest.map(square).filter(|v| !(*v < CODED * CODED)).sum();
        let kept: f64 = row.iter().map(|v| square(v).min(ROUNDING)).sum();
        lost <= LOSS * kept
    };
    Ok(values.chunks_exact(cols).all(does))
}

/// The transforms of a chain. Without a basis and with a known common step, the values decide whether means pay for
/// their bytes, and whether undoing positions helps.
fn transforms(
    chain: &Chain,
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
    if let Some(basis) = &chain.basis {
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
    let options = EncodeOptions::new(Goal::Step(step * chain.step)).with_threads(1);
    Ok(choose(view, &options, &chains)?)
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
