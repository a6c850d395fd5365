//! Blobs on the device to tensors on the device.

use anyhow::{Context, Result};
use tenfold::prepare::Preparation;
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal, Tensor};
use tenfold_cuda::{DecodeSettings, Order, lane_values};

use super::repeat::repeat;
use super::rig::{Decoding, Rig, Times};
use crate::synth;

/// Values that the CPU encodes; larger tensors repeat them.
pub(super) const BASE: usize = 4 << 20;
/// Columns of made-up tensors, as of a real layer.
const COLUMNS: usize = 4096;

/// A blob to decode, with what it decodes to.
pub(super) struct Subject {
    /// What the tensor is.
    pub name: String,
    /// Values of the whole tensor.
    pub values: usize,
    pub blob: Vec<u8>,
    /// What the tensor consists of, over and over, as the CPU decodes it.
    pub once: Vec<u8>,
    pub states: Option<u32>,
    pub classes: Option<u32>,
    /// The order of values that is wanted, which `once` has.
    pub order: Order,
}

impl Subject {
    /// At least `size` values of N(0, 0.02) in bf16.
    pub fn gaussian(size: usize, goal: Goal, effort: Effort, threads: usize) -> Result<Subject> {
        Subject::in_lanes(size, lane_values(size as u64), goal, effort, threads)
    }

    /// The same with lanes of so many values.
    pub fn in_lanes(size: usize, lanes: u32, goal: Goal, effort: Effort, threads: usize) -> Result<Subject> {
        let tensor = gaussian(size, lanes)?;
        let options = options(size, goal, effort, threads).with_lane_values(lanes);
        Subject::new("N(0, 0.02)".to_string(), &tensor, size, options)
    }

    /// A tensor of whole tiles, encoded on the CPU and repeated to at least `size` values.
    pub fn new(name: String, tensor: &Tensor, size: usize, options: EncodeOptions) -> Result<Subject> {
        let view = tensor.view()?;
        let blob = tenfold::encode(&view, &options)?;
        let once = tenfold::decode(&blob, &DecodeOptions::default().with_threads(options.threads))?.data;
        let info = tenfold::inspect(&blob)?;
        let times = size.div_ceil(view.len()).max(1);
        Ok(Subject {
            name,
            values: view.len() * times,
            blob: repeat(&blob, times)?,
            once,
            states: info.states,
            classes: info.classes,
            order: Order::Tensor,
        })
    }

    /// Bytes of the tensor.
    pub fn bytes(&self) -> usize {
        self.values * Dtype::Bf16.size()
    }

    pub fn ratio(&self) -> f64 {
        self.bytes() as f64 / self.blob.len() as f64
    }
}

/// What a tensor of `size` values consists of, over and over: whole tiles, with lanes of so many values, of N(0, 0.02)
/// in bf16.
pub(super) fn gaussian(size: usize, lanes: u32) -> Result<Tensor> {
    let values = size.min(BASE).next_multiple_of(tenfold::format::MAX_LANES * lanes as usize);
    synth::gaussian(Dtype::Bf16, &[values / COLUMNS, COLUMNS], 0.02, 5).context("bf16 is a float")
}

/// Options of blobs that are meant for a device: long lanes where there are enough of them, and no transforms.
pub(super) fn options(size: usize, goal: Goal, effort: Effort, threads: usize) -> EncodeOptions {
    EncodeOptions::new(goal)
        .with_effort(effort)
        .with_threads(threads)
        .with_lane_values(lane_values(size as u64))
        .with_prepare(Preparation::None)
}

/// Values of a tile of such blobs.
pub(super) fn tile_values(size: usize) -> usize {
    tenfold::format::MAX_LANES * lane_values(size as u64) as usize
}

/// Decodes again and again, with the checksums of tiles or without; the outputs are held against the CPU's.
pub(super) fn measure(rig: &Rig, subject: &Subject, checksums: bool) -> Result<Times> {
    let settings = DecodeSettings::default().with_checksums(checksums);
    let out = (Dtype::Bf16, subject.order, subject.bytes());
    let decoding = Decoding::new(rig, &subject.blob, out, settings)?;
    let times = decoding.time()?;
    decoding.check(&subject.once)?;
    Ok(times)
}
