//! Vectors of a basis as they are stored: compressed, each as finely as it needs to be.
//!
//! An error in a vector leaks part of its coordinate into others, and part of it out of the basis, where it is lost.
//! Both must stay small compared with the least variance that is still coded, the level. So the error of each vector is
//! inverse to its component's deviation, by row weights of the blob. The matrix that makes coordinates is the inverse
//! of the vectors that decoders really have.

use half::bf16;
use tenfold::engine::Limits;
use tenfold::prepare::{Axis, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, TensorView};

use super::algebra::{Mat, product, solve, to_floats, to_matrix};
use super::complete::complete;
use super::components::Components;
use super::metric::Metric;
use super::water::rate;
use crate::error::{Error, Result, invalid};

/// What may leak out of a component, as a fraction of the level: 0.04 bits for the weakest coded component, less on
/// average.
const LEAK: f64 = 0.06;
/// Error of a stored metric next to its variance. It only says what is nearest outside of the basis.
const METRIC_NMSE: f64 = 1e-4;
/// Most bytes of decoded vectors.
const MOST: u64 = 2 << 30;

/// A block of a basis: some columns, and vectors that are zero in all others.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Blob of vectors, bf16.
    pub vectors: Vec<u8>,
    /// Size of a metric's blocks and the blob of their factors; only where there are fewer vectors than columns.
    pub metric: Option<(usize, Vec<u8>)>,
}

/// A block as readers see it.
#[derive(Debug)]
pub(super) struct Opened {
    pub cols: usize,
    pub vectors: Vec<f32>,
    /// What makes coordinates, a row for each vector.
    pub forward: Vec<f32>,
    /// How errors of coordinates are counted, where there are fewer vectors than columns.
    metric: Option<Metric>,
}

impl Opened {
    /// The same with vectors for all that these do not span; vectors that stay are the first.
    pub fn completed(&self) -> Result<Opened> {
        let mut vectors = self.vectors.clone();
        vectors.extend(complete(&self.vectors, self.cols, self.metric.as_ref()));
        if vectors.iter().any(|v| !v.is_finite()) {
            return Err(Error::Malformed("a vector that completes a basis is not finite".into()));
        }
        let forward = forward(&vectors, self.cols, self.metric.as_ref())?;
        Ok(Opened { cols: self.cols, vectors, forward, metric: None })
    }
}

impl Stored {
    /// Compresses the strongest components for use down to a level of variance.
    pub fn new(components: &Components, rank: usize, level: f64) -> Result<Self> {
        let cols = components.cols();
        let vectors: Vec<bf16> = components.vectors(rank)?.into_iter().map(bf16::from_f32).collect();
        let shape = [rank, cols];
        let view = TensorView::from_slice(&vectors, &shape)?;
        let blob = tenfold::encode(&view, &options(components, rank, level))?;
        let metric = components.metric().filter(|_| rank < cols).map(store_metric).transpose()?;
        Ok(Stored { vectors: blob, metric })
    }

    /// Bytes of its blobs.
    pub fn bytes(&self) -> u64 {
        (self.vectors.len() + self.metric.as_ref().map_or(0, |(_, blob)| blob.len())) as u64
    }

    /// Decodes the vectors and finds the matrix that makes coordinates.
    pub fn open(&self) -> Result<Opened> {
        let info = tenfold::inspect(&self.vectors)?;
        let &[rank, cols] = info.shape.as_slice() else {
            return Err(Error::Malformed("vectors are not a matrix".into()));
        };
        if info.dtype != Dtype::Bf16 || rank == 0 || rank > cols {
            return Err(Error::Malformed(format!("{rank} vectors of {cols} columns, {}", info.dtype)));
        }
        let options = DecodeOptions::default().with_limits(Limits::default().with_max_bytes(MOST));
        let vectors: Vec<bf16> = tenfold::decode(&self.vectors, &options)?.to_vec()?;
        let vectors: Vec<f32> = vectors.into_iter().map(bf16::to_f32).collect();
        if vectors.iter().any(|v| !v.is_finite()) {
            return Err(Error::Malformed("a vector is not finite".into()));
        }
        let metric = self.metric.as_ref().map(|(size, blob)| open_metric(*size, blob, cols)).transpose()?;
        let forward = forward(&vectors, cols, metric.as_ref())?;
        Ok(Opened { cols, vectors, forward, metric })
    }
}

