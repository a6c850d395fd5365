//! Sums over rows: all that a principal component analysis needs of them.

use super::algebra::{Mat, add_outer};
use crate::error::{Error, Result, invalid};

/// Rows whose products are made at once: enough to keep a matrix product busy.
const BLOCK: usize = 512;

/// Count, sums and products of rows, in f64; rows come in any number of pieces, which may count more or less than others.
///
/// ```
/// use tenfold_kv::basis::Moments;
/// let mut moments = Moments::new(2)?;
/// moments.add(&[1.0, 10.0, 3.0, 30.0], "rows", 0)?;
/// assert_eq!((moments.count(), moments.means()), (2, vec![2.0, 20.0]));
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Moments {
    count: u64,
    /// What the rows count in all: their number, unless some were weighted.
    mass: f64,
    sums: Vec<f64>,
    /// Lower triangle of Σ x·xᵀ.
    products: Mat,
}

impl Moments {
    /// Of no rows yet.
    pub fn new(cols: usize) -> Result<Self> {
        if cols == 0 {
            return Err(invalid("rows without columns have no basis"));
        }
        Ok(Moments { count: 0, mass: 0.0, sums: vec![0.0; cols], products: Mat::zeros(cols, cols) })
    }

    /// Columns of the rows.
    pub fn cols(&self) -> usize {
        self.sums.len()
    }

    /// Rows so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds whole rows. `tensor` and `first`, the number of the first of them, are for errors.
    pub fn add(&mut self, rows: &[f32], tensor: &str, first: u64) -> Result<()> {
        let cols = self.cols();
        if !rows.len().is_multiple_of(cols) {
            return Err(invalid(format!(
                "tensor {tensor:?}: {} numbers do not make rows of {cols}",
                rows.len()
            )));
        }
        if let Some(at) = rows.iter().position(|v| !v.is_finite()) {
            let (row, column) = (first + (at / cols) as u64, at % cols);
            return Err(Error::NotFinite { tensor: tensor.to_owned(), row, column });
        }
        for block in rows.chunks(BLOCK * cols) {
            let wide: Vec<f64> = block.iter().map(|&v| f64::from(v)).collect();
            for row in wide.chunks_exact(cols) {
                self.sums.iter_mut().zip(row).for_each(|(s, v)| *s += v);
            }
            add_outer(&mut self.products, &wide);
            self.count += (wide.len() / cols) as u64;
            self.mass += (wide.len() / cols) as f64;
        }
        Ok(())
    }

    /// Adds the rows of another.
    pub fn merge(&mut self, other: &Moments) -> Result<()> {
        self.merge_weighted(other, 1.0)
    }

    /// Adds the rows of another, each of which counts as `weight` rows.
    pub fn merge_weighted(&mut self, other: &Moments, weight: f64) -> Result<()> {
        self.check(other)?;
        if !(weight.is_finite() && weight > 0.0) {
            return Err(invalid(format!("rows must have a positive weight, not {weight}")));
        }
        self.count += other.count;
        self.mass += weight * other.mass;
        self.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| *a += weight * b);
        for (a, b) in self.products.col_iter_mut().zip(other.products.col_iter()) {
            a.iter_mut().zip(b.iter()).for_each(|(a, b)| *a += weight * b);
        }
        Ok(())
    }

    /// The moments of some columns alone.
    pub fn columns(&self, range: std::ops::Range<usize>) -> Result<Moments> {
        let sums = self.sums.get(range.clone()).filter(|sums| !sums.is_empty());
        let sums = sums.ok_or_else(|| invalid(format!("columns {range:?} do not exist")))?.to_vec();
        let products = self.products.submatrix(range.start, range.start, sums.len(), sums.len()).to_owned();
        Ok(Moments { count: self.count, mass: self.mass, products, sums })
    }

    /// Means of the columns.
    pub fn means(&self) -> Vec<f64> {
        self.sums.iter().map(|s| s / self.rows()).collect()
    }

    /// Mean squares of the columns about given values.
    pub fn spread(&self, about: &[f64]) -> Vec<f64> {
        let square = |(c, a): (usize, &f64)| {
            (self.products[(c, c)] / self.rows() - 2.0 * a * self.sums[c] / self.rows() + a * a).max(0.0)
        };
        about.iter().enumerate().map(square).collect()
    }

    /// Mean products of the columns about given values; whole, not only a triangle.
    pub(super) fn covariance(&self, about: &[f64]) -> Mat {
        let (n, rows) = (self.cols(), self.rows());
        Mat::from_fn(n, n, |i, j| {
            let product = self.products[(i.max(j), i.min(j))] / rows;
            product - (about[i] * self.sums[j] + about[j] * self.sums[i]) / rows + about[i] * about[j]
        })
    }

    /// Variance of all columns together, as if they were one.
    pub fn common_variance(&self) -> f64 {
        let n = self.cols() as f64;
        let square = (0..self.cols()).map(|c| self.products[(c, c)]).sum::<f64>() / self.rows() / n;
        let mean = self.sums.iter().sum::<f64>() / self.rows() / n;
        (square - mean * mean).max(0.0)
    }

    fn rows(&self) -> f64 {
        if self.mass > 0.0 { self.mass } else { 1.0 }
    }

    fn check(&self, other: &Moments) -> Result<()> {
        if other.cols() != self.cols() {
            return Err(invalid(format!(
                "rows of {} and of {} columns cannot be combined",
                self.cols(),
                other.cols()
            )));
        }
        Ok(())
    }
}
