//! One step of a chain with its numbers on a device.

use tenfold::engine::ErrorKind;
use tenfold::prepare::{Axis, Dct, Positions, Rotation, Transform, Weights};

use super::rope::DeviceRope;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Buffer;

/// A step with its numbers on the device.
pub(super) enum Link {
    Weights {
        rows: bool,
        forward: Buffer,
        inverse: Buffer,
    },
    Means {
        values: Buffer,
    },
    Hadamard {
        log2: u32,
        signs: Buffer,
    },
    Dct {
        log2: u32,
        forward: Buffer,
        inverse: Buffer,
    },
    /// Where runs of rows start, and how many rows a run has.
    Rope {
        rope: DeviceRope,
        starts: Buffer,
        run: u64,
    },
    Delta {
        group: u32,
    },
    Basis {
        means: Buffer,
        vectors: Buffer,
        forward: Option<Buffer>,
        rank: usize,
        measured: bool,
    },
}

/// A DCT's matrices in the working precision.
fn upload_matrices(device: &Device, dct: &Dct, inverse: bool, wide: bool) -> Result<Buffer> {
    match wide {
        true => Buffer::from_values(device, &dct.matrices::<f64>(inverse).concat()),
        false => Buffer::from_values(device, &dct.matrices::<f32>(inverse).concat()),
    }
}

impl Link {
    /// A transform for a tensor with this many columns; `None` for kept elements and a transposition, which are
    /// not links of the chain.
    pub(super) fn new(device: &Device, step: &Transform, columns: usize, wide: bool) -> Result<Option<Link>> {
        Ok(Some(match step {
            Transform::Weights(w) => {
                let factors =
                    |of: fn(&Weights, usize) -> f32| (0..w.len()).map(|j| of(w, j)).collect::<Vec<f32>>();
                Link::Weights {
                    rows: w.axis() == Axis::Rows,
                    forward: Buffer::from_values(device, &factors(Weights::factor))?,
                    inverse: Buffer::from_values(device, &factors(Weights::inverse_factor))?,
                }
            }
            Transform::Means(m) => Link::Means { values: Buffer::from_values(device, m.values())? },
            Transform::Hadamard(h) => Link::Hadamard {
                log2: u32::from(h.log2()).min(columns.max(1).ilog2()),
                signs: Buffer::from_values(device, &h.signs::<f32>(columns))?,
            },
            Transform::Dct(d) => Link::Dct {
                log2: u32::from(d.log2()),
                forward: upload_matrices(device, d, false, wide)?,
                inverse: upload_matrices(device, d, true, wide)?,
            },
            Transform::Rope(r) => {
                // One run of all rows, or a run for each.
                let (starts, run) = match r.positions() {
                    Positions::From(first) => (vec![*first], u64::MAX),
                    Positions::List(list) => (list.clone(), 1),
                };
                let starts = Buffer::from_values(device, &starts)?;
                Link::Rope { rope: DeviceRope::new(device, r)?, starts, run }
            }
            Transform::Delta(d) => Link::Delta { group: d.group() as u32 },
            Transform::Basis(rotation) => Link::from_basis(device, rotation, wide)?,
            Transform::Kept(_) | Transform::Transposed => return Ok(None),
            _ => {
                let reason = format!("a device does not undo the transform {:?}; use the CPU", step.name());
                return Err(tenfold::Error::Engine { kind: ErrorKind::Unsupported, reason }.into());
            }
        }))
    }

    fn from_basis(device: &Device, rotation: &Rotation, wide: bool) -> Result<Link> {
        if !wide {
            device.driver.can_multiply()?;
        }
        let Some(basis) = rotation.basis() else {
            return Err(Error::InvalidArgument("the basis that a blob names is missing".into()));
        };
        let forward = match basis.can_encode() {
            true => Some(Buffer::from_values(device, basis.forward_columns())?),
            false => None,
        };
        Ok(Link::Basis {
            means: Buffer::from_values(device, basis.means())?,
            vectors: Buffer::from_values(device, basis.vectors())?,
            forward,
            rank: basis.rank(),
            measured: basis.is_orthonormal() && basis.rank() < basis.cols(),
        })
    }
}