/// What makes the blob's errors leak alike from all components.
fn options(components: &Components, rank: usize, level: f64) -> EncodeOptions {
    let (variances, cols) = (&components.variances()[..rank], components.cols());
    if level <= 0.0 {
        return EncodeOptions::new(Goal::Lossless);
    }
    // Below the level nothing is coded; but vectors must stay apart from each other.
    let (rows, by_rows) = weights(Axis::Rows, variances.iter().map(|v| v.max(level)));
    let (columns, by_columns) = match components.metric() {
        Some(metric) => weights(Axis::Columns, metric.diagonal().into_iter()),
        None => (None, 1.0),
    };
    let goal = Goal::Mse((LEAK * level / cols as f64 / by_rows / by_columns).max(f64::MIN_POSITIVE));
    EncodeOptions::new(goal).with_transforms(rows.into_iter().chain(columns).collect())
}

/// Weights for squared errors that count so much, and what all of them were divided by.
fn weights(axis: Axis, squares: impl Iterator<Item = f64> + Clone) -> (Option<Transform>, f64) {
    let logs = squares.map(|v| v.max(f64::MIN_POSITIVE).log2());
    let (least, most) = logs.clone().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
    let middle = 0.5 * (least + most);
    // Eighths of an octave of the root: fourths of one of the square. A byte holds 32 octaves either way.
    let eighths: Vec<i8> = logs.map(|v| ((v - middle) * 4.0).round().clamp(-127.0, 127.0) as i8).collect();
    let step = eighths.iter().any(|&e| e != 0).then(|| Transform::Weights(Weights::new(axis, eighths)));
    (step, middle.exp2())
}

fn store_metric(metric: &Metric) -> Result<(usize, Vec<u8>)> {
    let packed = metric.pack();
    let each = metric.size() * (metric.size() + 1) / 2;
    let shape = [packed.len() / each, each];
    let view = TensorView::from_slice(&packed, &shape)?;
    // Layers count very differently: each block is to be as exact as the others, for its size.
    let power = |block: &[f32]| block.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
    let (rows, _) =
        weights(Axis::Rows, packed.chunks_exact(each).map(|b| 1.0 / power(b).max(f64::MIN_POSITIVE)));
    let options = EncodeOptions::new(Goal::Nmse(METRIC_NMSE)).with_transforms(rows.into_iter().collect());
    Ok((metric.size(), tenfold::encode(&view, &options)?))
}

fn open_metric(size: usize, blob: &[u8], cols: usize) -> Result<Metric> {
    let options = DecodeOptions::default().with_limits(Limits::default().with_max_bytes(MOST));
    Metric::unpack(&tenfold::decode(blob, &options)?.to_vec::<f32>()?, size, cols)
}

/// The matrix that makes coordinates whose errors are least in the metric: (V·M·Vᵀ)⁻¹·V·M.
fn forward(vectors: &[f32], cols: usize, metric: Option<&Metric>) -> Result<Vec<f32>> {
    let vectors = to_matrix(vectors, cols);
    let seen = metric.map_or_else(|| vectors.clone(), |m| m.multiply(&vectors));
    let back = metric.map_or_else(|| seen.clone(), |m| m.multiply_transposed(&seen));
    let gram = product(seen.as_ref(), seen.transpose());
    let found = solve(gram, back).map(|m| to_floats(&m));
    found
        .filter(|m| m.iter().all(|v| v.is_finite()))
        .ok_or_else(|| Error::Malformed("the vectors of a basis are linearly dependent".into()))
}

/// Variances of the coordinates that an opened block makes, and bits a row that they cost over those of the components
/// themselves at a level.
pub(super) fn cost(components: &Components, opened: &Opened, level: f64) -> Result<(Vec<f64>, f64)> {
    if opened.cols != components.cols() {
        return Err(invalid("a block and its components have different columns"));
    }
    let forward = to_matrix(&opened.forward, opened.cols);
    let variances = components.spread_under(&forward);
    if level <= 0.0 {
        return Ok((variances, 0.0));
    }
    let vectors = to_matrix(&opened.vectors, opened.cols);
    let seen = components.metric().map_or_else(|| vectors.clone(), |m| m.multiply(&vectors));
    // Errors of coordinates come out as long as the vectors are.
    let coded = variances.iter().filter(|v| **v > level).count() as f64;
    let longer = 0.5 * (mean_square(&seen)).log2() * coded;
    let bits = rate(&variances, 1, level) - rate(components.variances(), 1, level) + longer;
    Ok((variances, bits))
}

/// Mean squared length of rows.
fn mean_square(rows: &Mat) -> f64 {
    rows.squared_norm_l2() / rows.nrows() as f64
}
