//! Lossy blobs of a matrix whose errors are fed back along its columns: the passes of `levels`, but that each finds levels column by
//! column, and feeds what a panel of columns is off by to those behind it, as a product of matrices.

use tenfold::calibrated::Order;

use super::levels::Encoder;
use super::rate::{self, Passes};
use super::{Batch, Call, EncodeRequest, Planning, levels};
use crate::abi::{
    self, FEED_AHEAD, FEED_PANEL, FEED_SCALAR_SHARED, FEED_SCALAR_THREADS, FEED_STEPS, FEED_THREADS,
    FEED_TRELLIS_SHARED, FEED_WIDE_SHARED, FeedArgs, Kernel, SEARCH_SHARED,
};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Product, Shape, Stream, Strides};
use crate::error::{Error, Result};
use crate::pieces::{Pieces, bytes_of};
use crate::prepare::PRODUCT_BYTES;

/// Values a lane where the caller leaves them to the encoder, and values from which on it is twice as many. Such blobs are made once and
/// small: lanes are as long as the CPU's.
const LANE: u32 = 2048;
const MANY: usize = 1 << 22;
/// Shared memory that kernels take beside what they are given, and the system of each block.
const STATIC: u32 = 1 << 10;
/// Words of decisions that a step of a lane takes in a wide trellis.
const WIDE_WORDS: usize = 8;

/// Columns that answer to each other's errors, and how: in row k, what an error of one in column j < k adds to column k.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FedBlock {
    pub first: usize,
    pub cols: usize,
    pub feed: DeviceSlice,
}

/// A weighted matrix on a device, and the memory that feeding takes.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    /// The matrix as it is; with errors it is the request's tensor.
    pub values: DeviceSlice,
    pub blocks: &'a [FedBlock],
    pub outputs: usize,
    pub inputs: usize,
    pub order: Order,
    /// As [`Feed::room_len`] says.
    pub room: DeviceSlice,
}

/// Where feeding has its memory.
struct Room {
    errors: DeviceSlice,
    states: DeviceSlice,
    path: DeviceSlice,
    decisions: DeviceSlice,
    scratch: DeviceSlice,
}

/// Values a lane of a matrix of so many.
pub(crate) fn lane_values(asked: u32, values: usize) -> u32 {
    match asked {
        0 if values >= MANY => 2 * LANE,
        0 => LANE,
        asked => asked,
    }
}

impl Feed<'_> {
    /// Bytes of each piece of memory: errors, states, ways, decisions, and what products take.
    fn lens(outputs: usize, nu: u32) -> Result<[usize; 5]> {
        // A lane may be alone in its tile.
        let steps = outputs + (FEED_AHEAD * nu) as usize + 4;
        let long = if nu > 0 && steps > FEED_STEPS as usize { steps.div_ceil(4) } else { 0 };
        let wide = if nu > 3 { steps * WIDE_WORDS } else { 0 };
        Ok([
            bytes_of(outputs, FEED_PANEL as usize, size_of::<f32>())?,
            32 * size_of::<u32>(),
            bytes_of(long, 32, size_of::<u32>())?,
            bytes_of(wide, 32, size_of::<u32>())?,
            PRODUCT_BYTES,
        ])
    }

    /// Bytes of room for a matrix of so many outputs, at an effort.
    pub(crate) fn room_len(outputs: usize, nu: u32) -> Result<usize> {
        let mut pieces = Pieces::default();
        for len in Feed::lens(outputs, nu)? {
            pieces.take(len);
        }
        Ok(pieces.at)
    }

    fn room(&self, nu: u32) -> Result<Room> {
        let mut pieces = Pieces::default();
        let [errors, states, path, decisions, scratch] = Feed::lens(self.outputs, nu)?;
        let mut take = |len: usize| self.room.part(pieces.take(len), len);
        Ok(Room {
            errors: take(errors)?,
            states: take(states)?,
            path: take(path)?,
            decisions: take(decisions)?,
            scratch: take(scratch)?,
        })
    }

    /// Queues all columns by the plan as it then is, which leaves the tensor with the errors that were fed to it.
    ///
    /// # Safety
    /// As for [`encode_fed`].
    unsafe fn queue(&self, encoder: &Encoder<'_>) -> Result<()> {
        let (device, stream, fed) = (encoder.device, encoder.stream, encoder.pass.encoding.data);
        let nu = encoder.pass.encoding.nu;
        let room = self.room(nu)?;
        // SAFETY: the caller's; both are as long.
        unsafe {
            device.driver.copy(fed.first.get(), self.values.address, self.values.len, stream)?;
        }
        let narrow = |v: usize| {
            u32::try_from(v)
                .map_err(|_| Error::InvalidArgument("a matrix with more columns than a device feeds".into()))
        };
        let (outputs, turned) = (narrow(self.outputs)?, self.order == Order::Columns);
        let warps = FEED_SCALAR_THREADS / 32;
        let (scalar, one) = (
            Shape::new(outputs.div_ceil(32 * warps), FEED_SCALAR_THREADS, 0),
            Shape::new(1, FEED_THREADS, 0),
        );
        for block in self.blocks {
            let block_end = block.first + block.cols;
            for first in (block.first..block_end).step_by(FEED_PANEL as usize) {
                let end = block_end.min(first + FEED_PANEL as usize);
                let args = FeedArgs {
                    levels: encoder.pass,
                    values: self.values.into(),
                    fed: fed.first.get().into(),
                    errors: room.errors.into(),
                    feed: block.feed.into(),
                    feed_cols: block.cols as u64,
                    states: room.states.into(),
                    decisions: room.decisions.into(),
                    path: room.path.into(),
                    block: narrow(block.first)?,
                    block_end: narrow(block_end)?,
                    first: narrow(first)?,
                    end: narrow(end)?,
                    outputs,
                    inputs: narrow(self.inputs)?,
                    turned: turned as u32,
                    unused: 0,
                };
                let launch = |kernel: Kernel<FeedArgs>, shape: Shape, shared: u32| {
                    let shape = Shape { shared: SEARCH_SHARED as u32 + shared, ..shape };
                    // SAFETY: the caller's.
                    unsafe { device.launch(kernel, shape, &args, stream) }
                };
                // Which machine is in use only the device knows: a plan may fall back to a scalar quantiser.
                launch(abi::feed_scalar, scalar, FEED_SCALAR_SHARED)?;
                match nu {
                    0 => {}
                    1..=3 => launch(abi::feed_trellis, one, FEED_TRELLIS_SHARED)?,
                    _ => launch(abi::feed_wide, one, FEED_WIDE_SHARED)?,
                }
                if end < block_end {
                    let product = self.product(block, first, end, &room, fed.first.get());
                    // SAFETY: the caller's; errors and values do not overlap.
                    unsafe { device.driver.multiply(&product, stream)? };
                }
            }
        }
        Ok(())
    }

    /// What the columns behind a panel answer to its errors.
    fn product(&self, block: &FedBlock, first: usize, end: usize, room: &Room, fed: u64) -> Product {
        let at = |address: u64, i: usize| address + (i * size_of::<f32>()) as u64;
        let feed = at(block.feed.address, (end - block.first) * block.cols + first - block.first);
        let (inner, behind) = (end - first, block.first + block.cols - end);
        let panel = FEED_PANEL as usize;
        let product = Product { inner, workspace: room.scratch, added: Some(1.0), ..Product::NONE };
        match self.order {
            Order::Columns => Product {
                left: feed,
                right: room.errors.address,
                to: at(fed, end * self.outputs),
                rows: behind,
                columns: self.outputs,
                strides: Some(Strides { left: block.cols, right: self.outputs, to: self.outputs }),
                ..product
            },
            Order::Rows => Product {
                left: room.errors.address,
                right: feed,
                to: at(fed, end),
                rows: self.outputs,
                columns: behind,
                strides: Some(Strides { left: panel, right: block.cols, to: self.inputs }),
                turned: true,
                ..product
            },
        }
    }
}

