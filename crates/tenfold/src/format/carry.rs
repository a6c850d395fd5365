//! Blobs whose tiles belong to a codec outside this crate: the same header, shape, dtype, transforms, directory and
//! checksums around bytes that only that codec understands.
//!
//! Normative: docs/format.md, 'Carried codecs'.

pub use crate::blob::bytes::{Reader, put_varint};

use std::sync::Arc;

use super::Codec;
use crate::blob::{self, Frame, Geometry, Head, Sealed};
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::prepare::{self, Basis, Transform};
use crate::view::{Dtype, byte_len, rows_of};
use crate::workers::Workers;

/// Most values of a carried tile.
const MAX_TILE: u64 = 1 << 28;

/// Whether a codec number is that of a carried codec.
pub(crate) fn is_carried(id: u8) -> bool {
    Codec::from_carried_id(id).is_some()
}

/// Stored parameters.
#[derive(Debug, Clone)]
pub(crate) struct CarriedParams {
    pub id: u8,
    /// One lane: the inside of a tile is unknown here.
    pub geometry: Geometry,
    pub content: Vec<u8>,
}

impl CarriedParams {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.geometry.ticks as u64);
        put_varint(out, self.content.len() as u64);
        out.extend_from_slice(&self.content);
    }

    pub(crate) fn read(r: &mut Reader<'_>, id: u8) -> Result<CarriedParams> {
        let ticks = r.varint()?;
        if ticks == 0 || ticks > MAX_TILE {
            return Err(Error::Corrupt("tile geometry"));
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("parameters of the codec"))?;
        let content = r.take(len)?.to_vec();
        Ok(CarriedParams { id, geometry: Geometry { lanes: 1, ticks: ticks as usize }, content })
    }
}

/// A tensor as another codec coded it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parcel {
    /// Which codec; one of the carried ones.
    pub codec: Codec,
    /// Element type of the tensor.
    pub dtype: Dtype,
    /// Shape of the tensor.
    pub shape: Vec<usize>,
    /// Transforms of the values before the codec, in order.
    pub transforms: Vec<Transform>,
    /// Values of a full tile, of those that the codec sees; the last tile holds the rest.
    pub tile_values: usize,
    /// Parameters of the codec.
    pub params: Vec<u8>,
}

impl Parcel {
    /// Values of the tensor.
    pub fn values(&self) -> usize {
        byte_len(self.dtype, &self.shape).map_or(0, |n| n / self.dtype.size())
    }

    /// Columns of the two-dimensional view, as [`crate::TensorView::cols`].
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows of the two-dimensional view, as [`crate::TensorView::rows`].
    pub fn rows(&self) -> usize {
        rows_of(&self.shape)
    }

    /// Columns behind the transforms: those that the codec sees.
    pub fn width(&self) -> usize {
        prepare::width_of(&self.transforms, self.cols())
    }

    /// Values that the codec sees: fewer than those of the tensor if a basis has fewer vectors than columns.
    pub fn coded(&self) -> usize {
        let (values, cols) = (self.values(), self.cols());
        if self.width() == cols { values } else { values / cols.max(1) * self.width() }
    }

    /// Tiles of the tensor.
    pub fn tiles(&self) -> usize {
        self.coded().div_ceil(self.tile_values.max(1))
    }

    /// Wraps the tiles in a blob.
    pub fn write(self, tiles: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        let id =
            self.codec.id().filter(|&id| is_carried(id)).ok_or_else(|| {
                Error::InvalidArgument(format!("{} is not a carried codec", self.codec.name()))
            })?;
        if let Some(odd) = self.transforms.iter().find(|transform| !transform.may_be_carried()) {
            return Err(Error::InvalidArgument(format!(
                "the transform {:?} cannot stand before {}",
                odd.name(),
                self.codec.name()
            )));
        }
        prepare::fit(&self.transforms, self.rows(), self.cols())?;
        if self.tile_values == 0 || self.tile_values as u64 > MAX_TILE || tiles.len() != self.tiles() {
            return Err(Error::InvalidArgument(format!(
                "{} tiles of {} values cannot hold {} values",
                tiles.len(),
                self.tile_values,
                self.coded()
            )));
        }
        let sealed: Vec<Sealed> = tiles
            .into_iter()
            .map(|tile| {
                let mut bytes = Vec::with_capacity(tile.len() + 16);
                put_varint(&mut bytes, tile.len() as u64);
                bytes.extend_from_slice(&tile);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                Sealed::new(bytes)
            })
            .collect();
        let geometry = Geometry { lanes: 1, ticks: self.tile_values };
        let params = blob::CodecParams::Carried(CarriedParams { id, geometry, content: self.params });
        let head = Head { dtype: self.dtype, shape: self.shape, transforms: self.transforms, params };
        blob::assemble(&head, sealed, &Workers::current_thread())?.into_blob()
    }
}

/// A blob of a carried codec, its header checked.
pub struct Opened<'a> {
    /// What the header says.
    pub parcel: Parcel,
    frame: Frame,
    blob: &'a [u8],
}

impl<'a> Opened<'a> {
    /// Reads the header of a blob of a carried codec.
    pub fn read(blob: &'a [u8], limits: &Limits) -> Result<Self> {
        let frame = Frame::parse(blob, limits)?;
        frame.check_len(blob.len())?;
        let codec = frame.codec();
        let blob::CodecParams::Carried(params) = &frame.head.params else {
            return Err(Error::InvalidArgument(format!("{} is not a carried codec", codec.name())));
        };
        let parcel = Parcel {
            codec,
            dtype: frame.head.dtype,
            shape: frame.head.shape.clone(),
            transforms: frame.head.transforms.clone(),
            tile_values: params.geometry.ticks,
            params: params.content.clone(),
        };
        Ok(Opened { parcel, frame, blob })
    }

