//! Lossy blobs by a plan that the host gives, for tests of what comes after planning: every machine and every number
//! of classes and low bits, whatever a search would choose.

use tenfold::format::{MAX_CLASSES, OFFSETS};

use super::levels::Encoder;
use super::{Batch, Call, EncodeRequest, Planning};
use crate::abi::{
    self, LAMBDA_SCALAR, LAMBDA_TRELLIS, LevelsFixed, PAIR_CLASSES, PASS_THREADS, SCALAR_MAX_U, TRELLIS_MAX_U,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};

/// A plan. Costs are guessed for the first pass and measured for later ones.
#[derive(Debug, Clone)]
pub struct FixedPlan {
    /// log2 of the trellis's states, 0 for a scalar quantiser.
    pub nu: u32,
    /// The step, in the tensor's own units.
    pub step: f64,
    /// To the nearest level, with every error checked against this.
    pub bound: Option<f64>,
    /// Reconstruction offsets of multiples 1, 2, …
    pub offsets: [i8; OFFSETS],
    /// Low bits of each class; as many as there are classes.
    pub low: Vec<u8>,
    /// Smallest sum of scales of class 1, 2, …
    pub thresholds: Vec<u8>,
    /// Values of a row of the class map.
    pub width: u64,
    /// Rows of the class map.
    pub rows: u64,
    /// Where the rows' scales are on the device, a byte each, and the bits of one; 0 for none.
    pub row_scales: (u64, u32),
    /// Likewise for columns.
    pub col_scales: (u64, u32),
    /// log2 of the sum of frequencies.
    pub log: u32,
    /// Whether levels are coded in pairs; there is an even number of values then, and no low bits.
    pub paired: bool,
    /// Passes over the tensor.
    pub passes: u32,
}

fn values(request: &EncodeRequest) -> usize {
    request.shape.iter().product()
}

/// Bytes of workspace that [`encode_fixed`] needs.
pub fn fixed_workspace_len(device: &Device, request: &EncodeRequest, plan: &FixedPlan) -> Result<usize> {
    Ok(Encoder::len(device, request, values(request), Batch::ONE, plan.nu, Planning::Each)?.0)
}

/// Queues the encoding of a tensor by a plan.
///
/// # Safety
/// As for [`super::encode`].
pub unsafe fn encode_fixed(
    device: &Device,
    request: &EncodeRequest,
    plan: &FixedPlan,
    status: DeviceSlice,
    workspace: DeviceSlice,
    stream: Stream,
) -> Result<()> {
    let (values, batch, planning) = (values(request), Batch::ONE, Planning::Each);
    let call = Call { device, request, values, batch, status, workspace, stream, planning, wants_more: None };
    if plan.paired
        && (plan.low.len() > PAIR_CLASSES || plan.low.iter().any(|&low| low > 0) || values % 2 == 1)
    {
        let why =
            format!("pairs take at most {PAIR_CLASSES} classes, no low bits and an even number of values");
        return Err(Error::InvalidArgument(why));
    }
    let encoder = Encoder::new(&call, plan.nu)?;
    let (max_u, lambda) = match plan.nu {
        0 => (SCALAR_MAX_U, LAMBDA_SCALAR),
        _ => (TRELLIS_MAX_U, LAMBDA_TRELLIS),
    };
    let mut args = LevelsFixed {
        plan: encoder.pass.plan,
        counts: encoder.pass.counts,
        step: plan.step,
        bound: plan.bound.unwrap_or(0.0),
        width: plan.width,
        rows: plan.rows,
        row_scale: plan.row_scales.0,
        col_scale: plan.col_scales.0,
        dtype: request.dtype.id() as u32,
        nu: plan.nu,
        bounded: plan.bound.is_some() as u32,
        classes: plan.low.len() as u32,
        row_bits: plan.row_scales.1,
        col_bits: plan.col_scales.1,
        log: plan.log,
        paired: plan.paired as u32,
        max_u,
        lambda,
        offsets: [0; 16],
        thresholds: [0; MAX_CLASSES],
        low: [0; MAX_CLASSES],
    };
    args.offsets[1..].iter_mut().zip(plan.offsets).for_each(|(to, from)| *to = from as i32);
    args.thresholds.iter_mut().zip(&plan.thresholds).for_each(|(to, &from)| *to = from);
    args.low.iter_mut().zip(&plan.low).for_each(|(to, &from)| *to = from);
    let shape = |block| Shape::new(1, block, 0);
    // SAFETY: the caller's.
    unsafe {
        encoder.open()?;
        device.launch(abi::levels_fixed_plan, shape(PASS_THREADS), &args, stream)?;
        for pass in 0..plan.passes {
            if pass > 0 {
                device.launch(abi::levels_fixed_costs, shape(32), &args, stream)?;
            }
            encoder.pass()?;
        }
        encoder.close(false)
    }
}
