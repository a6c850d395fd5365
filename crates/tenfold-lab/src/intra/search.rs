//! The encoder's choice: how to cut a square, where to predict from, which levels.
//!
//! Every choice is the one of least squared error plus price times bits. Bits are those the models would
//! take at the start of the square of 32; within it the models stand still.

use super::bins::Counter;
use super::block::{Kind, Node, Place, Syntax};
use super::error::IntraError;
use super::frame::{Frame, add_residual};
use super::levels::LevelCosts;
use super::motion;
use super::predict::{DC, MODES, PLANAR};
use super::quantise::{self, Step};
use super::scan::Form;
use super::settings::Settings;
use super::transform::{self, MAX_AREA};

/// The encoder's state over one picture.
pub(super) struct Search<'a> {
    settings: &'a Settings,
    step: Step,
    original: Frame,
    /// Decoded so far, as tried.
    frame: Frame,
    previous: Option<Frame>,
    syntax: Syntax,
    costs: LevelCosts,
}

/// A block as tried.
struct Trial {
    cost: f64,
    kind: Kind,
    levels: Vec<i32>,
    samples: [i32; MAX_AREA],
}

impl<'a> Search<'a> {
    /// Starts on a picture. `previous` is the decoded picture before it.
    pub fn new(
        settings: &'a Settings,
        step: Step,
        original: Frame,
        previous: Option<Frame>,
        syntax: Syntax,
    ) -> Self {
        let frame = Frame::empty(original.width(), original.height(), depth_of(&original));
        let costs = LevelCosts::new(syntax.level_contexts());
        Search { settings, step, original, frame, previous, syntax, costs }
    }

    /// Decides about a square of 32, given the models as they are before it.
    pub fn square(&mut self, place: Place, now: &Syntax) -> Result<Node, IntraError> {
        self.syntax.learn_from(now);
        self.costs = LevelCosts::new(self.syntax.level_contexts());
        Ok(self.decide(place)?.1)
    }

    /// Price of a bit in squared samples.
    fn lambda(&self) -> f64 {
        self.settings.lambda * self.step.samples().powi(2)
    }

    /// The better of one block and four, decoded into the frame, with its cost.
    fn decide(&mut self, place: Place) -> Result<(f64, Node), IntraError> {
        if !self.frame.touches(place) {
            return Ok((0.0, Node::Outside));
        }
        if !self.frame.holds(place) {
            return self.quarters(place);
        }
        let mut whole = self.whole(place)?;
        if place.log2 <= self.syntax.smallest {
            return Ok(self.keep(place, whole));
        }
        whole.cost += self.lambda() * self.split_bits(place, false)?;
        let split = self.quarters(place)?;
        let cost = split.0 + self.lambda() * self.split_bits(place, true)?;
        if cost < whole.cost { Ok((cost, split.1)) } else { Ok(self.keep(place, whole)) }
    }

    fn split_bits(&mut self, place: Place, split: bool) -> Result<f64, IntraError> {
        let mut counter = Counter::default();
        self.syntax.split(&mut counter, place.log2, split)?;
        Ok(f64::from(counter.bits))
    }

    fn quarters(&mut self, place: Place) -> Result<(f64, Node), IntraError> {
        let mut cost = 0.0;
        let mut nodes = [Node::Outside, Node::Outside, Node::Outside, Node::Outside];
        for (node, quarter) in nodes.iter_mut().zip(place.quarters()) {
            let (c, decided) = self.decide(quarter)?;
            cost += c;
            *node = decided;
        }
        Ok((cost, Node::Split(Box::new(nodes))))
    }

    fn keep(&mut self, place: Place, trial: Trial) -> (f64, Node) {
        self.frame.put(place, &trial.samples);
        self.frame.mark(place, trial.kind);
        (trial.cost, Node::Leaf(trial.kind, trial.levels))
    }

    /// The best way to code a square as one block.
    fn whole(&mut self, place: Place) -> Result<Trial, IntraError> {
        let mut original = [0i32; MAX_AREA];
        self.original.block(place, &mut original);
        let original = &original[..place.area()];
        let mut best: Option<Trial> = None;
        for (kind, prediction) in self.candidates(place, original)? {
            let trial = self.attempt(place, kind, original, &prediction)?;
            if best.as_ref().is_none_or(|b| trial.cost < b.cost) {
                best = Some(trial);
            }
        }
        // Without prediction there is the middle, with it DC: there always is a candidate.
        best.ok_or(IntraError::Unsupported("a block without candidates".to_string()))
    }

