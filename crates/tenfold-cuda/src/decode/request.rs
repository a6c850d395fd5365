//! What to decode, and how.

use tenfold::Dtype;
use tenfold::engine::Limits;
use tenfold::format::{BlobInfo, Codec};

use crate::device::DeviceSlice;

/// In which order decoded values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// That of the tensor: row by row.
    #[default]
    Tensor,
    /// That of the blob. A transposed one, as [`tenfold::calibrated`] makes it, has the tensor column by column; nothing is then
    /// left to transpose. All others have the tensor's order.
    Coded,
}

/// One blob to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeRequest {
    /// The blob, at an address that is a multiple of 16.
    pub blob: DeviceSlice,
    /// Where the elements go: exactly the bytes of the requested values.
    pub out: DeviceSlice,
    /// Dtype of the output: the blob's own, or for a lossy blob of f32 or less any of f32, f16, bf16 and f8.
    pub dtype: Dtype,
    /// First value wanted in this order, and how many; `None` for all from there on. Of a transposed blob all are wanted, or
    /// those of a run in its own order.
    pub values: (u64, Option<u64>),
    /// In which order values are written. For the tensor's, a blob that is known to be transposed is decoded to the workspace and
    /// transposed from there; of one that is not known to be, values are written one by one, several times slower.
    pub order: Order,
    /// The blob's codec, where the caller knows it: saves a launch. A blob of the other codec is then not decoded,
    /// and its status says so.
    pub codec: Option<Codec>,
    /// Whether its levels are in pairs, likewise.
    pub pairs: Option<bool>,
    /// Whether it is transposed, likewise.
    pub transposed: Option<bool>,
}

impl DecodeRequest {
    /// A whole blob.
    pub fn new(blob: DeviceSlice, out: DeviceSlice, dtype: Dtype) -> Self {
        let (values, order) = ((0, None), Order::Tensor);
        DecodeRequest { blob, out, dtype, values, order, codec: None, pairs: None, transposed: None }
    }

    /// Only some values, in the order stated.
    pub fn with_values(mut self, first: u64, count: u64) -> Self {
        self.values = (first, Some(count));
        self
    }

    /// Sets the order of values.
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Says which codec the blob has.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Says what its header does.
    pub fn with_info(mut self, info: &BlobInfo) -> Self {
        self.codec = Some(info.codec);
        self.pairs = info.paired;
        self.transposed = Some(info.is_transposed());
        self
    }

    /// Bytes of the workspace in which values wait to be transposed.
    pub(super) fn turned_len(&self) -> usize {
        let whole = self.values == (0, None);
        if self.transposed == Some(true) && self.order == Order::Tensor && whole { self.out.len } else { 0 }
    }
}

/// How to decode on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeSettings {
    /// What a blob may ask for.
    pub limits: Limits,
    /// Whether to check the checksums of tiles. Default: true. Headers are always checked, and no blob makes a
    /// kernel leave its memory.
    pub checksums: bool,
    /// Multiprocessors that decoding takes at most. Default: all. It takes those that it does take whole, so that kernels of
    /// other streams wait for it, or run on the others.
    pub multiprocessors: Option<u32>,
}

impl Default for DecodeSettings {
    fn default() -> Self {
        DecodeSettings { limits: Limits::default(), checksums: true, multiprocessors: None }
    }
}

impl DecodeSettings {
    /// Sets whether to check the checksums of tiles.
    pub fn with_checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Sets how many multiprocessors to take at most.
    pub fn with_multiprocessors(mut self, count: u32) -> Self {
        self.multiprocessors = Some(count);
        self
    }

    /// Sets the limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

/// Values a lane for blobs that a device decodes one at a time and soon: [`tenfold::EncodeOptions::lane_values`]. A warp
/// takes a lane's values one after the other, so a small tensor is quick only if its lanes are short; each lane costs
/// about 24 bits. Against the longest lanes a tensor of 64 Mi values takes 0.025 bits a value more, one of 16 Mi 0.041.
/// Where many tensors are decoded in one call, the default does.
pub fn lane_values(values: u64) -> u32 {
    match values {
        n if n >= 256 << 20 => 4096,
        n if n >= 48 << 20 => 768,
        _ => 512,
    }
}
