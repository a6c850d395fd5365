//! The header: tensor, codec and parameters of a blob, and where its tiles are.
//!
//! Normative: docs/format.md, 'Blob'. The checksum at the header's end covers the directory, the
//! directory holds a checksum of every tile, so every byte of a blob is covered.

use std::ops::Range;
use std::sync::Arc;

use crc32fast::Hasher;

use super::LayersParams;
use super::bytes::{Reader, put_varint};
use super::parts::{Parts, Sealed};
use super::tile::Geometry;
use crate::error::{Error, Result};
use crate::format::{Codec, VERSION, carry};
use crate::options::Limits;
use crate::prepare::{self, Basis, Transform};
use crate::view::{Dtype, byte_len};
use crate::workers::Workers;
use crate::{delta, levels, lossless};

/// First bytes of a blob.
pub const MAGIC: [u8; 4] = *b"TNFD";
/// Magic, version, codec, dtype, dimensions, header length.
pub const FIXED: usize = 12;
/// Stored number of the lossless codec.
pub const CODEC_PLANES: u8 = 1;
/// Stored number of the lossy codec.
pub const CODEC_LEVELS: u8 = 2;
// A golden vector requires that 3 is refused.
/// Stored number of layered blobs.
pub const CODEC_LAYERS: u8 = 4;
/// Stored number of the lossy codec where levels are coded in pairs.
pub const CODEC_PAIRS: u8 = 5;
/// Stored number of deltas.
pub const CODEC_DELTA: u8 = 6;

/// The content of a header before the directory.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Transforms of the values before the codec, in order.
    pub transforms: Vec<Transform>,
    pub params: CodecParams,
}

/// Codec and its parameters.
#[derive(Debug, Clone)]
pub(crate) enum CodecParams {
    Planes(lossless::PlanesParams),
    Levels(Box<levels::LevelsParams>),
    /// Blobs of this crate in place of tiles.
    Layers(LayersParams),
    /// What changes in another tensor.
    Delta(Box<delta::DeltaParams>),
    /// Of a codec that lives outside this crate.
    Carried(carry::CarriedParams),
}

impl CodecParams {
    pub(crate) fn geometry(&self) -> Geometry {
        match self {
            CodecParams::Planes(p) => p.geometry,
            CodecParams::Levels(p) => p.geometry,
            CodecParams::Layers(p) => p.geometry,
            CodecParams::Delta(p) => p.geometry().unwrap_or(Geometry { lanes: 1, ticks: 1 }),
            CodecParams::Carried(p) => p.geometry,
        }
    }

    /// Entries of the directory of a tensor with this many values.
    fn tiles(&self, coded: usize) -> usize {
        match self {
            CodecParams::Layers(p) => p.count,
            CodecParams::Delta(p) if p.geometry().is_none() => 0,
            _ => self.geometry().tiles(coded),
        }
    }
}

/// A parsed header with the directory.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub head: Head,
    /// Values of the tensor.
    pub values: usize,
    /// Coded values: fewer than those of the tensor if a basis has fewer vectors than columns.
    pub coded: usize,
    pub header_len: usize,
    /// Length and checksum of each tile.
    directory: Vec<(u32, u32)>,
    /// Where each tile starts, and at the end the length of the blob.
    offsets: Vec<usize>,
}

/// Makes the parts of a blob from a header and its tiles; `workers` copy them later.
pub(crate) fn assemble(head: &Head, tiles: Vec<Sealed>, workers: &Workers) -> Result<Parts> {
    let header = write(head, tiles.iter().map(|t| (t.bytes.len(), t.crc)))?;
    Ok(Parts::new(header, tiles.into_iter().map(|t| t.bytes).collect(), workers))
}

