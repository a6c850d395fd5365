//! nvCOMP's ANS on the tensors of the lossless figures: the peer on a device.
//!
//! The library is NVIDIA's, closed, and not a part of this project: it is loaded from where the user says, and the
//! few functions that are needed are declared here by hand. Every setting is measured with every way to decompress;
//! all of them are in the report, the fastest ones in the table.

mod error;
mod ffi;
mod library;
mod packing;
mod setting;

use anyhow::Result;
use tenfold::Dtype;
use tenfold_cuda::{Error, lane_values};

pub use error::NvcompError;
pub(super) use library::Nvcomp;

use super::decode::gaussian;
use super::rig::{Rig, Times};
use super::show::{About, Figure, Figures};
use packing::Packing;
use setting::{Setting, Way};

/// How to get the rows that are not there.
pub(super) const HOW: &str = "nvCOMP is not in the table: pip download --no-deps nvidia-libnvcomp-cu13==6.0.0.12, \
                              unzip the wheel, and add --nvcomp nvidia/libnvcomp/lib64/libnvcomp.so.6";

/// Settings that are measured at each size.
pub(super) fn settings() -> usize {
    Setting::all().len()
}

/// Measures every setting on a tensor of at least `size` values. `step` is told what comes next.
pub(super) fn measure(
    rig: &Rig,
    library: &Nvcomp,
    size: usize,
    figures: &mut Figures<'_>,
    step: &dyn Fn(String),
) -> Result<()> {
    let tensor = gaussian(size, lane_values(size as u64))?;
    let times = size.div_ceil(tensor.view()?.len()).max(1);
    let mut best = Best::default();
    for setting in Setting::all() {
        let what = format!("nvCOMP, {size} values, {}", setting.name());
        step(what.clone());
        match one(rig, library, setting, (&tensor.data, times), figures, &mut best) {
            Err(error) if is_refusal(&error) => figures.note(format!("{what}: left out: {error}")),
            other => other?,
        }
    }
    best.show(size, figures)
}

/// The fewest bytes that nvCOMP's ANS makes of some, with what made them, and the times of getting them back; nothing if no setting takes them.
/// Chunks are of 64 KiB, as the headers advise.
pub(super) fn fewest(rig: &Rig, library: &Nvcomp, bytes: &[u8]) -> Result<Option<(usize, String, Times)>> {
    let mut best: Option<(usize, String, Times)> = None;
    for setting in Setting::all().into_iter().filter(|s| s.chunk == 64 << 10 && s.sampled == 0) {
        let one = || -> Result<(usize, Times)> {
            let packing = Packing::new(rig, library, setting, bytes, 1)?;
            let (_, packed) = packing.compress()?;
            Ok((packed, packing.decompress(Way::Named, bytes)?))
        };
        match one() {
            Err(error) if is_refusal(&error) => continue,
            Err(error) => return Err(error),
            Ok((packed, times)) if best.as_ref().is_none_or(|(least, ..)| packed < *least) => {
                best = Some((packed, setting.name(), times));
            }
            Ok(_) => {}
        }
    }
    Ok(best)
}

/// Measures one setting: `tensor` is bytes and how often they come.
fn one(
    rig: &Rig,
    library: &Nvcomp,
    setting: Setting,
    tensor: (&[u8], usize),
    figures: &mut Figures<'_>,
    best: &mut Best,
) -> Result<()> {
    let (once, times) = tensor;
    let packing = Packing::new(rig, library, setting, once, times)?;
    let (compressing, packed) = packing.compress()?;
    let bytes = once.len() * times;
    let values = bytes / Dtype::Bf16.size();
    let about = About {
        tensor: "N(0, 0.02)".to_string(),
        values,
        states: None,
        classes: None,
        bits: packed as f64 * 8.0 / values as f64,
        ratio: bytes as f64 / packed as f64,
        nmse: None,
    };
    let mut keep = |kind: Kind, what: String, times: Times| -> Result<()> {
        let figure = Kept { what, about: about.clone(), times };
        figures.file(&figure.figure())?;
        best.offer(kind, figure);
        Ok(())
    };
    keep(Kind::Compress, format!("nvCOMP compress, {}", setting.name()), compressing)?;
    let mut refused = Vec::new();
    for way in Way::ALL {
        let what = format!("nvCOMP decompress, {}, {}", setting.name(), way.name());
        let times = match packing.decompress(way, once) {
            Err(error) if is_refusal(&error) => {
                refused.push(format!("{what}, {values} values: left out: {error}"));
                continue;
            }
            other => other?,
        };
        let kind = if way == Way::Unchecked { Kind::Unchecked } else { Kind::Decompress };
        keep(kind, what, times)?;
    }
    refused.into_iter().for_each(|note| figures.note(note));
    Ok(())
}

/// Whether a setting was refused, or has no room: no reason to lose what was measured before. Bytes that came back
/// different and a lost device are.
fn is_refusal(error: &anyhow::Error) -> bool {
    use NvcompError::{Alignment, Chunks, Refused};
    matches!(error.downcast_ref(), Some(Alignment(_) | Chunks { .. } | Refused { .. }))
        || matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. }))
}

/// What is compared with what.
#[derive(Clone, Copy)]
enum Kind {
    Compress,
    Decompress,
    Unchecked,
}

/// A figure that may be shown later.
struct Kept {
    what: String,
    about: About,
    times: Times,
}

impl Kept {
    fn figure(&self) -> Figure<'_> {
        Figure { what: &self.what, subject: self.about.clone(), times: self.times.clone(), least: None }
    }
}

/// The fastest figure of each kind so far, and the smallest size.
#[derive(Default)]
struct Best {
    fastest: [Option<Kept>; 3],
    smallest: Option<(f64, String)>,
}

impl Best {
    fn offer(&mut self, kind: Kind, kept: Kept) {
        if self.smallest.as_ref().is_none_or(|s| kept.about.bits < s.0) {
            self.smallest = Some((kept.about.bits, kept.what.clone()));
        }
        let fastest = &mut self.fastest[kind as usize];
        if fastest.as_ref().is_none_or(|best| kept.times.median() < best.times.median()) {
            *fastest = Some(kept);
        }
    }

    fn show(self, size: usize, figures: &mut Figures<'_>) -> Result<()> {
        for kept in self.fastest.iter().flatten() {
            figures.show(&kept.figure(), "fastest");
        }
        if let Some((bits, what)) = self.smallest {
            figures.note(format!("the smallest of nvCOMP's, {size} values: {bits:.3} bits, {what}"));
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "emulator"))]
mod standin;
#[cfg(test)]
mod tests;
