//! Pictures that a video engine has decoded: `pictures.cu`.

use super::{Address, Const, Void, kernels, shared_constants, shared_structs};

shared_constants! {
    /// Threads of a block that works on pictures.
    const PICTURES_THREADS: u32 = 256;
    /// Who shares a centre and a step: everyone, groups of rows, columns; or samples are the elements themselves.
    const PICTURE_TENSOR: u32 = 0;
    const PICTURE_ROWS: u32 = 1;
    const PICTURE_COLUMNS: u32 = 2;
    const PICTURE_BYTES: u32 = 3;
}

shared_structs! {
    /// One picture, and the elements that its samples stand for.
    pub(crate) struct PictureArgs {
        /// The first sample; lines are `pitch` bytes apart.
        luma: Address<Const<u8>>;
        /// The element of the first value that is wanted.
        to: Address<Void>;
        /// Centre and step of each part, a bf16 each.
        parts: Address<Const<u32>>;
        /// The checksum.
        check: Address<u32>;
        /// Factors of centres and of steps.
        base, unit: f64;
        /// Number of the first value in the tensor, columns of that, and rows of a group.
        first, columns, group: u64;
        pitch, width, height, depth: u32;
        /// Samples before the first value that is wanted, and how many are wanted.
        skip, count: u32;
        /// Of the elements, and who shares a centre and a step.
        dtype, scaling: u32;
    }

    /// An element that no sample holds.
    pub(crate) struct PictureSpecial {
        at, bits: u64;
    }

    /// Such elements of the dtype `from`, to be put among those of `dtype`.
    pub(crate) struct SpecialArgs {
        to: Address<Void>;
        specials: Address<Const<PictureSpecial>>;
        count, from, dtype, unused: u32;
    }
}

kernels! {
    Kernel<PictureArgs>: pictures_values, pictures_check;
    Kernel<SpecialArgs>: pictures_specials;
}
