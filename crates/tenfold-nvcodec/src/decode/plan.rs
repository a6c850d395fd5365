//! What a blob says, read and checked on the host, and what is left to do once its pictures are decoded.

use rayon::prelude::*;
use tenfold::engine::{Limits, threads};
use tenfold::format::Codec;
use tenfold::format::carry::Opened;
use tenfold::{DecodeOptions, Dtype};
use tenfold_cuda::{
    Buffer, Device, DeviceChain, DeviceSlice, Samples, Sharing, Specials, Stream, undo_chain,
    undo_chain_input, undo_chain_workspace_len,
};
use tenfold_video::params::{Meaning, PictureParams};
use tenfold_video::{Scaling, Standard};

use super::Output;
use crate::error::{Error, Result};

/// A blob, but for its pictures.
pub(super) struct Plan {
    pub standard: Standard,
    pub params: PictureParams,
    /// Checksum of each picture's samples.
    pub checks: Vec<u32>,
    /// Values that the pictures hold.
    pub values: usize,
    /// What samples mean; the numbers of parts are on the device.
    pub samples: Samples,
    _parts: Option<Buffer>,
    /// Where pictures are turned into: the tensor itself, or working values.
    pub to: DeviceSlice,
    pub dtype: Dtype,
    chain: Option<(DeviceChain, Buffer)>,
    specials: Option<Specials>,
}

/// Bytes of a blob that are worth more than one thread.
const MANY: usize = 1 << 20;

/// Bytes of the tensor of a blob.
pub(super) fn tensor_len(blob: &[u8], options: &DecodeOptions) -> Result<usize> {
    let opened = open(blob, &options.limits)?;
    let parcel = &opened.parcel;
    parcel.values().checked_mul(parcel.dtype.size()).ok_or_else(|| too_large().into())
}

fn too_large() -> tenfold::Error {
    tenfold::Error::InvalidArgument("the size in bytes overflows".into())
}

fn open<'a>(blob: &'a [u8], limits: &Limits) -> Result<Opened<'a>> {
    Ok(Opened::read(blob, limits)?)
}

fn standard_of(codec: Codec) -> Result<Standard> {
    match codec {
        Codec::H264 => Ok(Standard::H264),
        Codec::H265 => Ok(Standard::H265),
        Codec::Av1 => Ok(Standard::Av1),
        other => Err(Error::Unsupported(format!("blobs of codec {}", other.name()))),
    }
}

