//! Blobs to tensors: `blob.cu`, `levels_decode.cu`, `levels_small.cu`, `pairs_decode.cu`, `lossless_decode.cu`, `lossless_halves.cu`,
//! `transpose.cu`.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};
use crate::status::Status;

shared_constants! {
    /// Blobs that fit the arguments of one launch, and those of which three numbers say all.
    const ITEMS_PER_LAUNCH: usize = 48;
    const PLACED_PER_LAUNCH: usize = 320;
    /// Bytes of workspace for the header and tables of one blob.
    const WORK_BYTES: usize = 34 << 10;
    /// Tiles whose lengths are added up together.
    const RUN: usize = 64;
    /// Threads of the block that lists blobs, of one that reads a header, and, at most, of one that decodes.
    const PLACE_THREADS: u32 = 64;
    const OPEN_THREADS: u32 = 256;
    const DECODE_THREADS: u32 = 1024;
    /// Threads of a block that decodes a small blob.
    const SMALL_THREADS: u32 = 32;
    /// Room for a transform of rotary positions up to the first position.
    const MAX_ROPE: usize = 56;
    /// What must stand before a basis: rotary positions or nothing, and the caller sees to them; nothing; known rotary
    /// positions. Or all transforms are known and the caller undoes them.
    const BEFORE_ANY: u32 = 0;
    const BEFORE_NOTHING: u32 = 1;
    const BEFORE_ROPE: u32 = 2;
    const TRANSFORMS_KNOWN: u32 = 3;
    /// What is known of levels in pairs: there are none, they all are.
    const PAIRS_NONE: u8 = 1;
    const PAIRS_ALL: u8 = 2;
    /// What is known of a transposition: there is none, there is one.
    const TRANSPOSED_NO: u8 = 1;
    const TRANSPOSED_YES: u8 = 2;
    /// Values in the order of the tensor, and in that in which they are coded.
    const ORDER_TENSOR: u8 = 0;
    const ORDER_CODED: u8 = 1;
    /// Threads of a block that transposes.
    const TRANSPOSE_THREADS: u32 = 256;
}

shared_structs! {
    /// One blob to decode.
    pub(crate) struct Item {
        blob, blob_len, out, out_len: u64;
        /// Values wanted; a count of ~0 means all from `first` on.
        first, count: u64;
        /// Where this blob's part of the workspace is, and how long.
        work, work_len: u64;
        /// Dtype of the output.
        dtype: u32;
        /// The first block that works on this blob, in kernels that give a blob several.
        block0: u32;
        /// The codec it must have; 0 for any.
        codec: u32;
        /// Whether its levels are in pairs, and whether it is transposed; 0 if that is not known. In which order values go out.
        pairs, transposed, order, unused: u8;
    }

    /// The transforms behind which values are wanted; all zeros for none.
    pub(crate) struct OpenBasis {
        /// Columns of the tensor, and behind the transforms; none behind them stands for no transforms.
        columns, rank: u32;
        /// The fingerprint of the basis.
        name: [u32; 4];
        /// A packed list of the basis's scales, of `MAX_SCALE_BITS` bits each; 0 for none.
        scales: u64;
        /// What must stand before the basis.
        before: u32;
        /// For `BEFORE_ROPE`: the transform of rotary positions up to the first position, and where each blob's goes.
        rope_len: u32;
        rope: [u8; MAX_ROPE];
        positions: Address<u64>;
        /// For `TRANSFORMS_KNOWN`: the transforms as they must stand in the header, their number first.
        known: Address<Const<u8>>;
        known_len: u64;
    }

    /// Blobs whose headers are read.
    pub(crate) struct OpenArgs {
        /// Blobs of this launch, if they are not on the device yet.
        items: [Item; ITEMS_PER_LAUNCH];
        to: Address<Item>;
        status: Address<Status>;
        max_bytes: u64;
        first, count, max_dims, unused: u32;
        basis: OpenBasis;
    }

    /// Blobs whose outputs lie one after the other, with a block each: three numbers a blob say all.
    pub(crate) struct PlaceArgs {
        to: Address<Item>;
        status: Address<Status>;
        base, out, out_len, work: u64;
        first, count, dtype, codec: u32;
        /// Where the blob is and where its part of the workspace is, in units of 16 bytes; the blob's bytes.
        at, work_at, len: [u32; PLACED_PER_LAUNCH];
    }

    /// Blobs whose tiles are decoded.
    pub(crate) struct TilesArgs {
        items: Address<Const<Item>>;
        status: Address<Status>;
        count, blocks: u32;
        /// Dynamic shared memory of a block.
        shared: u32;
        /// Whether to check checksums.
        check: u32;
        /// Shared memory of an earlier launch, whose blocks have done what they had room for, or 0; and whether a later
        /// one does what these have no room for.
        above, more: u32;
        /// Blocks that the kernel for small blobs gives each; for others, whether it came before them. 0 if there is none.
        small, unused: u32;
    }

    /// Elements of a transposed tensor to put back: rows as long as the columns that its opened blob has become columns.
    pub(crate) struct TransposeArgs {
        item: Address<Const<Item>>;
        /// What was said of the decoding so far.
        status: Address<Const<Status>>;
        from: Address<Const<Void>>;
        to: Address<Void>;
        /// Bytes of all elements.
        len: u64;
    }
}

kernels! {
    Kernel<OpenArgs>: blob_place, blob_open, blob_open_placed;
    Kernel<PlaceArgs>: blob_place_pages;
    #[grid_constant] BySize<TilesArgs>: levels_decode, pairs_decode, lossless_decode;
    #[grid_constant] Kernel<TilesArgs>: levels_small, lossless_halves;
    BySize<TransposeArgs>: transpose;
}
