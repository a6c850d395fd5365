//! The bases of a codec on a device.

use tenfold::Effort;
use tenfold::prepare::Fingerprint;
use tenfold_cuda::{Buffer, Device, DeviceBasis};

use crate::error::Result;
use crate::page::{BasisPart, Chain, PageCodec};

/// What a device needs to read and make the pages of a codec.
#[derive(Debug)]
pub struct DevicePages {
    pub(super) device: Device,
    pub(super) groups: Vec<DeviceGroup>,
    pub(super) effort: Effort,
    /// Tokens at a page's start and end that stay exact.
    pub(super) exact: (usize, usize),
}

/// A group of layers.
#[derive(Debug)]
pub(super) struct DeviceGroup {
    pub layers: usize,
    /// Bases of keys and of values; the whole ones first.
    pub sides: [Vec<(Fingerprint, DeviceBasis)>; 2],
    /// What pages choose from; nothing where there is no basis.
    pub choices: [Vec<DeviceChoice>; 2],
    /// Factors on their steps.
    pub steps: [f64; 2],
    /// Whether keys have rotary positions.
    pub turned: bool,
}

/// A basis that pages can have.
#[derive(Debug)]
pub(super) struct DeviceChoice {
    /// Its number among those of its side.
    pub whole: usize,
    /// That of a part of it, and which vectors the part lacks, a byte each.
    pub part: Option<(usize, Buffer)>,
}

impl DevicePages {
    /// Copies the bases of a codec to a device: a few megabytes for each group of layers. Fails if there is no cuBLAS.
    pub fn new(device: &Device, codec: &PageCodec) -> Result<DevicePages> {
        let group = |group: &crate::page::Group| {
            let ((keys, of_keys), (values, of_values)) =
                (side(device, &group.keys)?, side(device, &group.values)?);
            Ok(DeviceGroup {
                layers: group.layers,
                sides: [keys, values],
                choices: [of_keys, of_values],
                steps: [group.keys.step, group.values.step],
                turned: group.keys.rope.is_some(),
            })
        };
        let groups = codec.groups().iter().map(group).collect::<Result<_>>()?;
        Ok(DevicePages { device: device.clone(), groups, effort: codec.effort(), exact: codec.exact() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Layers of a page.
    pub fn layers(&self) -> usize {
        self.groups.iter().map(|group| group.layers).sum()
    }

    /// Groups of layers.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }
}

/// Bases of keys or values on a device, and how pages choose among them.
#[allow(clippy::type_complexity)] // both are fields of one structure
fn side(device: &Device, chain: &Chain) -> Result<(Vec<(Fingerprint, DeviceBasis)>, Vec<DeviceChoice>)> {
    let mut bases = Vec::new();
    let mut add = |basis: &tenfold::prepare::Basis| -> Result<usize> {
        let mut made = DeviceBasis::new(device, basis).map_err(tenfold::Error::from)?;
        if let Some(rope) = &chain.rope {
            made = made.with_rope(rope).map_err(tenfold::Error::from)?;
        }
        bases.push((basis.fingerprint(), made));
        Ok(bases.len() - 1)
    };
    let mut choices = Vec::new();
    for choice in &chain.bases {
        let whole = add(&choice.basis)?;
        let lacks = |part: &BasisPart| {
            let mut lacks = vec![0u8; choice.basis.rank()];
            part.without.iter().for_each(|range| lacks[range.clone()].fill(1));
            Buffer::from_slice(device, &lacks).map_err(tenfold::Error::from)
        };
        let part = match &choice.part {
            Some(part) => Some((add(&part.basis)?, lacks(part)?)),
            None => None,
        };
        choices.push(DeviceChoice { whole, part });
    }
    Ok((bases, choices))
}