    /// Finds the bases that the blob names. Call it before transforms are undone.
    pub fn resolve(&mut self, known: &[Arc<Basis>]) -> Result<()> {
        let cols = self.parcel.cols();
        prepare::resolve(&mut self.parcel.transforms, known, cols)
    }

    /// The bytes of tile `i`, their checksum verified.
    pub fn tile(&self, i: usize) -> Result<&'a [u8]> {
        if i >= self.frame.tiles() {
            return Err(Error::InvalidArgument(format!(
                "tile {i} does not exist: the blob has {}",
                self.frame.tiles()
            )));
        }
        let mut r = Reader::new(self.frame.tile(self.blob, i)?);
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("a tile's length"))?;
        let bytes = r.take(len)?;
        match r.rest() {
            rest if rest.len() < 4 && rest.iter().all(|&b| b == 0) => Ok(bytes),
            _ => Err(Error::Corrupt("bytes left over at a tile's end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::{Delta, Hadamard, Means, Rotation};

    fn parcel() -> Parcel {
        Parcel {
            codec: Codec::H265,
            dtype: Dtype::F32,
            shape: vec![5, 7],
            transforms: vec![Transform::Hadamard(Hadamard::new(2, 9).unwrap())],
            tile_values: 14,
            params: vec![1, 2, 3],
        }
    }

    #[test]
    fn parcels_come_back() {
        let tiles = vec![vec![9u8; 5], vec![], vec![1, 2, 3]];
        let blob = parcel().write(tiles.clone()).unwrap();
        let opened = Opened::read(&blob, &Limits::default()).unwrap();
        assert_eq!(opened.parcel, parcel());
        for (i, t) in tiles.iter().enumerate() {
            assert_eq!(opened.tile(i).unwrap(), t);
        }
        assert!(opened.tile(3).is_err());
        let info = crate::inspect(&blob).unwrap();
        assert_eq!((info.codec, info.tiles, info.tile_values, info.step), (Codec::H265, 3, 14, None));
        assert!(parcel().write(tiles[..2].to_vec()).is_err());
    }

    #[test]
    fn behind_a_basis_tiles_hold_coordinates() {
        let basis = Arc::new(
            Basis::orthonormal(&[0.0; 7], &[&[1.0][..], &[0.0; 7], &[1.0], &[0.0; 5]].concat()).unwrap(),
        );
        for rotation in [Rotation::named(&basis), Rotation::embedded(&basis)] {
            let embedded = rotation.is_embedded();
            let parcel = Parcel { transforms: vec![Transform::Basis(rotation)], tile_values: 6, ..parcel() };
            assert_eq!((parcel.values(), parcel.width(), parcel.coded(), parcel.tiles()), (35, 2, 10, 2));
            let blob = parcel.write(vec![vec![1], vec![2]]).unwrap();
            let mut opened = Opened::read(&blob, &Limits::default()).unwrap();
            assert_eq!(opened.tile(1).unwrap(), [2]);
            let missing = opened.resolve(&[]);
            assert_eq!(missing.is_ok(), embedded);
            assert!(embedded || matches!(missing, Err(Error::MissingBasis { .. })));
            opened.resolve(std::slice::from_ref(&basis)).unwrap();
            assert!(matches!(&opened.parcel.transforms[..], [Transform::Basis(b)] if b.basis().is_some()));
            assert_eq!(crate::inspect(&blob).unwrap().tiles, 2);
        }
    }

    #[test]
    fn chains_that_readers_would_refuse_are_not_written() {
        let with = |transform| Parcel { transforms: vec![transform], ..parcel() };
        let tiles = vec![vec![], vec![], vec![]];
        assert!(with(Transform::Means(Means::new(&[0.5; 7]))).write(tiles.clone()).is_ok());
        for odd in [
            Transform::Transposed,
            Transform::Delta(Delta::new(4).unwrap()),
            Transform::Means(Means::new(&[0.5; 6])),
        ] {
            assert!(matches!(with(odd).write(tiles.clone()), Err(Error::InvalidArgument(_))));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let blob = parcel().write(vec![vec![9u8; 5], vec![], vec![1, 2, 3]]).unwrap();
        let read = |b: &[u8]| {
            let opened = Opened::read(b, &Limits::default())?;
            (0..opened.parcel.tiles()).map(|i| opened.tile(i).map(<[u8]>::to_vec)).collect::<Result<Vec<_>>>()
        };
        assert!(read(&blob).is_ok());
        for i in 0..blob.len() * 8 {
            let mut bad = blob.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(read(&bad).is_err(), "bit {i}");
            assert!(read(&blob[..i / 8]).is_err(), "cut at {}", i / 8);
        }
    }

    #[test]
    fn native_decoding_says_where_to_go() {
        let blob = parcel().write(vec![vec![], vec![], vec![]]).unwrap();
        let err = crate::decode(&blob, &Default::default()).unwrap_err();
        assert_eq!(err.kind(), crate::engine::ErrorKind::Unsupported);
        assert!(err.to_string().contains("H.265"), "{err}");
        let native = crate::encode(
            &crate::TensorView::from_slice(&[1u8], &[1]).unwrap(),
            &crate::EncodeOptions::new(crate::Goal::Lossless),
        );
        assert!(Opened::read(&native.unwrap(), &Limits::default()).is_err());
    }
}
