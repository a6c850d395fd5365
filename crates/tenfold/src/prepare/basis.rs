//! A basis for rows, as a principal component analysis finds it. Normative: docs/format.md, 'Basis'.
//!
//! Behind it a codec sees coordinates in place of columns. A basis may have fewer vectors than rows have columns; what
//! lies outside of them is lost. It need not be orthonormal: who knows how much an error of each direction does makes
//! vectors so that equal errors of coordinates do equal harm.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use half::bf16;

use super::product::product;
use super::real::Real;
use crate::entropy::MAX_SCALE_BITS;
use crate::error::{Error, Result};

/// How far coordinates of a basis's own vectors may be from 1 and 0.
const TOLERANCE: f64 = 0.02;
/// Pairs of neighbouring vectors that are looked at for that.
const NEIGHBOURS: usize = 8;
/// Scales of coordinates count in this many parts of an octave.
const PER_OCTAVE: f32 = 4.0;

/// A short name of a basis, made of all its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 16]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Vectors for rows, and the row that they start from.
///
/// ```
/// use tenfold::prepare::Basis;
/// let half = 0.5f32.sqrt();
/// // Rows of two columns that move together: one vector tells nearly all.
/// let basis = Basis::orthonormal(&[10.0, -10.0], &[half, half])?;
/// assert_eq!((basis.cols(), basis.rank()), (2, 1));
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Clone)]
pub struct Basis {
    means: Vec<f32>,
    /// One after the other, each entry a bf16.
    vectors: Vec<f32>,
    /// Logarithms of the coordinates' deviations; empty if nothing is known of them.
    scales: Vec<u8>,
    rank: usize,
    fingerprint: Fingerprint,
    orthonormal: bool,
    /// What makes coordinates, a row for each column; only encoders need it.
    forward: OnceLock<Vec<f32>>,
}

impl fmt::Debug for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Basis {} of {} vectors for {} columns", self.fingerprint, self.rank, self.cols())
    }
}

impl PartialEq for Basis {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Basis {}

impl Basis {
    /// From the row to start from and orthonormal vectors, one after the other, each as long as that. Entries are rounded to
    /// bf16.
    pub fn orthonormal(means: &[f32], vectors: &[f32]) -> Result<Self> {
        let rank = checked_rank(means, vectors)?;
        let basis = Basis::trusted(means.to_vec(), rounded(vectors), Vec::new(), rank, true);
        check_coordinates(&basis.vectors, &basis.vectors, basis.cols())?;
        Ok(basis)
    }

    /// From vectors of any length and angle and the matrix that makes coordinates, which has a row for each vector too: rows
    /// of it times vectors give 1 for each with its own, else 0. Errors that goals speak of are those of coordinates.
    pub fn with_forward(means: &[f32], vectors: &[f32], forward: &[f32]) -> Result<Self> {
        let rank = checked_rank(means, vectors)?;
        if forward.len() != vectors.len() || forward.iter().any(|v| !v.is_finite()) {
            return Err(Error::InvalidArgument(
                "the forward matrix of a basis must be finite and have the shape of its vectors".into(),
            ));
        }
        let basis = Basis::trusted(means.to_vec(), rounded(vectors), Vec::new(), rank, false);
        check_coordinates(forward, &basis.vectors, basis.cols())?;
        let _ = basis.forward.set(transposed(forward, basis.cols()));
        Ok(basis)
    }

    /// Says how far coordinates go, as standard deviations: blobs then need not say it, which counts where they are small.
    pub fn with_deviations(self, deviations: &[f64]) -> Result<Self> {
        if deviations.len() != self.rank || deviations.iter().any(|d| !d.is_finite() || *d < 0.0) {
            return Err(Error::InvalidArgument(format!(
                "a basis of {} vectors needs that many deviations, none of them negative",
                self.rank
            )));
        }
        let most = deviations.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let top = f32::from((1u8 << MAX_SCALE_BITS) - 1);
        let scale = |d: &f64| (top + (d / most).log2() as f32 * PER_OCTAVE).round().clamp(0.0, top) as u8;
        Ok(self.with_scales(deviations.iter().map(scale).collect()))
    }

    pub(super) fn with_scales(self, scales: Vec<u8>) -> Self {
        let forward = self.forward;
        let basis = Basis::trusted(self.means, self.vectors, scales, self.rank, self.orthonormal);
        Basis { forward, ..basis }
    }

    /// The parts must fit each other.
    pub(super) fn trusted(
        means: Vec<f32>,
        vectors: Vec<f32>,
        scales: Vec<u8>,
        rank: usize,
        orthonormal: bool,
    ) -> Self {
        let mut hasher = blake3::Hasher::new();
        [means.len(), rank, scales.len()].iter().for_each(|&n| {
            hasher.update(&(n as u64).to_le_bytes());
        });
        means.iter().chain(&vectors).for_each(|v| {
            hasher.update(&v.to_le_bytes());
        });
        hasher.update(&scales);
        let mut short = [0; 16];
        short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        let fingerprint = Fingerprint(short);
        Basis { means, vectors, scales, rank, fingerprint, orthonormal, forward: OnceLock::new() }
    }

