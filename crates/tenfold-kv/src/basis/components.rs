//! Principal components of rows, in the plain metric or in one that says how much errors count.
//!
//! With M = L·Lᵀ rows are seen as y = Lᵀ·(x − mean), where an error of one unit costs one whatever its direction. The
//! eigenvectors B of y's covariance give coordinates B·Lᵀ·(x − mean), and rows come back as mean + (B·L⁻¹)ᵀ·c.

use super::algebra::{Mat, decompose, product, to_floats};
use super::metric::Metric;
use super::moments::Moments;
use crate::error::{Result, invalid};

/// All components of rows, the strongest first.
///
/// ```
/// use tenfold_kv::basis::{Components, Moments};
/// let mut moments = Moments::new(2)?;
/// // Two columns that move together.
/// moments.add(&[1.0, 11.0, -1.0, 9.0, 2.0, 12.0, -2.0, 8.0], "rows", 0)?;
/// let found = Components::from_moments(&moments, None)?;
/// assert_eq!(found.means(), [0.0, 10.0]);
/// assert!((found.variances()[0] - 5.0).abs() < 1e-9 && found.variances()[1] < 1e-9);
/// let half = 0.5f32.sqrt();
/// assert!(found.vectors(1)?.iter().all(|v| (v - half).abs() < 1e-6));
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Components {
    means: Vec<f64>,
    variances: Vec<f64>,
    /// B: rows, orthonormal.
    directions: Mat,
    metric: Option<Metric>,
}

impl Components {
    /// Finds them.
    pub fn from_moments(moments: &Moments, metric: Option<&Metric>) -> Result<Self> {
        if moments.count() < 2 {
            return Err(invalid(format!("{} rows are too few for a basis; capture more", moments.count())));
        }
        if let Some(metric) = metric.filter(|m| m.cols() != moments.cols()) {
            let reason =
                format!("the metric has {} columns, but the rows have {}", metric.cols(), moments.cols());
            return Err(invalid(reason));
        }
        let means = moments.means();
        let mut covariance = moments.covariance(&means);
        if let Some(metric) = metric {
            // Lᵀ·C·L; C is symmetric.
            covariance = metric.multiply(&metric.multiply(&covariance).transpose().to_owned());
        }
        let (variances, directions) = decompose(&covariance)?;
        Ok(Components { means, variances, directions, metric: metric.cloned() })
    }

    /// Columns of the rows.
    pub fn cols(&self) -> usize {
        self.means.len()
    }

    /// The row that coordinates count from.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// Variances of coordinates, the largest first.
    pub fn variances(&self) -> &[f64] {
        &self.variances
    }

    /// The metric.
    pub fn metric(&self) -> Option<&Metric> {
        self.metric.as_ref()
    }

    /// The strongest vectors, one after the other: what coordinates multiply.
    pub fn vectors(&self, rank: usize) -> Result<Vec<f32>> {
        if rank == 0 || rank > self.cols() {
            return Err(invalid(format!(
                "rows of {} columns have fewer than {rank} components",
                self.cols()
            )));
        }
        Ok(to_floats(&self.inverse(rank)))
    }

    /// Mean squares of the coordinates of other rows.
    pub fn spread(&self, moments: &Moments) -> Vec<f64> {
        let forward = match &self.metric {
            Some(metric) => metric.multiply_transposed(&self.directions),
            None => self.directions.clone(),
        };
        spread(&forward, &moments.covariance(&self.means))
    }

    /// Variances of coordinates that another matrix makes of the rows that the components come from.
    pub(super) fn spread_under(&self, forward: &Mat) -> Vec<f64> {
        // F·C·Fᵀ with C = Vᵀ·Λ·V.
        let onto = product(forward.as_ref(), self.inverse(self.cols()).transpose());
        let weighted = |k: usize| self.variances.iter().enumerate().map(move |(j, v)| (k, j, v));
        (0..forward.nrows()).map(|k| weighted(k).map(|(k, j, v)| onto[(k, j)].powi(2) * v).sum()).collect()
    }

    fn inverse(&self, rank: usize) -> Mat {
        let directions = self.directions.subrows(0, rank).to_owned();
        match &self.metric {
            Some(metric) => metric.divide(&directions),
            None => directions,
        }
    }
}

/// Diagonal of F·C·Fᵀ.
fn spread(forward: &Mat, covariance: &Mat) -> Vec<f64> {
    let half = product(forward.as_ref(), covariance.as_ref());
    let dot = |k: usize| (0..half.ncols()).map(|c| half[(k, c)] * forward[(k, c)]).sum::<f64>();
    (0..forward.nrows()).map(|k| dot(k).max(0.0)).collect()
}
