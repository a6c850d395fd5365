//! Blocks, and how their kind is described.

use super::bins::{Bins, tree};
use super::cabac::Context;
use super::error::IntraError;
use super::levels::{self, FixedCode, LevelContexts};
use super::motion::REACH;
use super::predict::{DC, MODES, PLANAR, VERTICAL};
use super::scan::Form;
use super::settings::Stages;

/// Where the prediction of a block comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The middle of the range.
    Middle,
    /// Decoded neighbours: 0 planar, 1 DC, 2 to 34 directions from lower left over horizontal (10) and
    /// vertical (26) to upper right.
    Intra(u8),
    /// The previous picture, so far to the right and down.
    Inter(i8, i8),
}

/// A coded block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Left edge.
    pub x: usize,
    /// Upper edge.
    pub y: usize,
    /// Side: 4, 8, 16 or 32. A block may reach up to three samples beyond the picture.
    pub side: usize,
    /// Source of its prediction.
    pub kind: Kind,
    /// Quantised coefficients (or samples), row after row.
    pub levels: Vec<i32>,
}

/// A square of the picture: position and side as a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub x: usize,
    pub y: usize,
    pub log2: u32,
}

impl Place {
    pub fn side(self) -> usize {
        1 << self.log2
    }

    pub fn area(self) -> usize {
        1 << (2 * self.log2)
    }

    /// The four quarters in coding order.
    pub fn quarters(self) -> [Place; 4] {
        let log2 = self.log2 - 1;
        [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(i, j)| Place {
            x: self.x + (i << log2),
            y: self.y + (j << log2),
            log2,
        })
    }
}

/// The encoder's decision about a square.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Nothing of it lies in the picture.
    Outside,
    Split(Box<[Node; 4]>),
    Leaf(Kind, Vec<i32>),
}

/// Kinds of the blocks to the left and above; [`Kind::Middle`] where there is none.
pub(super) type Beside = [Kind; 2];

/// Models of everything.
#[derive(Clone)]
struct Contexts {
    split: [Context; 6],
    inter: [Context; 3],
    likely: Context,
    which: [Context; 2],
    mode: [Context; 64],
    vector: [[Context; 16]; 2],
    levels: LevelContexts,
}

/// How decisions of a stream are described, and the state of the models.
#[derive(Clone)]
pub(super) struct Syntax {
    pub stages: Stages,
    /// Blocks of this size are not split unless they reach beyond the picture.
    pub smallest: u32,
    /// Codes of levels without entropy coding.
    pub fixed: Option<FixedCode>,
    contexts: Contexts,
}

impl Syntax {
    pub fn new(stages: Stages, smallest: u32, fixed: Option<FixedCode>) -> Self {
        let c = Context::default();
        let contexts = Contexts {
            split: [c; 6],
            inter: [c; 3],
            likely: c,
            which: [c; 2],
            mode: [c; 64],
            vector: [[c; 16]; 2],
            levels: LevelContexts::default(),
        };
        Syntax { stages, smallest, fixed, contexts }
    }

    /// Models of levels, for the encoder's estimates.
    pub fn level_contexts(&self) -> &LevelContexts {
        &self.contexts.levels
    }

    /// Takes over the state of the models.
    pub fn learn_from(&mut self, other: &Syntax) {
        self.contexts.clone_from(&other.contexts);
    }

    /// Whether a block is split.
    pub fn split<B: Bins>(&mut self, bins: &mut B, log2: u32, split: bool) -> Result<bool, IntraError> {
        bins.bit(&mut self.contexts.split[log2 as usize], split)
    }

    /// Where the prediction of a block comes from. `moving`: whether there is a previous picture.
    pub fn kind<B: Bins>(
        &mut self,
        bins: &mut B,
        kind: Kind,
        beside: Beside,
        moving: bool,
    ) -> Result<Kind, IntraError> {
        if moving && self.stages.inter {
            let around = beside.iter().filter(|k| matches!(k, Kind::Inter(..))).count();
            let inter = matches!(kind, Kind::Inter(..));
            if bins.bit(&mut self.contexts.inter[around], inter)? {
                return self.vector(bins, kind);
            }
        }
        if !self.stages.prediction {
            return Ok(Kind::Middle);
        }
        let mode = if let Kind::Intra(mode) = kind { mode } else { 0 };
        Ok(Kind::Intra(self.mode(bins, mode, beside)?))
    }

