//! **An estimate, not a coder**: a uniform scalar quantiser whose levels are counted at their ideal
//! order-0 entropy, with no byte for tables, headers or lane ends. A codec that spends real bytes and
//! still beats it does so by a better quantiser or by better statistics.
//!
//! So that the bar is honest the estimate takes the best of several quantisers: plain rounding and
//! rate-distortion choices with several weights, each with values put back at the middle of their cell
//! or at its centroid, each with the step that meets the rate.
//!
//! Values are sorted once; cells of a scalar quantiser are intervals, so a trial needs only a binary
//! search and two prefix sums a cell.

/// Weight of a bit against squared error, in squared steps. 0 is plain rounding; 0.1155 is the slope
/// of the high-rate curve (ln 2 / 6); larger ones widen the dead zone further.
const WEIGHTS: [f64; 7] = [0.0, 0.04, 0.08, 0.1155, 0.15, 0.2, 0.27];

/// Passes of choosing levels with the bit costs of the pass before.
const PASSES: usize = 4;

/// Halvings of the interval in which the step lies.
const BISECTIONS: usize = 36;

/// What the idealised quantiser reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Order-0 entropy of the levels, bits a value.
    pub bits: f64,
    /// Mean squared error.
    pub mse: f64,
    /// Mean squared error over the variance.
    pub nmse: f64,
    /// Step of the quantiser.
    pub step: f64,
    /// Weight of the rate-distortion choice.
    pub weight: f64,
}

/// Values in order, with running sums.
pub struct ScalarIdeal {
    sorted: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    variance: f64,
}

/// A cell: its level and the range of sorted values in it.
#[derive(Clone, Copy)]
struct Cell {
    level: f64,
    start: usize,
    end: usize,
}

impl ScalarIdeal {
    /// Prepares the finite values of a tensor.
    pub fn new(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let running = |f: fn(f64) -> f64| {
            let mut total = 0.0;
            let add = |&v: &f64| {
                total += f(v);
                total
            };
            std::iter::once(0.0).chain(sorted.iter().map(add)).collect::<Vec<f64>>()
        };
        let (sums, squares) = (running(|v| v), running(|v| v * v));
        let n = sorted.len().max(1) as f64;
        let mean = sums[sorted.len()] / n;
        let variance = sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        ScalarIdeal { sorted, sums, squares, variance }
    }

    /// The smallest error found at no more than `bits` bits a value; `None` if there is nothing to code.
    pub fn at_bits(&self, bits: f64) -> Option<Estimate> {
        let positive = self.variance > 0.0 && bits > 0.0;
        let trials = WEIGHTS.iter().filter(|_| positive).map(|&w| self.bisect(w, bits));
        trials.min_by(|a, b| a.mse.total_cmp(&b.mse))
    }

    /// Finds the step of a weight; the entropy falls as the step grows.
    fn bisect(&self, weight: f64, bits: f64) -> Estimate {
        let guess = (12.0 * self.variance).sqrt() * (-bits).exp2();
        let (mut fine, mut coarse) = (guess, guess);
        while self.trial(fine, weight).bits < bits && fine > guess * 1e-9 {
            fine *= 0.5;
        }
        let mut best = self.trial(coarse, weight);
        while best.bits > bits && coarse < guess * 1e9 {
            coarse *= 2.0;
            best = self.trial(coarse, weight);
        }
        for _ in 0..BISECTIONS {
            let middle = (fine * coarse).sqrt();
            let trial = self.trial(middle, weight);
            if trial.bits > bits {
                fine = middle;
            } else {
                coarse = middle;
                best = trial;
            }
        }
        best
    }

    /// Rate and error of one quantiser.
    fn trial(&self, step: f64, weight: f64) -> Estimate {
        let mut cells = self.round(step);
        for _ in 0..if weight > 0.0 { PASSES } else { 0 } {
            cells = self.choose(&cells, step, weight);
        }
        let n = self.sorted.len() as f64;
        let (mut entropy, mut middle, mut centroid) = (0.0, 0.0, 0.0);
        for c in &cells {
            let count = (c.end - c.start) as f64;
            let sum = self.sums[c.end] - self.sums[c.start];
            let square = self.squares[c.end] - self.squares[c.start];
            let at = c.level * step;
            entropy += count * (n / count).log2();
            middle += (square - 2.0 * at * sum + count * at * at).max(0.0);
            centroid += (square - sum * sum / count).max(0.0);
        }
        // Centroids would have to be sent, but an estimate that errs does so in the rival's favour.
        let mse = middle.min(centroid) / n;
        Estimate { bits: entropy / n, mse, nmse: mse / self.variance, step, weight }
    }

