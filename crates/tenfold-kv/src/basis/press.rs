//! Compressing the bases of a fit, all of them within a cap on bytes.

use half::bf16;
use rayon::prelude::*;

use super::file::{BasisFile, GroupMeta, Meta, Numbers};
use super::measure::Measured;
use super::options::{FitOptions, Keys, LEAST_BITS, Rank};
use super::report::GroupReport;
use super::stored::{Opened, Stored, cost};
use super::water::level;
use crate::error::{Error, Result};

/// Components weaker than this fraction of the level are left out: their coordinates are nearly all zero.
const KEEP: f64 = 0.25;
/// How often all bases are compressed again to meet a cap, and which fraction of it is near enough.
const TRIES: usize = 9;
const NEAR: f64 = 0.97;

/// Bases compressed at a rate.
pub(super) struct Pressed {
    pub bits: f64,
    pub file: BasisFile,
    pub groups: Vec<PressedGroup>,
}

/// One of them.
pub(super) struct PressedGroup {
    rank: usize,
    bytes: u64,
    loss: f64,
}

impl PressedGroup {
    pub fn report(&self, measured: &Measured) -> GroupReport {
        GroupReport {
            set: measured.set.clone(),
            kind: measured.kind,
            layers: measured.layers.clone(),
            cols: measured.cols,
            tokens: measured.tokens(),
            rank: self.rank,
            bytes: self.bytes,
            loss: self.loss,
            gain: measured.gain(),
        }
    }
}

/// Compresses all bases for the highest rate, up to the requested one, at which they fit the cap.
pub(super) fn press(measured: &[Measured], options: &FitOptions, common: bool) -> Result<Pressed> {
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
    let meta = Meta::new(options.model.clone(), rope, options.head(), metas);
    Ok(Pressed { bits, file: BasisFile::new(meta, &numbers, opened)?, groups })
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
    let pressed = PressedGroup { rank: numbers.deviations.len(), bytes, loss: lost / group.cols as f64 };
    let blocks = numbers.blocks.iter().map(|b| b.metric.as_ref().map_or(0, |(size, _)| *size)).collect();
    let (kind, layers, set) = (group.kind, group.layers.clone(), group.set.clone());
    let meta = GroupMeta { kind, layers, set, blocks, fingerprint: String::new() };
    Ok((meta, numbers, opened, pressed))
}