impl Plan {
    /// Reads a blob, all checksums verified, and copies what kernels need to the device. Returns its pictures beside the plan.
    pub(super) fn read(
        device: &Device,
        blob: &[u8],
        output: Output,
        options: &DecodeOptions,
    ) -> Result<(Plan, Vec<Vec<u8>>)> {
        let mut opened = open(blob, &options.limits)?;
        opened.resolve(&options.bases)?;
        let parcel = &opened.parcel;
        let standard = standard_of(parcel.codec)?;
        let params = PictureParams::read(parcel)?;
        let read = |i| -> Result<(u32, Vec<u8>)> {
            // Verifies the checksum of the coded bytes.
            let tile = opened.tile(i)?;
            let (check, stream) =
                tile.split_first_chunk::<4>().ok_or(tenfold::Error::Corrupt("a tile without a picture"))?;
            Ok((u32::from_le_bytes(*check), stream.to_vec()))
        };
        let tiles = 0..parcel.tiles();
        // Checksums and copies of all pictures are work for several cores.
        let (checks, pictures) = match blob.len() > MANY {
            true => {
                threads::install(options.threads, || tiles.into_par_iter().map(read).collect::<Result<_>>())??
            }
            false => tiles.map(read).collect::<Result<_>>()?,
        };
        let values = parcel.values();
        let need = values.checked_mul(output.dtype.size()).ok_or_else(too_large)?;
        let floats = |d: Dtype| d.is_float() && d.size() <= 4;
        let fits = output.dtype == parcel.dtype || (floats(output.dtype) && floats(parcel.dtype));
        if !fits || params.meaning == Meaning::Bytes && output.dtype != parcel.dtype {
            let (have, want) = (parcel.dtype, output.dtype);
            return Err(Error::InvalidArgument(format!("a blob of {have} does not decode to {want}")));
        }
        if output.memory.len != need || !output.memory.address.is_multiple_of(16) {
            return Err(Error::InvalidArgument(format!(
                "{need} bytes of device memory at a multiple of 16 are decoded, {} given",
                output.memory.len
            )));
        }
        let (samples, parts) = meaning(device, &params, parcel.width())?;
        let chain = match parcel.transforms.is_empty() || values == 0 {
            true => None,
            false => {
                let chain = DeviceChain::new(device, parcel.dtype, &parcel.shape, &parcel.transforms)?;
                let workspace = Buffer::new(device, undo_chain_workspace_len(&chain)?)?;
                Some((chain, workspace))
            }
        };
        let (to, dtype) = match &chain {
            None => (output.memory, output.dtype),
            Some((chain, workspace)) => undo_chain_input(chain, workspace.slice())?,
        };
        // Behind a basis pictures hold coordinates, of which there may be fewer.
        let coded = parcel.coded();
        if to.len != coded.saturating_mul(dtype.size()) {
            return Err(Error::Unsupported("transforms that a device does not undo behind pictures".into()));
        }
        let specials = match params.specials.is_empty() {
            true => None,
            false => Some(Specials::new(device, parcel.dtype, &params.specials)?),
        };
        let plan = Plan {
            standard,
            params,
            checks,
            values: coded,
            samples,
            _parts: parts,
            to,
            dtype,
            chain,
            specials,
        };
        Ok((plan, pictures))
    }

    /// Queues what is left once all pictures are turned into values.
    ///
    /// # Safety
    /// `output` is memory of the device that is left alone until the stream has passed this call.
    pub(super) unsafe fn finish(&self, device: &Device, output: Output, stream: Stream) -> Result<()> {
        // SAFETY: the caller's; workspace and tables are the plan's own.
        unsafe {
            if let Some((chain, workspace)) = &self.chain {
                undo_chain(chain, output.memory, output.dtype, workspace.slice(), stream)?;
            }
            if let Some(specials) = &self.specials {
                specials.put(output.memory, output.dtype, stream)?;
            }
        }
        if self.chain.is_some() || self.specials.is_some() {
            // Their memory is freed with the plan.
            device.synchronize(stream)?;
        }
        Ok(())
    }
}

/// What samples mean, and the numbers of parts on the device.
fn meaning(device: &Device, params: &PictureParams, columns: usize) -> Result<(Samples, Option<Buffer>)> {
    let none = DeviceSlice::new(0, 0);
    let columns = columns.max(1) as u64;
    let mapping = match &params.meaning {
        Meaning::Bytes => {
            return Ok((
                Samples { sharing: Sharing::Bytes, base: 0.0, unit: 1.0, parts: none, columns },
                None,
            ));
        }
        Meaning::Mapped(mapping) => mapping,
    };
    let sharing = match mapping.scaling {
        Scaling::Tensor => Sharing::Tensor,
        Scaling::Rows(group) => Sharing::Rows(group as u64),
        Scaling::Columns => Sharing::Columns,
    };
    let bytes: Vec<u8> =
        mapping.parts.iter().flat_map(|(c, s)| [c.to_le_bytes(), s.to_le_bytes()].concat()).collect();
    let parts = if bytes.is_empty() { None } else { Some(Buffer::from_slice(device, &bytes)?) };
    let slice = parts.as_ref().map_or(none, Buffer::slice);
    Ok((Samples { sharing, base: mapping.base, unit: mapping.unit, parts: slice, columns }, parts))
}
