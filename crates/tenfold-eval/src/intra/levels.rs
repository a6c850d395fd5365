//! How the levels of a block are described.
//!
//! With entropy coding: a flag for a block with any level, one for each group of 4 by 4, then each level as
//! a unary count with models up to [`UNARY`] and an exponential Golomb code beyond, and a sign. From the
//! last position to the first along diagonals, so that the levels to the right and below are known and say
//! which model to use. Without: each level in the same number of bits.

use std::sync::LazyLock;

use super::bins::{Bins, golomb, golomb_bits};
use super::cabac::Context;
use super::error::IntraError;

/// Largest magnitude of a level.
pub(super) const MAX_LEVEL: u32 = 32_767;
/// Magnitudes that the models describe; larger ones continue in Golomb codes.
const UNARY: usize = 14;
/// What the neighbours say: ten sizes, and no neighbours at all.
const CLASSES: usize = 11;
/// Where in the block: the mean, the lowest frequencies, the rest.
const ZONES: usize = 3;
/// Side of the padded array of magnitudes: two more than the largest block.
const STRIDE: usize = 34;

/// Positions of a block in coding order, group after group; 16 positions are a group.
static ORDERS: LazyLock<[Vec<Position>; 4]> = LazyLock::new(|| [2, 3, 4, 5].map(order));

/// A position of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub x: u8,
    pub y: u8,
    /// Number of neighbours to the right and below that exist.
    neighbours: u8,
}

fn order(log2: u32) -> Vec<Position> {
    let n = 1usize << log2;
    let diagonal = |side: usize| {
        let mut all: Vec<(usize, usize)> = (0..side * side).map(|i| (i % side, i / side)).collect();
        all.sort_by_key(|&(x, y)| std::cmp::Reverse((x + y, y)));
        all
    };
    let position = |x: usize, y: usize| {
        let (right, below) = ((n - 1 - x).min(2), (n - 1 - y).min(2));
        let neighbours = (right + below + usize::from(right > 0 && below > 0)) as u8;
        Position { x: x as u8, y: y as u8, neighbours }
    };
    let inner = diagonal(4);
    let groups = diagonal(n / 4);
    groups
        .iter()
        .flat_map(|&(gx, gy)| inner.iter().map(move |&(x, y)| position(4 * gx + x, 4 * gy + y)))
        .collect()
}

/// Positions of a block of this size in coding order.
pub(super) fn positions(log2: u32) -> &'static [Position] {
    &ORDERS[log2 as usize - 2]
}

/// Side and meaning of a block of levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub log2: u32,
    pub transform: bool,
}

/// Magnitudes coded so far, with a border of zeros.
pub(super) struct Known {
    sizes: [u16; STRIDE * STRIDE],
    /// Which groups have a level, with a border.
    groups: [bool; 81],
}

impl Known {
    pub fn new() -> Self {
        Known { sizes: [0; STRIDE * STRIDE], groups: [false; 81] }
    }

    pub fn set(&mut self, p: Position, size: u32) {
        self.sizes[usize::from(p.y) * STRIDE + usize::from(p.x)] = size as u16;
    }

    /// Model for the group that starts at a position, by the groups to the right and below.
    pub fn group_class(&self, p: Position) -> usize {
        let at = usize::from(p.y / 4) * 9 + usize::from(p.x / 4);
        usize::from(self.groups[at + 1]) + usize::from(self.groups[at + 9])
    }

    pub fn set_group(&mut self, p: Position, any: bool) {
        self.groups[usize::from(p.y / 4) * 9 + usize::from(p.x / 4)] = any;
    }

    /// Zone, class and order of the Golomb code at a position.
    pub fn model(&self, p: Position, form: Form) -> Model {
        let at = usize::from(p.y) * STRIDE + usize::from(p.x);
        let size = |i: usize| u32::from(self.sizes[at + i]);
        let sum = size(1) + size(2) + size(STRIDE) + size(2 * STRIDE) + size(STRIDE + 1);
        let (class, order) = match p.neighbours {
            0 => (CLASSES - 1, 0),
            // As if there were five of them.
            n => {
                let sum = 5 * sum / u32::from(n);
                (class_of(sum), (sum / 20 + 1).ilog2())
            }
        };
        let zone = match p.x + p.y {
            _ if !form.transform => 2,
            0 => 0,
            1..=3 => 1,
            _ => 2,
        };
        Model { zone, class, order }
    }
}

