//! The status of a kernel: a code on the device, an error on the host.

use tenfold::Error;
use tenfold::engine::{ErrorKind, Limits};
use tenfold::format::{Codec, VERSION};

use crate::abi::shared_structs;

shared_structs! {
    /// What a device writes for each blob; readable once the stream has passed the call.
    ///
    /// Sixteen bytes, as they lie on the device.
    pub struct Status: Debug, PartialEq, Eq, Default {
        /// 0 if all went well, else a [`Code`].
        code: u32;
        /// What a code says more: a version, an id.
        detail: u32;
        /// Bytes needed, asked for or written.
        size: u64;
    }
}

/// Why a kernel did not finish. From 32 on: reasons why a blob is corrupt.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the errors that they become say it
pub enum Code {
    Ok = 0,
    NotABlob = 1,
    Version = 2,
    Dtype = 3,
    Codec = 4,
    Step = 5,
    Trellis = 6,
    OtherEngine = 7,
    Truncated = 8,
    Bytes = 9,
    Dims = 10,
    Buffer = 11,
    OutputDtype = 12,
    Rows = 13,
    DoesNotFit = 14,
    Workspace = 15,
    Alignment = 16,
    OtherCodec = 17,
    NoBasis = 18,
    OtherBasis = 19,
    NotFinite = 20,
    OtherRope = 21,
    OtherSteps = 22,
    Position = 23,
    OtherOrder = 24,
    OtherBase = 25,
    HeaderChecksum = 32,
    HeaderLength,
    Field,
    Varint,
    Shape,
    Geometry,
    Levels,
    TableSize,
    Scale,
    Offsets,
    Classes,
    Width,
    ScaleBits,
    Thresholds,
    LowBits,
    Tables,
    Plane,
    Directory,
    TileLength,
    BytesAfter,
    TileChecksum,
    TileFlags,
    TileZeros,
    State,
    Words,
    Escapes,
    Level,
    LowLeft,
    Exact,
    TileLeft,
    PlaneMode,
    Padding,
    Weights,
    Kept,
    KeptLater,
    ExactFinite,
    BasisStep,
    Means,
    Transposed,
    DeltaPlace,
    DeltaValue,
    DeltaEnd,
    DeltaResult,
}