    fn vector<B: Bins>(&mut self, bins: &mut B, kind: Kind) -> Result<Kind, IntraError> {
        let parts = if let Kind::Inter(x, y) = kind { [x, y] } else { [0, 0] };
        let mut out = [0i8; 2];
        for i in 0..2 {
            // Four bits, −7 to 7 at 1 to 15.
            let value = u32::from((parts[i] + REACH + 1).cast_unsigned());
            let read = match self.stages.entropy {
                true => tree(bins, &mut self.contexts.vector[i], value, 4)?,
                false => bins.raw(value, 4)?,
            };
            out[i] = read as i8 - REACH - 1;
            if out[i] < -REACH {
                return Err(IntraError::Corrupt("a motion vector is out of reach"));
            }
        }
        Ok(Kind::Inter(out[0], out[1]))
    }

    fn mode<B: Bins>(&mut self, bins: &mut B, mode: u8, beside: Beside) -> Result<u8, IntraError> {
        let c = &mut self.contexts;
        let read = if self.stages.entropy {
            let likely = likely_modes(beside);
            let index = likely.iter().position(|&m| m == mode);
            if bins.bit(&mut c.likely, index.is_some())? {
                let index = index.unwrap_or(0);
                let first = !bins.bit(&mut c.which[0], index > 0)?;
                let second = first || !bins.bit(&mut c.which[1], index > 1)?;
                return Ok(likely[if first {
                    0
                } else if second {
                    1
                } else {
                    2
                }]);
            }
            tree(bins, &mut c.mode, u32::from(mode), 6)?
        } else {
            bins.raw(u32::from(mode), 6)?
        };
        u8::try_from(read).ok().filter(|&m| m < MODES).ok_or(IntraError::Corrupt("an unknown mode"))
    }

    /// The levels of a block.
    pub fn levels<B: Bins>(&mut self, bins: &mut B, log2: u32, levels: &mut [i32]) -> Result<(), IntraError> {
        match self.fixed {
            Some(code) => code.code(bins, levels),
            None => {
                let form = Form { log2, transform: self.stages.transform };
                levels::adaptive(bins, &mut self.contexts.levels, form, levels)
            }
        }
    }
}

/// The three most probable modes by those beside, as in H.265.
fn likely_modes(beside: Beside) -> [u8; 3] {
    let [left, above] = beside.map(|kind| if let Kind::Intra(mode) = kind { mode } else { DC });
    if left != above {
        let third = [PLANAR, DC, VERTICAL].into_iter().find(|&m| m != left && m != above);
        return [left, above, third.unwrap_or(VERTICAL)];
    }
    if left < 2 {
        return [PLANAR, DC, VERTICAL];
    }
    // The directions next to it; 2 and 33 wrap around.
    [left, 2 + (left + 29) % 32, 2 + (left - 1) % 32]
}

#[cfg(test)]
mod tests {
    use super::super::bins::Counter;
    use super::super::cabac::{Decoder, Encoder};
    use super::*;

    #[test]
    fn likely_modes_are_distinct() {
        for left in 0..MODES {
            for above in 0..MODES {
                let [a, b, c] = likely_modes([Kind::Intra(left), Kind::Intra(above)]);
                assert!(a != b && b != c && a != c && a.max(b).max(c) < MODES, "{left}, {above}");
            }
        }
    }

    #[test]
    fn every_kind_comes_back() {
        let kinds: Vec<Kind> = (0..MODES)
            .map(Kind::Intra)
            .chain((-REACH..=REACH).flat_map(|x| [Kind::Inter(x, 3), Kind::Inter(0, -x)]))
            .collect();
        let stages = Stages { inter: true, ..Stages::INTRA };
        let (mut encoder, mut syntax) = (Encoder::default(), Syntax::new(stages, 2, None));
        let mut beside = [Kind::Middle; 2];
        for &kind in &kinds {
            assert_eq!(syntax.kind(&mut encoder, kind, beside, true).unwrap(), kind);
            beside = [kind, beside[0]];
        }
        let bytes = encoder.finish();
        let (mut decoder, mut syntax) = (Decoder::new(&bytes), Syntax::new(stages, 2, None));
        beside = [Kind::Middle; 2];
        for &kind in &kinds {
            assert_eq!(syntax.kind(&mut decoder, Kind::Middle, beside, true).unwrap(), kind);
            beside = [kind, beside[0]];
        }
    }

    #[test]
    fn without_entropy_coding_a_mode_takes_six_bits() {
        let mut syntax = Syntax::new(Stages { entropy: false, ..Stages::INTRA }, 2, None);
        let mut counter = Counter::default();
        syntax.kind(&mut counter, Kind::Intra(17), [Kind::Middle; 2], false).unwrap();
        assert_eq!(counter.bits, 6.0);
    }
}