    /// Kinds worth a full look, with their predictions.
    fn candidates(&mut self, place: Place, original: &[i32]) -> Result<Vec<(Kind, Vec<i32>)>, IntraError> {
        let mut out = Vec::new();
        let stages = self.settings.stages;
        if stages.prediction {
            let references = self.frame.references(place);
            let mut ranked = Vec::new();
            for mode in 0..MODES {
                let mut prediction = vec![0; place.area()];
                references.predict(mode, &mut prediction);
                let bits = self.kind_bits(place, Kind::Intra(mode))?;
                // Sums of absolute values are priced by the root.
                let cost = hadamard_sum(original, &prediction, place.side()) + self.lambda().sqrt() * bits;
                ranked.push((cost, mode, prediction));
            }
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            // On noise the ranking says little, and the two flat modes are the ones that do no harm.
            for (rank, (_, mode, prediction)) in ranked.into_iter().enumerate() {
                if rank < self.settings.candidates || mode == DC || mode == PLANAR {
                    out.push((Kind::Intra(mode), prediction));
                }
            }
        } else {
            let mut prediction = vec![0; place.area()];
            self.frame.predict(Kind::Middle, place, None, &mut prediction);
            out.push((Kind::Middle, prediction));
        }
        if let Some(previous) = self.previous.as_ref().filter(|_| stages.inter) {
            let found = motion::search(previous, place, original);
            let mut vectors = vec![(0, 0), found];
            vectors.dedup();
            for (dx, dy) in vectors {
                let mut prediction = vec![0; place.area()];
                motion::predict(previous, place, (dx, dy), &mut prediction);
                out.push((Kind::Inter(dx, dy), prediction));
            }
        }
        Ok(out)
    }

    fn kind_bits(&mut self, place: Place, kind: Kind) -> Result<f64, IntraError> {
        let mut counter = Counter::default();
        let beside = self.frame.beside(place);
        self.syntax.kind(&mut counter, kind, beside, self.previous.is_some())?;
        Ok(f64::from(counter.bits))
    }

    /// Codes a block from a prediction and says what that costs.
    fn attempt(
        &mut self,
        place: Place,
        kind: Kind,
        original: &[i32],
        prediction: &[i32],
    ) -> Result<Trial, IntraError> {
        let stages = self.settings.stages;
        let (mut residual, mut coefficients) = ([0i32; MAX_AREA], [0i32; MAX_AREA]);
        for ((r, o), p) in residual.iter_mut().zip(original).zip(prediction) {
            *r = o - p;
        }
        if stages.transform {
            transform::forward(&residual, place.log2, &mut coefficients);
        } else {
            let bits = transform::fraction(place.log2);
            coefficients.iter_mut().zip(&residual).for_each(|(c, r)| *c = r << bits);
        }
        let mut levels = vec![0; place.area()];
        let form = Form { log2: place.log2, transform: stages.transform };
        // Codes of fixed length cost the same whatever the levels.
        let bits = if stages.entropy {
            let lambda = self.settings.lambda as f32;
            quantise::by_cost(&coefficients, self.step, form, lambda, &self.costs, &mut levels)
        } else {
            quantise::nearest(&coefficients[..place.area()], self.step, place.log2, &mut levels);
            0.0
        };
        let mut samples = [0i32; MAX_AREA];
        samples[..place.area()].copy_from_slice(prediction);
        add_residual(&mut samples[..place.area()], &levels, place, self.step, stages);
        let top = self.frame.top();
        let error = |(o, s): (&i32, &i32)| f64::from(o - s.clamp(&0, &top)).powi(2);
        let squared: f64 = original.iter().zip(&samples).map(error).sum();
        let cost = squared + self.lambda() * (f64::from(bits) + self.kind_bits(place, kind)?);
        Ok(Trial { cost, kind, levels, samples })
    }

    /// The decoded picture as the search left it.
    pub fn finish(self) -> Frame {
        self.frame
    }
}

fn depth_of(frame: &Frame) -> u8 {
    (frame.top() as u32 + 1).ilog2() as u8
}

/// Sum of absolute differences after a Hadamard transform of each 4 by 4, scaled as the differences are:
/// near to what coefficients cost, for a fraction of the time.
fn hadamard_sum(original: &[i32], prediction: &[i32], n: usize) -> f64 {
    let mut total = 0u32;
    for y in (0..n).step_by(4) {
        for x in (0..n).step_by(4) {
            let mut d = [0i32; 16];
            for j in 0..4 {
                let at = (y + j) * n + x;
                for i in 0..4 {
                    d[4 * j + i] = original[at + i] - prediction[at + i];
                }
            }
            for (first, stride) in [(4, 1), (1, 4)] {
                for k in 0..4 {
                    let at = |i: usize| k * first + i * stride;
                    let [a, b, c, e] = [d[at(0)], d[at(1)], d[at(2)], d[at(3)]];
                    let [s, t, u, v] = [a + c, b + e, a - c, b - e];
                    [d[at(0)], d[at(1)], d[at(2)], d[at(3)]] = [s + t, s - t, u + v, u - v];
                }
            }
            total += d.iter().map(|v| v.unsigned_abs()).sum::<u32>();
        }
    }
    f64::from(total) / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hadamard_of_a_constant_is_its_mean() {
        // Sixteen differences of 5: one coefficient of 80, over 4.
        assert_eq!(hadamard_sum(&[25; 16], &[20; 16], 4), 20.0);
        assert_eq!(hadamard_sum(&[25; 64], &[20; 64], 8), 80.0);
        let mut one = [0; 16];
        one[6] = 7;
        assert_eq!(hadamard_sum(&one, &[0; 16], 4), 28.0);
    }
}