/// A header, with the length and the checksum of each tile.
pub(crate) fn write(head: &Head, tiles: impl ExactSizeIterator<Item = (usize, u32)>) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(4096 + tiles.len() * 8);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.push(match &head.params {
        CodecParams::Planes(_) => CODEC_PLANES,
        CodecParams::Levels(p) if p.paired => CODEC_PAIRS,
        CodecParams::Levels(_) => CODEC_LEVELS,
        CodecParams::Layers(_) => CODEC_LAYERS,
        CodecParams::Delta(_) => CODEC_DELTA,
        CodecParams::Carried(p) => p.id,
    });
    out.push(head.dtype.id());
    let dims = u8::try_from(head.shape.len())
        .map_err(|_| Error::InvalidArgument("a tensor can have at most 255 dimensions".into()))?;
    out.push(dims);
    out.extend_from_slice(&[0; 4]);
    head.shape.iter().for_each(|&d| put_varint(&mut out, d as u64));
    prepare::write(&head.transforms, &mut out)?;
    match &head.params {
        CodecParams::Planes(p) => p.write(&mut out),
        CodecParams::Levels(p) => p.write(head.dtype, &mut out),
        CodecParams::Layers(p) => p.write(&mut out),
        CodecParams::Delta(p) => p.write(&mut out),
        CodecParams::Carried(p) => p.write(&mut out),
    }
    out.resize(out.len().next_multiple_of(4), 0);
    for (len, crc) in tiles {
        let len = u32::try_from(len).map_err(|_| Error::InvalidArgument("a tile is too large".into()))?;
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&crc.to_le_bytes());
    }
    let header_len = u32::try_from(out.len() + 4)
        .map_err(|_| Error::InvalidArgument("the header would be larger than 4 GiB".into()))?;
    out[8..12].copy_from_slice(&header_len.to_le_bytes());
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// Bytes of the header that starts here; nothing if this is none.
pub(crate) fn header_len(blob: &[u8]) -> Option<usize> {
    let fixed = blob.get(..FIXED).filter(|fixed| fixed.starts_with(&MAGIC))?;
    Some(u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize)
}

/// What a header says before the codec's parameters.
pub(crate) struct Start<'a> {
    /// Number of the codec.
    pub codec: u8,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    values: usize,
    pub transforms: Vec<Transform>,
    header_len: usize,
    /// The header without its checksum, and what of it was not read.
    body: &'a [u8],
    rest: Reader<'a>,
}

impl<'a> Start<'a> {
    /// Reads the start of a header whose checksum is right, of a codec that is accepted.
    pub(crate) fn parse(
        blob: &'a [u8],
        limits: &Limits,
        accept: impl Fn(u8) -> Result<()>,
    ) -> Result<Start<'a>> {
        let known = blob.len().min(MAGIC.len());
        if blob[..known] != MAGIC[..known] || blob.is_empty() {
            return Err(Error::NotABlob);
        }
        let truncated = |need: usize| Error::Truncated { need: need as u64, have: blob.len() as u64 };
        let fixed = blob.get(..FIXED).ok_or_else(|| truncated(FIXED))?;
        if fixed[4] != VERSION {
            return Err(Error::UnsupportedVersion { found: fixed[4], supported: VERSION });
        }
        let header_len = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize;
        if header_len < FIXED + 4 {
            return Err(Error::Corrupt("header length"));
        }
        let header = blob.get(..header_len).ok_or_else(|| truncated(header_len))?;
        let (body, sum) = header.split_at(header_len - 4);
        // Fuzzers would never get past a checksum.
        if !cfg!(fuzzing) && crc32fast::hash(body).to_le_bytes() != *sum {
            return Err(Error::Corrupt("header checksum"));
        }
        accept(fixed[5])?;
        let mut rest = Reader::new(&body[FIXED..]);
        let dtype = Dtype::from_id(fixed[6])
            .ok_or(Error::UnsupportedFeature { what: "dtype", id: fixed[6] as u64 })?;
        let (shape, values) = read_shape(&mut rest, fixed[7] as usize, dtype, limits)?;
        let transforms = prepare::read(&mut rest, fixed[5], dtype, &shape, values)?;
        Ok(Start { codec: fixed[5], dtype, shape, values, transforms, header_len, body, rest })
    }
}

impl Frame {
    /// Reads a header; the tiles may be missing.
    pub(crate) fn parse(blob: &[u8], limits: &Limits) -> Result<Frame> {
        Frame::parse_if(blob, limits, |_| Ok(()))
    }