/// Refuses what a block has too little shared memory for.
fn check_shared(device: &Device, nu: u32) -> Result<()> {
    let more = match nu {
        0 => FEED_SCALAR_SHARED,
        1..=3 => FEED_SCALAR_SHARED.max(FEED_TRELLIS_SHARED),
        _ => FEED_WIDE_SHARED,
    };
    let (need, have) = (SEARCH_SHARED as u32 + more + STATIC, device.properties().shared_per_block);
    if need > have {
        return Err(Error::NoDevice(format!(
            "feedback at this effort takes {need} bytes of shared memory, and a block of this device has {have}: ask for a lower effort, or use the CPU"
        )));
    }
    Ok(())
}

/// Bytes of workspace that [`encode_fed`] needs beside the room for feeding.
pub(crate) fn fed_workspace_len(device: &Device, request: &EncodeRequest) -> Result<usize> {
    let values = request.check()?;
    Ok(levels::workspace_len(device, request, values, Batch::ONE, Planning::Each)?.0)
}

/// Encodes a matrix, feeding errors back; for a caller who waits, as [`super::encode_waiting`] has it. The request is for working values, in
/// memory that is written.
///
/// # Safety
/// As for [`super::encode`].
pub(crate) unsafe fn encode_fed(
    device: &Device,
    request: &EncodeRequest,
    feed: &Feed<'_>,
    (status, workspace): (DeviceSlice, DeviceSlice),
    stream: Stream,
    wants_more: &dyn Fn() -> Result<bool>,
) -> Result<()> {
    let values = request.check()?;
    let (batch, planning, wants_more) = (Batch::ONE, Planning::Each, Some(wants_more));
    let call = Call { device, request, values, batch, status, workspace, stream, planning, wants_more };
    let nu = request.options.effort.log2_states() as u32;
    check_shared(device, nu)?;
    let encoder = Encoder::new(&call, nu)?;
    let (encoding, places) = (&encoder.pass.encoding, encoder.places);
    // SAFETY: the caller's; the pieces of the workspace do not overlap.
    unsafe {
        // 1. A plan for the matrix itself. What is really quantised is the matrix with the errors that are fed to it.
        device.driver.copy(request.tensor.address, feed.values.address, feed.values.len, stream)?;
        encoder.open()?;
        rate::queue_plan(device, encoding, places, stream)?;
        encoder.begin()?;
        feed.queue(&encoder)?;
        // 2. Classes, costs and step are for that.
        encoder.open()?;
        rate::queue_plan(device, encoding, places, stream)?;
        // 3. Passes over all of it, until one reaches the goal.
        let passes = Passes::for_goal(encoding.goal).all;
        for pass in 0..passes {
            encoder.pass_by(|| feed.queue(&encoder))?;
            rate::queue_judge(device, encoding, places, pass, stream)?;
            if pass + 1 < passes {
                encoder.close(true)?;
                if let Some(false) = wants_more.map(|more| more()).transpose()? {
                    return Ok(());
                }
            }
        }
        encoder.close(false)
    }
}