    /// Cells of plain rounding; only those that hold values.
    fn round(&self, step: f64) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut start = 0;
        while let Some(&first) = self.sorted.get(start) {
            let level = (first / step).round();
            let end = self.end_of(start, (level + 0.5) * step);
            cells.push(Cell { level, start, end });
            start = end;
        }
        cells
    }

    /// Cells under cost (x/step − level)² + weight·bits(level): the lower envelope of one line a level.
    fn choose(&self, cells: &[Cell], step: f64, weight: f64) -> Vec<Cell> {
        let n = self.sorted.len() as f64;
        let cost = |c: &Cell| weight * (n / (c.end - c.start) as f64).log2();
        let border = |a: &(f64, f64), b: &(f64, f64)| (a.0 + b.0) / 2.0 + (b.1 - a.1) / (2.0 * (b.0 - a.0));
        let mut hull: Vec<(f64, f64)> = Vec::with_capacity(cells.len());
        for line in cells.iter().map(|c| (c.level, cost(c))) {
            while let [.., a, b] = hull[..]
                && border(&b, &line) <= border(&a, &b)
            {
                hull.pop();
            }
            hull.push(line);
        }
        let mut out = Vec::with_capacity(hull.len());
        let mut start = 0;
        for (i, line) in hull.iter().enumerate() {
            let end = match hull.get(i + 1) {
                Some(next) => self.end_of(start, border(line, next) * step),
                None => self.sorted.len(),
            };
            if end > start {
                out.push(Cell { level: line.0, start, end });
            }
            start = end;
        }
        out
    }

    /// Index of the first value at or above `limit`, at least one past `start` if that value is below.
    /// Gallops: cells are short beside the array.
    fn end_of(&self, start: usize, limit: f64) -> usize {
        let mut reach = 1;
        while self.sorted.get(start + reach).is_some_and(|&v| v < limit) {
            reach *= 2;
        }
        let stop = (start + reach).min(self.sorted.len());
        start + self.sorted[start..stop].partition_point(|&v| v < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::gap_bits;
    use crate::synth::{self, Shape};

    fn gaussian() -> ScalarIdeal {
        let values = synth::values(Shape::Gaussian, 0.3, 1 << 20, 11);
        ScalarIdeal::new(&values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>())
    }

    #[test]
    fn gaussian_gap_at_high_rate_is_a_quarter_bit() {
        // ½·log2(2πe/12) = 0.2546
        let e = gaussian().at_bits(5.0).unwrap();
        assert!((e.bits - 5.0).abs() < 1e-4, "{e:?}");
        let gap = gap_bits(e.bits, e.nmse);
        assert!((gap - 0.2546).abs() < 0.004, "{gap}");
    }

    #[test]
    fn gaussian_gap_shrinks_at_low_rate() {
        // Entropy-coded scalar quantisation approaches the bound as the rate goes to zero.
        let ideal = gaussian();
        let gap = |bits| ideal.at_bits(bits).map(|e| gap_bits(e.bits, e.nmse)).unwrap();
        assert!((0.08..0.2).contains(&gap(0.5)), "{}", gap(0.5));
        assert!(gap(0.5) < gap(1.0) && gap(1.0) < gap(2.0));
    }

    #[test]
    fn one_cell_by_hand() {
        // Step 1, plain rounding: {−1, −1}, {0}, {1}; errors 0.1, 0.1, 0.2, 0.
        let ideal = ScalarIdeal::new(&[-1.1, 0.2, 1.0, -0.9]);
        let e = ideal.trial(1.0, 0.0);
        assert!((e.bits - 1.5).abs() < 1e-12);
        // Middles: (0.01 + 0.04 + 0 + 0.01)/4; centroids: (0.01 + 0.01)/4.
        assert!((e.mse - 0.005).abs() < 1e-12);
    }

    #[test]
    fn constants_have_nothing_to_code() {
        assert!(ScalarIdeal::new(&[2.0; 10]).at_bits(2.0).is_none());
        assert!(ScalarIdeal::new(&[]).at_bits(2.0).is_none());
    }
}
