//! Fingerprints of tensors on a device, as deltas name them: the device hashes, and some bytes come to the host.

use tenfold::delta::{self, Fingerprint};
use tenfold::{Dtype, TensorView};

use crate::abi::{self, FINGERPRINT_BEFORE, FINGERPRINT_THREADS, FingerprintArgs, Kernel};
use crate::device::{Device, DeviceSlice};
use crate::driver::{Shape, Stream};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::pieces::{Pieces, too_large};

/// Bytes of a chunk and of a node.
const CHUNK: u64 = 1024;
const NODE: usize = 32;
/// Nodes that a thread of the host merges in less time than another launch takes.
const FEW: u64 = 64;

/// The fingerprints of tensors on a device: of dtype, shape and every byte, as [`delta::fingerprint`] makes them. Waits for the stream, and
/// takes some memory of the device meanwhile: 33 bytes for each 256 KiB.
///
/// # Safety
/// The tensors are memory of this device, which nobody writes until this has returned but work that is on the stream already.
pub unsafe fn fingerprints(
    device: &Device,
    tensors: &[(DeviceSlice, Dtype, &[usize])],
    stream: Stream,
) -> Result<Vec<Fingerprint>> {
    let mut pieces = Pieces::default();
    let plans: Vec<Plan> = tensors.iter().map(|one| Plan::new(one, &mut pieces)).collect::<Result<_>>()?;
    let memory = Buffer::new(device, pieces.at.max(1))?;
    for plan in &plans {
        // SAFETY: the caller's; nodes have the room that was taken for them.
        unsafe { plan.launch(device, memory.slice(), stream)? };
    }
    let mut nodes = vec![0; pieces.at];
    memory.read(&mut nodes, stream)?;
    // SAFETY: the caller's.
    plans.iter().map(|plan| unsafe { plan.finish(device, &nodes, stream) }).collect()
}

/// One tensor.
struct Plan<'a> {
    tensor: DeviceSlice,
    dtype: Dtype,
    shape: &'a [usize],
    before: Vec<u8>,
    /// What the kernels merge, one after the other; nothing for a tensor of one chunk.
    passes: Vec<Pass>,
}

/// One launch: how many chunks or nodes it takes, and where those that it makes are.
struct Pass {
    count: u64,
    levels: u32,
    to: usize,
    made: u64,
}

impl Pass {
    fn new(count: u64, pieces: &mut Pieces) -> Result<Pass> {
        // The last two are the host's: their parent is the root, which is hashed otherwise.
        let levels = (u64::BITS - (count - 1).leading_zeros() - 1).min(FINGERPRINT_THREADS.ilog2());
        let made = count.div_ceil(1 << levels);
        let len = usize::try_from(made).ok().and_then(|made| made.checked_mul(NODE)).ok_or_else(too_large)?;
        Ok(Pass { count, levels, to: pieces.take(len), made })
    }
}

impl<'a> Plan<'a> {
    fn new(
        &(tensor, dtype, shape): &(DeviceSlice, Dtype, &'a [usize]),
        pieces: &mut Pieces,
    ) -> Result<Plan<'a>> {
        let values = shape.iter().try_fold(1usize, |all, &d| all.checked_mul(d));
        if values.and_then(|values| values.checked_mul(dtype.size())) != Some(tensor.len) {
            let len = tensor.len;
            return Err(Error::InvalidArgument(format!(
                "a tensor of {dtype} and shape {shape:?} has not {len} bytes"
            )));
        }
        let before = delta::fingerprint_head(dtype, shape);
        if before.len() > 4 * FINGERPRINT_BEFORE {
            return Err(Error::InvalidArgument(format!("a tensor of {} dimensions", shape.len())));
        }
        let mut passes: Vec<Pass> = Vec::new();
        let mut count = (before.len() as u64 + tensor.len as u64).div_ceil(CHUNK);
        while count > 1 && (passes.is_empty() || count > FEW) {
            let pass = Pass::new(count, pieces)?;
            count = pass.made;
            passes.push(pass);
        }
        Ok(Plan { tensor, dtype, shape, before, passes })
    }

    unsafe fn launch(&self, device: &Device, memory: DeviceSlice, stream: Stream) -> Result<()> {
        let mut before = [0u32; FINGERPRINT_BEFORE];
        for (word, bytes) in before.iter_mut().zip(self.before.chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_le_bytes(four);
        }
        let (mut from, mut kernel): (_, Kernel<FingerprintArgs>) = (self.tensor, abi::fingerprint_chunks);
        for pass in &self.passes {
            let to = memory.part(pass.to, pass.made as usize * NODE)?;
            let args = FingerprintArgs {
                from: from.into(),
                to: to.into(),
                len: from.len as u64,
                count: pass.count,
                before,
                before_len: self.before.len() as u32,
                levels: pass.levels,
            };
            let blocks =
                u32::try_from(pass.count.div_ceil(FINGERPRINT_THREADS.into())).map_err(|_| too_large())?;
            // SAFETY: the caller's.
            unsafe { device.launch(kernel, Shape::new(blocks, FINGERPRINT_THREADS, 0), &args, stream)? };
            (from, kernel) = (to, abi::fingerprint_nodes);
        }
        Ok(())
    }

    /// From what the kernels made.
    unsafe fn finish(&self, device: &Device, nodes: &[u8], stream: Stream) -> Result<Fingerprint> {
        if let Some(last) = self.passes.last() {
            let nodes = nodes[last.to..].chunks_exact(NODE).take(last.made as usize);
            return Ok(delta::fingerprint_of_nodes(nodes.filter_map(|node| node.try_into().ok()).collect()));
        }
        let mut bytes = vec![0; self.tensor.len];
        if !bytes.is_empty() {
            // SAFETY: the caller's; lengths agree, and `bytes` outlives the wait.
            unsafe { device.driver.copy_out(bytes.as_mut_ptr(), self.tensor.address, bytes.len(), stream)? };
            device.driver.synchronize(stream)?;
        }
        Ok(delta::fingerprint(&TensorView::new(self.dtype, self.shape, &bytes)?))
    }
}
