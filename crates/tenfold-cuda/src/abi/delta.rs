//! Deltas applied in place: `delta_decode.cu`, `delta_write.cu`.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};
use crate::status::Status;

shared_constants! {
    /// Tensors that fit the arguments of one launch.
    const DELTAS_PER_LAUNCH: usize = 32;
    /// Threads of a block that works on deltas.
    const DELTA_THREADS: u32 = 256;
    /// Changes that a warp takes at a time: eight a lane, which lie side by side.
    const DELTA_BATCH: u32 = 256;
    /// Changes whose places in the workspace start at a multiple of this.
    const DELTA_ALIGN: usize = 8;
    /// Bytes of a table: the symbol of each slot, then for each symbol its frequency − 1 and, from bit 16 on, its first slot.
    const DELTA_TABLE: usize = (1 << 12) + 4 * 256;
    /// Bytes before the first table: the class of each key.
    const DELTA_CLASSES: usize = 256;
    /// Words of raw bits that a warp fetches ahead for each batch.
    const DELTA_FETCHED: u32 = 128;
    /// Bytes of shared memory that a warp needs: a ring of words, symbols, raw bits.
    const DELTA_WARP: usize = 1280 + DELTA_BATCH as usize + 4 * DELTA_FETCHED as usize;
    /// Changes that a block writes at a time: eight a thread.
    const DELTA_CHUNK: u32 = 8 * DELTA_THREADS;
    /// Tiles that fit the arguments of a launch that checks what a host has decoded.
    const DELTA_CHECKED: usize = 64;
    /// How values are told.
    const DELTA_DIFFERENCE: u32 = 0;
    const DELTA_XOR: u32 = 1;
    const DELTA_OVERWRITE: u32 = 2;
    /// What a tile of the tensor is: old, and to be written, or new already.
    const DELTA_OLD: u32 = 1;
    const DELTA_NEW: u32 = 2;
}

shared_structs! {
    /// A tile that changes something.
    pub(crate) struct DeltaTile {
        /// Where its bytes are in the blob; its first value in the tensor; where its changes start in the workspace.
        at, start, first: u64;
        /// Sums over old and new values.
        before, after: u64;
        /// Bytes and their checksum.
        len, crc: u32;
        /// Values, and how many of them change.
        values, changes: u32;
        /// Tables of the gaps and of the first class of values.
        gap_table, value_table: u32;
        way: u32;
        /// Words of the two streams.
        gap_words, value_words, unused: u32;
    }

    /// A tensor and its delta.
    pub(crate) struct DeltaItem {
        blob, blob_len: u64;
        to: Address<Void>;
        /// Classes and tables; tiles.
        tables: Address<Const<u8>>;
        tiles: Address<Const<DeltaTile>>;
        /// The workspace: places and values of changes, and a word a tile.
        places: Address<u32>;
        values: Address<Void>;
        states: Address<u32>;
        status: Address<Status>;
        tile_count, table_count: u32;
        /// The first block that decodes this delta, and the first that writes it; so many write a tile.
        decode0, write0, writers, unused: u32;
        /// log2 of the lanes; where the key of a value is and which of its bits count; whether values are floats.
        lanes_log, key_low, key_mask, floats: u32;
    }

    /// Deltas of tensors whose elements have one size.
    pub(crate) struct DeltaArgs {
        items: [DeltaItem; DELTAS_PER_LAUNCH];
        count, blocks: u32;
        /// Tables that have room in a block's shared memory.
        room, unused: u32;
    }

    /// Tiles that a host has decoded, into pinned memory.
    pub(crate) struct DeltaCheckArgs {
        item: DeltaItem;
        /// Places and values there, from those on that the workspace has from `first` on.
        places, values, first: u64;
        tiles: [u32; DELTA_CHECKED];
    }
}

kernels! {
    #[grid_constant] Kernel<DeltaArgs>: delta_start;
    #[grid_constant] BySize<DeltaArgs>: delta_decode, delta_write;
    #[grid_constant] BySize<DeltaCheckArgs>: delta_check;
}