fn class_of(sum: u32) -> usize {
    match sum {
        0..=2 => sum as usize,
        3..=4 => 3,
        5..=6 => 4,
        7..=9 => 5,
        10..=14 => 6,
        15..=22 => 7,
        23..=36 => 8,
        _ => 9,
    }
}

/// How one level is coded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    zone: usize,
    class: usize,
    order: u32,
}

/// All models of levels.
#[derive(Clone)]
pub(super) struct LevelContexts {
    any: [Context; 4],
    group: [Context; 3],
    size: [[[Context; UNARY]; CLASSES]; ZONES],
}

impl Default for LevelContexts {
    fn default() -> Self {
        let c = Context::default();
        LevelContexts { any: [c; 4], group: [c; 3], size: [[[c; UNARY]; CLASSES]; ZONES] }
    }
}

/// Codes the levels of a block with models.
pub(super) fn adaptive<B: Bins>(
    bins: &mut B,
    contexts: &mut LevelContexts,
    form: Form,
    levels: &mut [i32],
) -> Result<(), IntraError> {
    let n = 1usize << form.log2;
    if !bins.bit(&mut contexts.any[form.log2 as usize - 2], levels.iter().any(|&l| l != 0))? {
        return Ok(());
    }
    let mut known = Known::new();
    for group in positions(form.log2).chunks_exact(16) {
        let at = |p: &Position| usize::from(p.y) * n + usize::from(p.x);
        // The only group of a block with a level needs no flag of its own.
        let mut any = true;
        if n > 4 {
            let wanted = group.iter().any(|p| levels[at(p)] != 0);
            any = bins.bit(&mut contexts.group[known.group_class(group[0])], wanted)?;
            known.set_group(group[0], any);
        }
        for p in group.iter().filter(|_| any) {
            let model = known.model(*p, form);
            let level = &mut levels[at(p)];
            *level = one_level(bins, &mut contexts.size[model.zone][model.class], model.order, *level)?;
            known.set(*p, level.unsigned_abs());
        }
    }
    Ok(())
}

fn one_level<B: Bins>(
    bins: &mut B,
    contexts: &mut [Context; UNARY],
    order: u32,
    level: i32,
) -> Result<i32, IntraError> {
    let wanted = level.unsigned_abs();
    let mut size = 0u32;
    for context in contexts.iter_mut() {
        if !bins.bit(context, wanted > size)? {
            break;
        }
        size += 1;
    }
    if size == UNARY as u32 {
        let rest = wanted.saturating_sub(size);
        let high = golomb(bins, rest >> order)?;
        size += high << order | bins.raw(rest & ((1 << order) - 1), order)?;
        if size > MAX_LEVEL {
            return Err(IntraError::Corrupt("a level is too large"));
        }
    }
    let negative = size > 0 && bins.raw(u32::from(level < 0), 1)? == 1;
    Ok(if negative { -(size as i32) } else { size as i32 })
}

/// Codes of one length for all levels of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FixedCode {
    /// The least level.
    pub least: i16,
    /// Bits of a level.
    pub bits: u8,
}

impl FixedCode {
    /// The shortest code for levels in this range.
    pub fn for_range(least: i32, largest: i32) -> Self {
        // Levels are within ± MAX_LEVEL, which an i16 holds.
        FixedCode {
            least: least as i16,
            bits: (u32::BITS - (largest - least).max(0).cast_unsigned().leading_zeros()) as u8,
        }
    }

    /// Codes the levels of a block.
    pub fn code<B: Bins>(self, bins: &mut B, levels: &mut [i32]) -> Result<(), IntraError> {
        let least = i32::from(self.least);
        for level in levels {
            let value = bins.raw((*level - least).cast_unsigned(), u32::from(self.bits))?;
            *level = least + value.cast_signed();
            if level.unsigned_abs() > MAX_LEVEL {
                return Err(IntraError::Corrupt("a level is too large"));
            }
        }
        Ok(())
    }
}

/// What levels cost in bits with the models as they are now.
pub(super) struct LevelCosts {
    /// Whether a block has a level, by size.
    pub any: [[f32; 2]; 4],
    /// Whether a group has.
    pub group: [[f32; 2]; 3],
    size: [[[f32; UNARY + 1]; CLASSES]; ZONES],
}