/// Every code with the name that kernels know it by, and for a corrupt blob what is wrong.
pub(crate) const CODES: &[(Code, &str, &str)] = &[
    (Code::Ok, "OK", ""),
    (Code::NotABlob, "NOT_A_BLOB", ""),
    (Code::Version, "VERSION", ""),
    (Code::Dtype, "DTYPE", ""),
    (Code::Codec, "CODEC", ""),
    (Code::Step, "STEP", ""),
    (Code::Trellis, "TRELLIS", ""),
    (Code::OtherEngine, "OTHER_ENGINE", ""),
    (Code::Truncated, "TRUNCATED", ""),
    (Code::Bytes, "BYTES", ""),
    (Code::Dims, "DIMS", ""),
    (Code::Buffer, "BUFFER", ""),
    (Code::OutputDtype, "OUTPUT_DTYPE", ""),
    (Code::Rows, "ROWS", ""),
    (Code::DoesNotFit, "DOES_NOT_FIT", ""),
    (Code::Workspace, "WORKSPACE", ""),
    (Code::Alignment, "ALIGNMENT", ""),
    (Code::OtherCodec, "OTHER_CODEC", ""),
    (Code::NoBasis, "NO_BASIS", ""),
    (Code::OtherBasis, "OTHER_BASIS", ""),
    (Code::NotFinite, "NOT_FINITE", ""),
    (Code::OtherRope, "OTHER_ROPE", ""),
    (Code::OtherSteps, "OTHER_STEPS", ""),
    (Code::Position, "POSITION", ""),
    (Code::OtherOrder, "OTHER_ORDER", ""),
    (Code::OtherBase, "OTHER_BASE", ""),
    (Code::HeaderChecksum, "HEADER_CHECKSUM", "header checksum"),
    (Code::HeaderLength, "HEADER_LENGTH", "header length"),
    (Code::Field, "FIELD", "a field reaches past the end of its section"),
    (Code::Varint, "VARINT", "a variable-length integer is malformed"),
    (Code::Shape, "SHAPE", "the shape's size overflows"),
    (Code::Geometry, "GEOMETRY", "tile geometry"),
    (Code::Levels, "LEVELS", "levels of a dtype that is not a float"),
    (Code::TableSize, "TABLE_SIZE", "size of the tables"),
    (Code::Scale, "SCALE", "the step is not a positive number"),
    (Code::Offsets, "OFFSETS_COUNT", "number of reconstruction offsets"),
    (Code::Classes, "CLASSES", "number of classes"),
    (Code::Width, "WIDTH", "width of the class map"),
    (Code::ScaleBits, "SCALE_BITS", "bits of a scale"),
    (Code::Thresholds, "THRESHOLDS", "class thresholds are not increasing"),
    (Code::LowBits, "LOW_BITS", "number of low bits"),
    (Code::Tables, "TABLES", "a table of symbols"),
    (Code::Plane, "PLANE", "a table for a plane that does not exist"),
    (Code::Directory, "DIRECTORY", "the directory does not match the number of tiles"),
    (Code::TileLength, "TILE_LENGTH", "a tile's length is not a multiple of four"),
    (Code::BytesAfter, "BYTES_AFTER", "bytes after the last tile"),
    (Code::TileChecksum, "TILE_CHECKSUM", "tile checksum"),
    (Code::TileFlags, "TILE_FLAGS", "unknown flags in a tile"),
    (Code::TileZeros, "TILE_ZEROS", "a tile of zeros with content"),
    (Code::State, "STATE", "a lane's state is out of range"),
    (Code::Words, "WORDS", "a lane does not end where it started, or words are left over or missing"),
    (Code::Escapes, "ESCAPES", "escapes left over or missing"),
    (Code::Level, "LEVEL", "a level is out of range"),
    (Code::LowLeft, "LOW_LEFT", "low bits left over or missing"),
    (Code::Exact, "EXACT_RUN", "an exact value lies outside its tile"),
    (Code::TileLeft, "TILE_LEFT", "a tile has bytes left over"),
    (Code::PlaneMode, "PLANE_MODE", "mode of a plane"),
    (Code::Padding, "PADDING", "padding that is not zero"),
    (Code::Weights, "WEIGHTS", "weights step"),
    (Code::Kept, "KEPT", "kept elements"),
    (Code::KeptLater, "KEPT_LATER", "kept elements after another step"),
    (Code::ExactFinite, "EXACT_FINITE", "an exact value before steps is not finite"),
    (Code::BasisStep, "BASIS_STEP", "basis step"),
    (Code::Means, "MEANS", "means step"),
    (Code::Transposed, "TRANSPOSED", "transposed step"),
    (Code::DeltaPlace, "DELTA_PLACE", "a delta changes a value outside of its tile"),
    (Code::DeltaValue, "DELTA_VALUE", "a delta makes a value that does not exist"),
    (Code::DeltaEnd, "DELTA_END", "a tile of a delta ends early"),
    (Code::DeltaResult, "DELTA_RESULT", "a tile of a delta does not make what it says"),
];

/// What a tensor has that a delta does not belong to: a device looks at the values that change alone.
pub(crate) const OTHER_VALUES: &str = "other values where the delta changes some";

impl Status {
    /// As it lies on the device.
    pub fn from_bytes(bytes: [u8; 16]) -> Status {
        let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
        let code = u32::from_le_bytes([a, b, c, d]);
        Status { code, detail: u32::from_le_bytes([e, f, g, h]), size: u64::from_le_bytes(rest) }
    }