    /// Reads the header of a tensor in a codec of this crate. Others are refused before their parameters are read, because only their
    /// own codec can judge them; deltas are, since they are nothing without their base.
    pub(crate) fn parse_native(blob: &[u8], limits: &Limits) -> Result<Frame> {
        Frame::parse_if(blob, limits, |id| match Codec::from_carried_id(id) {
            Some(codec) => Err(Error::OtherEngine { id, codec: codec.name() }),
            None if id == CODEC_DELTA => Err(Error::NeedsBase),
            None => Ok(()),
        })
    }

    /// Reads the header of a delta.
    pub(crate) fn parse_delta(blob: &[u8], limits: &Limits) -> Result<Frame> {
        Frame::parse_if(blob, limits, |id| match id {
            CODEC_DELTA => Ok(()),
            _ => Err(Error::InvalidArgument("the blob is a tensor, not a delta: decode it".into())),
        })
    }

    /// Reads the header of a layer, which must not have layers itself.
    pub(crate) fn parse_layer(blob: &[u8], limits: &Limits) -> Result<Frame> {
        Frame::parse_if(blob, limits, |id| match id {
            CODEC_PLANES | CODEC_LEVELS | CODEC_PAIRS => Ok(()),
            _ => Err(Error::Corrupt("codec of a layer")),
        })
    }

    fn parse_if(blob: &[u8], limits: &Limits, accept: impl Fn(u8) -> Result<()>) -> Result<Frame> {
        let Start { codec, dtype, shape, values, transforms, header_len, body, mut rest } =
            Start::parse(blob, limits, accept)?;
        let r = &mut rest;
        let cols = shape.last().copied().unwrap_or(1);
        let width = prepare::width_of(&transforms, cols);
        let coded = if width == cols { values } else { values / cols.max(1) * width };
        let rank = matches!(transforms.last(), Some(Transform::Basis(_))).then_some(width);
        let params = match codec {
            CODEC_PLANES => CodecParams::Planes(lossless::PlanesParams::read(r, dtype)?),
            codec @ (CODEC_LEVELS | CODEC_PAIRS) => {
                let paired = codec == CODEC_PAIRS;
                CodecParams::Levels(Box::new(levels::LevelsParams::read(r, paired, dtype, coded, rank)?))
            }
            CODEC_LAYERS => CodecParams::Layers(LayersParams::read(r, dtype, values)?),
            CODEC_DELTA => CodecParams::Delta(Box::new(delta::DeltaParams::read(r)?)),
            id if carry::is_carried(id) => CodecParams::Carried(carry::CarriedParams::read(r, id)?),
            id => return Err(Error::UnsupportedFeature { what: "codec", id: id as u64 }),
        };
        let head = Head { dtype, shape, transforms, params };
        Frame::with_directory(head, (values, coded), header_len, body, r.rest())
    }

    fn with_directory(
        head: Head,
        (values, coded): (usize, usize),
        header_len: usize,
        body: &[u8],
        rest: &[u8],
    ) -> Result<Frame> {
        let tiles = head.params.tiles(coded);
        let padding = (body.len() - rest.len()).next_multiple_of(4) - (body.len() - rest.len());
        let entries = tiles
            .checked_mul(8)
            .and_then(|n| n.checked_add(padding))
            .filter(|&n| n == rest.len())
            .and_then(|_| rest.get(padding..))
            .filter(|_| rest[..padding].iter().all(|&b| b == 0))
            .ok_or(Error::Corrupt("the directory does not match the number of tiles"))?;
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let directory: Vec<(u32, u32)> =
            entries.chunks_exact(8).map(|e| (word(&e[..4]), word(&e[4..]))).collect();
        let mut offsets = Vec::with_capacity(tiles + 1);
        let mut at = header_len;
        offsets.push(at);
        for &(len, _) in &directory {
            if len % 4 != 0 {
                return Err(Error::Corrupt("a tile's length is not a multiple of four"));
            }
            at = at.checked_add(len as usize).ok_or(Error::Corrupt("tile lengths overflow"))?;
            offsets.push(at);
        }
        Ok(Frame { head, values, coded, header_len, directory, offsets })
    }