    /// Columns of the rows that it is for.
    pub fn cols(&self) -> usize {
        self.means.len()
    }

    /// Vectors.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Its name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The row to start from.
    pub fn means(&self) -> &[f32] {
        &self.means
    }

    /// All vectors, one after the other.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// Vector `k`.
    pub fn vector(&self, k: usize) -> &[f32] {
        &self.vectors[k * self.cols()..][..self.cols()]
    }

    /// Whether squared errors of coordinates are those of rows.
    pub fn is_orthonormal(&self) -> bool {
        self.orthonormal
    }

    /// Logarithms of the coordinates' deviations, in quarters of an octave, the largest being 63; empty if nothing is known
    /// of them.
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// Whether coordinates can be made: a basis out of a blob is for decoding.
    pub fn can_encode(&self) -> bool {
        self.orthonormal || self.forward.get().is_some()
    }

    /// What makes coordinates: a row for each column.
    pub fn forward_columns(&self) -> &[f32] {
        self.forward.get_or_init(|| transposed(&sharpened(&self.vectors, self.cols()), self.cols()))
    }

    /// Coordinates of whole rows; returns the squared error of what lies outside an orthonormal basis.
    pub(super) fn forward<R: Real>(&self, values: &mut Vec<R>) -> f64 {
        let cols = self.cols();
        let means: Vec<R> = self.means.iter().map(|&m| R::from_f64(-f64::from(m))).collect();
        for row in values.chunks_exact_mut(cols) {
            row.iter_mut().zip(&means).for_each(|(v, &m)| *v = v.plus(m));
        }
        let mut out = vec![R::from_f64(0.0); values.len() / cols * self.rank];
        product(values, self.forward_columns(), self.rank, 0, &vec![0.0; self.rank], &mut out);
        let power = |v: &[R]| v.iter().map(|v| v.wide() * v.wide()).sum::<f64>();
        let lost = if self.rank < cols { (power(values) - power(&out)).max(0.0) } else { 0.0 };
        *values = out;
        lost
    }

    /// Rows of coordinates.
    pub(super) fn inverse<R: Real>(&self, values: &mut Vec<R>) {
        *values = self.columns(values, 0..self.cols());
    }

    /// Some columns of rows of coordinates.
    pub(super) fn columns<R: Real>(&self, values: &[R], range: Range<usize>) -> Vec<R> {
        let mut out = vec![R::from_f64(0.0); values.len() / self.rank * range.len()];
        product(values, &self.vectors, self.cols(), range.start, &self.means[range], &mut out);
        out
    }
}

fn checked_rank(means: &[f32], vectors: &[f32]) -> Result<usize> {
    let cols = means.len();
    let rank = vectors.len() / cols.max(1);
    if cols == 0 || vectors.len() != rank * cols || rank == 0 || rank > cols {
        return Err(Error::InvalidArgument(format!(
            "{} numbers do not make 1 to {cols} vectors of {cols} columns",
            vectors.len()
        )));
    }
    if means.iter().chain(vectors).any(|v| !v.is_finite() || v.abs() > bf16::MAX.to_f32()) {
        return Err(Error::InvalidArgument("a basis must hold finite numbers only".into()));
    }
    Ok(rank)
}

fn rounded(vectors: &[f32]) -> Vec<f32> {
    vectors.iter().map(|&v| bf16::from_f32(v).to_f32()).collect()
}

fn transposed(rows: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| rows.iter().skip(c).step_by(cols).copied()).collect()
}

/// The matrix that makes coordinates for vectors that were orthonormal before they were rounded: what is missing is small,
/// so one step of Newton's method leaves its square. With V for the vectors that is 2·V − (V·Vᵀ)·V.
fn sharpened(vectors: &[f32], cols: usize) -> Vec<f32> {
    let rank = vectors.len() / cols;
    let mut angles = vec![0f32; rank * rank];
    product(vectors, &transposed(vectors, cols), rank, 0, &vec![0.0; rank], &mut angles);
    let mut off = vec![0f32; rank * cols];
    product(&angles, vectors, cols, 0, &vec![0.0; cols], &mut off);
    vectors.iter().zip(&off).map(|(v, o)| 2.0 * v - o).collect()
}

/// Whether coordinates of vectors are what they should be. Of many vectors not all pairs are looked at: each with itself and the
/// next few.
fn check_coordinates(forward: &[f32], vectors: &[f32], cols: usize) -> Result<()> {
    let vectors: Vec<&[f32]> = vectors.chunks_exact(cols).collect();
    for (k, a) in forward.chunks_exact(cols).enumerate() {
        for (j, b) in vectors.iter().enumerate().skip(k).take(NEIGHBOURS) {
            let dot: f64 = a.iter().zip(*b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let off = dot - f64::from(u8::from(j == k));
            if off.abs() > TOLERANCE {
                return Err(Error::InvalidArgument(format!(
                    "vectors {k} and {j} of the basis do not match the forward matrix: their product is off by {off:.2e}"
                )));
            }
        }
    }
    Ok(())
}
