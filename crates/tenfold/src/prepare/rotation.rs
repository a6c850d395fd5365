//! The transform of a chain that goes by a basis: one that the blob only names, or one that it holds. Normative: docs/format.md,
//! 'Basis'.

use std::sync::Arc;

use half::bf16;

use super::basis::{Basis, Fingerprint};
use crate::blob::bytes::{Reader, put_varint};
use crate::entropy::MAX_SCALE_BITS;
use crate::error::{Error, Result};

const NAMED: u8 = 0;
const EMBEDDED: u8 = 1;

/// A basis in a chain.
///
/// ```
/// use std::sync::Arc;
/// use tenfold::prepare::{Basis, Rotation, Transform};
/// use tenfold::{DecodeOptions, EncodeOptions, Error, Goal, TensorView};
/// let half = 0.5f32.sqrt();
/// let basis = Arc::new(Basis::orthonormal(&[0.0, 0.0], &[half, half, half, -half])?);
/// // Two columns that move together.
/// let values: Vec<f32> = (0..4096).map(|i| (i as f32 / 2.0).floor().sin()).collect();
/// let view = TensorView::from_slice(&values, &[2048, 2])?;
/// let options = EncodeOptions::new(Goal::Nmse(1e-3)).with_transforms(vec![Transform::Basis(Rotation::named(&basis))]);
/// let blob = tenfold::encode(&view, &options)?;
/// // Whoever decodes it must have the basis too.
/// assert!(matches!(tenfold::decode(&blob, &DecodeOptions::default()), Err(Error::MissingBasis { .. })));
/// let known = DecodeOptions::default().with_bases(vec![basis]);
/// assert_eq!(tenfold::decode(&blob, &known)?.shape, [2048, 2]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    fingerprint: Fingerprint,
    rank: usize,
    embedded: bool,
    /// Not there until whoever reads the blob has found the one that it names.
    basis: Option<Arc<Basis>>,
}

impl Rotation {
    /// A basis that readers must have too.
    pub fn named(basis: &Arc<Basis>) -> Self {
        Rotation {
            fingerprint: basis.fingerprint(),
            rank: basis.rank(),
            embedded: false,
            basis: Some(basis.clone()),
        }
    }

    /// A basis that the blob holds, two bytes a number: worth it for tensors of many rows.
    pub fn embedded(basis: &Arc<Basis>) -> Self {
        Rotation { embedded: true, ..Rotation::named(basis) }
    }

    /// The name of the basis.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Columns behind the transform.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether the blob holds the basis.
    pub fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// The basis, if it is known.
    pub fn basis(&self) -> Option<&Arc<Basis>> {
        self.basis.as_ref()
    }

    /// Looks for the basis among those given.
    pub(crate) fn resolve(&mut self, known: &[Arc<Basis>], cols: usize) -> Result<()> {
        if self.basis.is_some() {
            return Ok(());
        }
        let found = known.iter().find(|b| b.fingerprint() == self.fingerprint);
        let found = found.ok_or_else(|| Error::MissingBasis { fingerprint: self.fingerprint.to_string() })?;
        if found.cols() != cols || found.rank() != self.rank {
            return Err(Error::Corrupt("basis step"));
        }
        self.basis = Some(found.clone());
        Ok(())
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![if self.embedded { EMBEDDED } else { NAMED }];
        put_varint(&mut out, self.rank as u64);
        match &self.basis {
            Some(basis) if self.embedded => {
                basis.means().iter().for_each(|m| out.extend_from_slice(&m.to_le_bytes()));
                out.push(u8::from(!basis.scales().is_empty()));
                out.extend_from_slice(basis.scales());
                basis.vectors().iter().for_each(|&v| out.extend_from_slice(&bf16::from_f32(v).to_le_bytes()));
            }
            _ => out.extend_from_slice(&self.fingerprint.0),
        }
        out
    }

    /// Reads the transform of a tensor of so many columns.
    pub(super) fn read(content: &[u8], cols: usize) -> Result<Self> {
        Rotation::read_from(&mut Reader::new(content), cols)
            .ok()
            .flatten()
            .ok_or(Error::Corrupt("basis step"))
    }

    fn read_from(r: &mut Reader<'_>, cols: usize) -> Result<Option<Rotation>> {
        let embedded = match r.u8()? {
            NAMED => false,
            EMBEDDED => true,
            _ => return Ok(None),
        };
        let rank = r.varint()?;
        if rank == 0 || rank > cols as u64 {
            return Ok(None);
        }
        let rank = rank as usize;
        if !embedded {
            let fingerprint = Fingerprint(r.array()?);
            return Ok(r.rest().is_empty().then_some(Rotation { fingerprint, rank, embedded, basis: None }));
        }
        // All bytes are there before memory is taken.
        let means = r.take(cols.saturating_mul(4))?.as_chunks::<4>().0;
        let scales = match r.u8()? {
            0 => Vec::new(),
            1 => r.take(rank)?.to_vec(),
            _ => return Ok(None),
        };
        let vectors = r.take(rank.saturating_mul(cols).saturating_mul(2))?.as_chunks::<2>().0;
        let means: Vec<f32> = means.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let vectors: Vec<f32> = vectors.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect();
        let wild = means.iter().chain(&vectors).any(|v| !v.is_finite())
            || scales.iter().any(|&s| u32::from(s) >= 1 << MAX_SCALE_BITS);
        if wild || !r.rest().is_empty() {
            return Ok(None);
        }
        let basis = Basis::trusted(means, vectors, scales, rank, false);
        let fingerprint = basis.fingerprint();
        Ok(Some(Rotation { fingerprint, rank, embedded, basis: Some(Arc::new(basis)) }))
    }
}