    /// Finds the bases that the blob names. Call it before decoding.
    pub(crate) fn resolve(&mut self, known: &[Arc<Basis>]) -> Result<()> {
        let cols = self.head.shape.last().copied().unwrap_or(1);
        prepare::resolve(&mut self.head.transforms, known, cols)?;
        let (Some(Transform::Basis(rotation)), CodecParams::Levels(params)) =
            (self.head.transforms.last(), &mut self.head.params)
        else {
            return Ok(());
        };
        match (&mut params.classes, rotation.basis()) {
            (Some(map), Some(basis)) => map.learn(basis.scales()),
            _ => Ok(()),
        }
    }

    /// How the values are coded.
    pub(crate) fn codec(&self) -> Codec {
        match &self.head.params {
            CodecParams::Planes(_) => Codec::Planes,
            CodecParams::Levels(_) => Codec::Levels,
            CodecParams::Layers(_) => Codec::Layers,
            CodecParams::Delta(_) => Codec::Delta,
            // `carry` reads no other numbers.
            CodecParams::Carried(p) => Codec::from_carried_id(p.id).unwrap_or(Codec::Planes),
        }
    }

    /// Bytes of the whole blob.
    pub(crate) fn blob_len(&self) -> usize {
        self.offsets.last().copied().unwrap_or(self.header_len)
    }

    /// Where each tile starts, and the length of the blob.
    pub(crate) fn into_starts(self) -> Vec<usize> {
        self.offsets
    }

    pub(crate) fn tiles(&self) -> usize {
        self.directory.len()
    }

    /// Checks that the blob has exactly the bytes it should have.
    pub(crate) fn check_len(&self, len: usize) -> Result<()> {
        match len.cmp(&self.blob_len()) {
            std::cmp::Ordering::Less => {
                Err(Error::Truncated { need: self.blob_len() as u64, have: len as u64 })
            }
            std::cmp::Ordering::Greater => Err(Error::Corrupt("bytes after the last tile")),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    /// Bytes of each tile.
    pub(crate) fn tile_lens(&self) -> impl Iterator<Item = u64> {
        self.directory.iter().map(|&(len, _)| u64::from(len))
    }

    /// Where each tile is, and its checksum.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Range<usize>, u32)> {
        self.offsets.windows(2).zip(&self.directory).map(|(w, &(_, sum))| (w[0]..w[1], sum))
    }

    /// Checksum of the whole blob, from those that its header has.
    pub(crate) fn checksum(&self) -> u32 {
        // What ends with its own checksum has this one, whatever it is.
        const OWN: u32 = 0x2144_df1c;
        let mut sum = Hasher::new_with_initial_len(OWN, self.header_len as u64);
        for &(len, tile) in &self.directory {
            sum.combine(&Hasher::new_with_initial_len(tile, u64::from(len)));
        }
        sum.finalize()
    }

    /// The bytes of tile `i`, their checksum verified.
    pub(crate) fn tile<'b>(&self, blob: &'b [u8], i: usize) -> Result<&'b [u8]> {
        let bytes = blob
            .get(self.offsets[i]..self.offsets[i + 1])
            .ok_or(Error::Truncated { need: self.blob_len() as u64, have: blob.len() as u64 })?;
        if !cfg!(fuzzing) && crc32fast::hash(bytes) != self.directory[i].1 {
            return Err(Error::Corrupt("tile checksum"));
        }
        Ok(bytes)
    }
}

fn read_shape(r: &mut Reader<'_>, dims: usize, dtype: Dtype, limits: &Limits) -> Result<(Vec<usize>, usize)> {
    if dims > limits.max_dims {
        let (asked, limit) = (dims as u64, limits.max_dims as u64);
        return Err(Error::LimitExceeded { what: "a number of dimensions", asked, limit });
    }
    let mut shape = Vec::with_capacity(dims);
    for _ in 0..dims {
        shape.push(usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("a dimension is too large"))?);
    }
    let bytes = byte_len(dtype, &shape).ok_or(Error::Corrupt("the shape's size overflows"))?;
    if bytes as u64 > limits.max_bytes {
        let (asked, limit) = (bytes as u64, limits.max_bytes);
        return Err(Error::LimitExceeded { what: "a tensor size in bytes", asked, limit });
    }
    Ok((shape, bytes / dtype.size()))
}