impl LevelCosts {
    pub fn new(contexts: &LevelContexts) -> Self {
        let both = |c: &Context| [c.cost(false), c.cost(true)];
        let sizes = |models: &[Context; UNARY]| {
            let (mut out, mut before) = ([0f32; UNARY + 1], 0f32);
            for (i, c) in models.iter().enumerate() {
                out[i] = before + c.cost(false);
                before += c.cost(true);
                // Everything from here on has a sign.
                before += if i == 0 { 1.0 } else { 0.0 };
            }
            out[UNARY] = before;
            out
        };
        LevelCosts {
            any: contexts.any.each_ref().map(both),
            group: contexts.group.each_ref().map(both),
            size: contexts.size.each_ref().map(|zone| zone.each_ref().map(sizes)),
        }
    }

    /// Bits of a level of this magnitude, sign and all.
    pub fn level(&self, model: Model, size: u32) -> f32 {
        let costs = &self.size[model.zone][model.class];
        match costs[..UNARY].get(size as usize) {
            Some(cost) => *cost,
            None => {
                let rest = size - UNARY as u32;
                costs[UNARY] + (golomb_bits(rest >> model.order) + model.order) as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bins::Counter;
    use super::super::cabac::{Decoder, Encoder};
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn blocks(seed: u64) -> Vec<(Form, Vec<i32>)> {
        let mut rng = StdRng::seed_from_u64(seed);
        let one = |i: u32, rng: &mut StdRng| {
            let form = Form { log2: 2 + i % 4, transform: i % 3 == 0 };
            let largest = [0, 1, 3, 40, MAX_LEVEL as i32][i as usize % 5];
            let sparse = i % 2 == 0;
            let mut level = || {
                let zero = sparse && rng.random_range(0..20) > 0;
                if zero { 0 } else { rng.random_range(-largest..=largest) }
            };
            (form, (0..1 << (2 * form.log2)).map(|_| level()).collect())
        };
        (0..60).map(|i| one(i, &mut rng)).collect()
    }

    #[test]
    fn levels_come_back() {
        let (mut encoder, mut contexts) = (Encoder::default(), LevelContexts::default());
        let mut all = blocks(1);
        for (form, levels) in &mut all {
            adaptive(&mut encoder, &mut contexts, *form, levels).unwrap();
        }
        let wanted = blocks(1);
        let bytes = encoder.finish();
        let (mut decoder, mut contexts) = (Decoder::new(&bytes), LevelContexts::default());
        for (form, levels) in wanted {
            let mut out = vec![0; levels.len()];
            adaptive(&mut decoder, &mut contexts, form, &mut out).unwrap();
            assert_eq!(out, levels);
        }
        decoder.finish().unwrap();
    }

    #[test]
    fn costs_are_those_of_the_syntax() {
        let mut contexts = LevelContexts::default();
        let mut encoder = Encoder::default();
        for (form, mut levels) in blocks(2) {
            adaptive(&mut encoder, &mut contexts, form, &mut levels).unwrap();
        }
        let costs = LevelCosts::new(&contexts);
        for (zone, class, order) in [(0, 3, 0), (1, 10, 0), (2, 9, 3)] {
            let model = Model { zone, class, order };
            for level in [0, 1, -1, 5, -13, 14, 15, 500, -30_000] {
                let mut counter = Counter::default();
                one_level(&mut counter, &mut contexts.size[zone][class], order, level).unwrap();
                let said = costs.level(model, level.unsigned_abs());
                assert!((counter.bits - said).abs() < 1e-3, "{level}: {said} for {}", counter.bits);
            }
        }
    }

    #[test]
    fn every_position_comes_once_and_after_its_neighbours() {
        for log2 in 2..=5 {
            let n = 1usize << log2;
            let mut turn = vec![usize::MAX; n * n];
            for (i, p) in positions(log2).iter().enumerate() {
                turn[usize::from(p.y) * n + usize::from(p.x)] = i;
            }
            assert!(turn.iter().all(|&t| t < n * n));
            for (i, p) in positions(log2).iter().enumerate() {
                for (dx, dy) in [(1, 0), (2, 0), (0, 1), (0, 2), (1, 1)] {
                    let (x, y) = (usize::from(p.x) + dx, usize::from(p.y) + dy);
                    assert!(x >= n || y >= n || turn[y * n + x] < i);
                }
            }
        }
    }

    #[test]
    fn fixed_codes_are_as_short_as_the_range_allows() {
        for (least, largest, bits) in
            [(0, 0, 0), (0, 1, 1), (-1, 1, 2), (-7, 8, 4), (-8, 8, 5), (-32_767, 32_767, 16)]
        {
            assert_eq!(FixedCode::for_range(least, largest).bits, bits, "{least} to {largest}");
        }
    }
}
