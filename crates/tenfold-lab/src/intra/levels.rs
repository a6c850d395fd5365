//! How the levels of a block are described.
//!
//! With entropy coding: a flag for a block with any level, one for each group of 4 by 4, then each level as
//! a unary count with models up to [`UNARY`] and an exponential Golomb code beyond, and a sign, in the order
//! and with the models of `scan`. Without: each level in the same number of bits.

use super::bins::{Bins, golomb, golomb_bits};
use super::cabac::Context;
use super::error::IntraError;
use super::scan::{CLASSES, Form, Known, Model, Position, ZONES, positions};

/// Largest magnitude of a level.
pub(super) const MAX_LEVEL: u32 = 32_767;
/// Magnitudes that the models describe; larger ones continue in Golomb codes.
const UNARY: usize = 14;
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
            let form = Form { log2: 2 + i % 4, transform: i.is_multiple_of(3) };
            let largest = [0, 1, 3, 40, MAX_LEVEL as i32][i as usize % 5];
            let sparse = i.is_multiple_of(2);
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
    fn fixed_codes_are_as_short_as_the_range_allows() {
        for (least, largest, bits) in
            [(0, 0, 0), (0, 1, 1), (-1, 1, 2), (-7, 8, 4), (-8, 8, 5), (-32_767, 32_767, 16)]
        {
            assert_eq!(FixedCode::for_range(least, largest).bits, bits, "{least} to {largest}");
        }
    }
}