    /// The error that this stands for, with what only the caller knows filled in.
    pub(crate) fn check_for(&self, blob: usize, limits: &Limits) -> tenfold::engine::Result<()> {
        self.check().map_err(|e| match e {
            Error::Truncated { need, .. } => Error::Truncated { need, have: blob as u64 },
            Error::LimitExceeded { what, asked, limit: 0 } => {
                Error::LimitExceeded { what, asked, limit: limits.max_bytes }
            }
            other => other,
        })
    }

    /// The error that this stands for.
    pub fn check(&self) -> tenfold::engine::Result<()> {
        let Some(&(code, _, reason)) = CODES.iter().find(|c| c.0 as u32 == self.code) else {
            return Err(Error::Corrupt("the device's answer"));
        };
        let (detail, size) = (self.detail, self.size);
        let unsupported = |what| Error::UnsupportedFeature { what, id: detail as u64 };
        Err(match code {
            Code::Ok => return Ok(()),
            Code::NotABlob => Error::NotABlob,
            Code::Version => Error::UnsupportedVersion { found: detail as u8, supported: VERSION },
            Code::Dtype => unsupported("dtype"),
            Code::Codec if detail == u32::from(tenfold::format::CODEC_LAYERS) => Error::Engine {
                kind: ErrorKind::Unsupported,
                reason: "the blob has layers, which are added with waiting: use CudaEngine, or Layered with a DeviceCodec".into(),
            },
            Code::Codec => unsupported("codec"),
            Code::Step if tenfold::format::knows_transform(detail as u8) => Error::Engine {
                kind: ErrorKind::Unsupported,
                reason: format!(
                    "the blob has preparation step {detail}, which is undone by a chain: decode_prepared, or the engine"
                ),
            },
            Code::Step => unsupported("preparation step"),
            Code::Trellis => unsupported("trellis"),
            Code::OtherEngine => Error::OtherEngine {
                id: detail as u8,
                codec: [Codec::H264, Codec::H265, Codec::Av1][(detail as usize).wrapping_sub(16).min(2)]
                    .name(),
            },
            // How many bytes there are is the caller's to know.
            Code::Truncated => Error::Truncated { need: size, have: 0 },
            Code::Bytes => Error::LimitExceeded { what: "a tensor size in bytes", asked: size, limit: 0 },
            Code::Dims => {
                Error::LimitExceeded { what: "a number of dimensions", asked: detail as u64, limit: size }
            }
            Code::Buffer => Error::BufferTooSmall { need: size, have: 0 },
            Code::OutputDtype => {
                Error::InvalidArgument("this blob does not decode to the output dtype".into())
            }
            Code::Rows => Error::InvalidArgument("rows beyond the end of the tensor".into()),
            Code::DoesNotFit => Error::DoesNotFit { cap: 0, need: size },
            Code::Workspace => Error::InvalidArgument("the workspace is too small for this blob".into()),
            Code::NotFinite => Error::InvalidArgument(
                "a tensor or page with transforms holds a value that is not finite: encode it losslessly, or on the CPU".into(),
            ),
            Code::NoBasis => {
                Error::InvalidArgument("the blob has no coordinates: it was made without a basis".into())
            }
            Code::OtherBasis => {
                Error::InvalidArgument("the blob needs another basis than the one passed".into())
            }
            Code::OtherRope => Error::InvalidArgument(
                "the rotary positions of the blob and of the basis differ".into(),
            ),
            Code::OtherSteps => Error::InvalidArgument(
                "the blob has other transforms than the chain passed".into(),
            ),
            Code::OtherOrder => Error::InvalidArgument(
                "the blob is transposed where the request says that it is not, or the other way round".into(),
            ),
            // Whose delta it is the caller knows.
            Code::OtherBase => Error::WrongBase { expected: "of its base".into(), found: OTHER_VALUES.into() },
            Code::Position => Error::InvalidArgument("a page starts at a position above 2^32".into()),
            Code::OtherCodec => {
                Error::InvalidArgument("the blob is not of the codec that the request names".into())
            }
            Code::Alignment => Error::InvalidArgument(
                "blobs and outputs on a device must be aligned to 16 bytes".into(),
            ),
            _ => Error::Corrupt(reason),
        })
    }
}
