//! The bases of a codec on a device.

use tenfold::Effort;
use tenfold::prepare::Fingerprint;
use tenfold_cuda::{Device, DeviceBasis};

use crate::error::Result;
use crate::page::{Chain, PageCodec};

/// What a device needs to read the pages of a codec, which have groups of layers behind bases.
#[derive(Debug)]
pub struct DevicePages {
    pub(super) device: Device,
    pub(super) groups: Vec<DeviceGroup>,
    /// Why it makes no pages, if it does not.
    pub(super) reads_only: Option<&'static str>,
}

/// A group of layers.
#[derive(Debug)]
pub(super) struct DeviceGroup {
    pub layers: usize,
    /// Bases of keys and of values; the whole ones first.
    pub sides: [Vec<(Fingerprint, DeviceBasis)>; 2],
    /// Factors on their steps.
    pub steps: [f64; 2],
    /// Whether keys have rotary positions.
    pub turned: bool,
}

impl DevicePages {
    /// Copies the bases of a codec to a device: a few megabytes for each group of layers. Fails if there is no cuBLAS.
    pub fn new(device: &Device, codec: &PageCodec) -> Result<DevicePages> {
        let side = |chain: &Chain| -> Result<Vec<(Fingerprint, DeviceBasis)>> {
            let choices = chain.bases.iter();
            let bases = choices.flat_map(|c| [Some(&c.basis), c.part.as_ref().map(|p| &p.basis)]).flatten();
            let made = bases.map(|basis| {
                let mut made = DeviceBasis::new(device, basis).map_err(tenfold::Error::from)?;
                if let Some(rope) = &chain.rope {
                    made = made.with_rope(rope).map_err(tenfold::Error::from)?;
                }
                Ok((basis.fingerprint(), made))
            });
            made.collect()
        };
        let group = |group: &crate::page::Group| {
            Ok(DeviceGroup {
                layers: group.layers,
                sides: [side(&group.keys)?, side(&group.values)?],
                steps: [group.keys.step, group.values.step],
                turned: group.keys.rope.is_some(),
            })
        };
        let groups = codec.groups().iter().map(group).collect::<Result<_>>()?;
        let chains = || codec.groups().iter().flat_map(|group| [&group.keys, &group.values]);
        let reasons = [
            (chains().any(|chain| chain.bases.is_empty()), "pages without bases"),
            (chains().any(|chain| chain.bases.len() > 1), "pages that choose among bases"),
            (codec.exact() != (0, 0), "pages with exact tokens"),
            // They are made in the whole basis, where a trellis loses much on coordinates that are nearly all zero.
            (codec.effort() != Effort::Fast, "pages of another effort than fast"),
        ];
        let reads_only = reasons.into_iter().find(|(holds, _)| *holds).map(|(_, what)| what);
        Ok(DevicePages { device: device.clone(), groups, reads_only })
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
