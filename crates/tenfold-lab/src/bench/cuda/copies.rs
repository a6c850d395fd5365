//! Ceilings: plain copies, measured in the same run.

use anyhow::Result;
use tenfold_cuda::Pinned;

use super::rig::Rig;
use super::show::Figures;

/// GB/s of copies.
pub(super) struct Copies {
    /// From pinned host memory to the device.
    pub link: f64,
}

/// Copies so many bytes on the device, and a quarter of that to it.
pub(super) fn measure(rig: &Rig, bytes: usize, figures: &mut Figures<'_>) -> Result<Copies> {
    let on_device = rig.time_copy(bytes)?;
    figures.copy("copy on the device, bytes read and written", 2 * bytes, &on_device)?;
    let pinned = Pinned::new(&rig.device, bytes / 4)?;
    let link = rig.time_copy_in(&pinned)?;
    let link = figures.copy("copy from pinned host memory", bytes / 4, &link)?;
    Ok(Copies { link })
}
