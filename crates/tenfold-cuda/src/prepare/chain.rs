//! Chains of transforms: what a device is told of one, and the memory that it works in.

use tenfold::prepare::Transform;
use tenfold::{Dtype, format};

use super::link::Link;
use super::pages::{PRODUCT_BYTES, pack_scales};
use crate::abi::ChainKept;
use crate::device::{Device, DeviceSlice};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::pieces::{Pieces, bytes_of};

/// A chain of transforms on a device, for tensors of one dtype and shape.
///
/// A transposition is undone only. Weights, means and differences give the same bits as on the CPU. Hadamard, DCT and rotary positions agree with it within
/// 2^-18 (f64: 2^-40) of the largest magnitude that a value is made of, a basis within 2^-16 of the sum of magnitudes, as
/// docs/format.md has it.
pub struct DeviceChain {
    pub(super) device: Device,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Those that transforms see: behind a transposition, if there is one.
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) transposed: bool,
    /// Columns behind all transforms, and the most there are between any two.
    pub(super) width: usize,
    pub(super) most: usize,
    /// Rows that cannot be undone without each other.
    pub(super) group: usize,
    /// Columns before each.
    pub(super) links: Vec<(usize, Link)>,
    pub(super) kept: Option<(Buffer, u32)>,
    /// As the host has them, and as a header does.
    pub(super) transforms: Vec<Transform>,
    pub(super) stored: Buffer,
    /// Scales of the last step's columns: side by side, and a byte each.
    pub(super) scales: Option<(Buffer, Buffer)>,
}

impl std::fmt::Debug for DeviceChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let transforms: Vec<&str> = self.transforms.iter().map(Transform::name).collect();
        write!(f, "DeviceChain of {} for {} × {} values", transforms.join(" + "), self.rows, self.columns)
    }
}

/// Memory that a chain works in.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Two places for rows, and one for products.
    pub(super) here: DeviceSlice,
    pub(super) other: DeviceSlice,
    pub(super) scratch: DeviceSlice,
}

impl DeviceChain {
    /// Copies the numbers of transforms to a device, for tensors of this dtype and shape. Kept elements may be the first of the
    /// transforms: they are put back when the others are undone, and taken for zeros when they are done. Fails with
    /// [`Error::NoDevice`] where a basis needs cuBLAS and there is none.
    pub fn new(
        device: &Device,
        dtype: Dtype,
        shape: &[usize],
        transforms: &[Transform],
    ) -> Result<DeviceChain> {
        if !dtype.is_float() {
            return Err(Error::InvalidArgument(format!("{dtype} tensors have no transforms")));
        }
        // Refuses shapes whose size overflows.
        tenfold::format::max_encoded_len(dtype, shape)?;
        let mut columns = shape.last().copied().unwrap_or(1);
        let values = if shape.contains(&0) { 0 } else { shape.iter().product::<usize>() };
        let mut rows = values / columns.max(1);
        format::check_transforms(transforms, rows, columns)?;
        let transposed = transforms.contains(&Transform::Transposed);
        if transposed {
            std::mem::swap(&mut rows, &mut columns);
        }
        if u32::try_from(columns.max(if transposed { rows } else { 0 })).is_err() {
            return Err(Error::InvalidArgument(format!("{columns} columns are too many for a device")));
        }
        let wide = dtype == Dtype::F64;
        let (mut links, mut width, mut most) = (Vec::new(), columns, columns);
        for step in transforms {
            if let Some(link) = Link::new(device, step, width, wide)? {
                links.push((width, link));
            }
            width = step.width(width);
            most = most.max(width);
        }
        let kept = match transforms.first() {
            Some(Transform::Kept(kept)) => {
                let run = |(start, len, bits)| ChainKept { start, bits, len, unused: 0 };
                let runs: Vec<ChainKept> = kept.runs().map(run).collect();
                let count = u32::try_from(runs.len())
                    .map_err(|_| Error::InvalidArgument("more kept elements than a device takes".into()))?;
                Some((Buffer::from_values(device, &runs)?, count))
            }
            _ => None,
        };
        let scales = match transforms.last() {
            Some(Transform::Basis(b)) => b.basis().map(|b| b.scales()).filter(|s| !s.is_empty()),
            _ => None,
        };
        let scales = match scales {
            Some(s) => Some((Buffer::from_slice(device, &pack_scales(s))?, Buffer::from_slice(device, s)?)),
            None => None,
        };
        Ok(DeviceChain {
            device: device.clone(),
            dtype,
            shape: shape.to_vec(),
            rows,
            columns,
            transposed,
            width,
            most,
            group: transforms.iter().map(Transform::group).max().unwrap_or(1),
            links,
            kept,
            stored: Buffer::from_slice(device, &format::transforms(transforms)?)?,
            transforms: transforms.to_vec(),
            scales,
        })
    }

    /// The dtype of working values.
    pub(super) fn working_dtype(&self) -> Dtype {
        if self.dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 }
    }

    /// Bytes of the places for so many rows.
    pub(super) fn room_len(&self, rows: usize, forward: bool) -> Result<[usize; 3]> {
        let place = bytes_of(rows, self.most, self.working_dtype().size())?;
        let moves = |(_, link): &(usize, Link)| match link {
            Link::Basis { .. } => true,
            Link::Delta { .. } => forward,
            _ => false,
        };
        let other = if self.links.iter().any(moves) { place } else { 0 };
        // The library's products; those of f64 are a kernel of ours.
        let products = self.links.iter().any(|(_, l)| matches!(l, Link::Basis { .. }));
        let scratch = if products && self.dtype != Dtype::F64 { PRODUCT_BYTES } else { 0 };
        Ok([place, other, scratch])
    }

    pub(super) fn split_workspace(
        &self,
        workspace: DeviceSlice,
        pieces: &mut Pieces,
        rows: usize,
        forward: bool,
    ) -> Result<Room> {
        let [here, other, scratch] = self.room_len(rows, forward)?;
        let mut take = |len: usize| workspace.part(pieces.take(len), len);
        Ok(Room { here: take(here)?, other: take(other)?, scratch: take(scratch)? })
    }
}
