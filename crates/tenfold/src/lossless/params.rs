//! What a lossless blob's header holds beyond dtype and shape.

use crate::blob::Geometry;
use crate::blob::bytes::{Reader, put_varint};
use crate::entropy::table::Freqs;
use crate::entropy::table_code::{self, Alphabet, Coded};
use crate::error::{Error, Result};
use crate::view::Dtype;

/// log2 of the sum of a table's frequencies.
pub const LOG: u32 = 12;

/// Parameters of a lossless blob.
#[derive(Debug, Clone)]
pub(crate) struct PlanesParams {
    pub geometry: Geometry,
    /// Table of each plane, lowest byte first; planes without one are never entropy-coded.
    pub tables: Vec<Option<Freqs>>,
}

impl PlanesParams {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.geometry.write(out);
        let present = self.tables.iter().enumerate().map(|(i, t)| (t.is_some() as u8) << i).sum();
        out.push(present);
        let tables: Vec<Coded> = self.tables.iter().flatten().cloned().map(Coded::Measured).collect();
        let bytes = table_code::write(tables.iter().map(|t| (t, Alphabet::bytes(LOG))));
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }

    pub(crate) fn read(r: &mut Reader<'_>, dtype: Dtype) -> Result<PlanesParams> {
        let geometry = Geometry::read(r)?;
        let present = r.u8()?;
        if dtype.size() < 8 && present >> dtype.size() != 0 {
            return Err(Error::Corrupt("a table for a plane that does not exist"));
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("length of the tables"))?;
        let alphabets = vec![Alphabet::bytes(LOG); present.count_ones() as usize];
        let read = table_code::read(r.take(len)?, &alphabets)?;
        let mut read = read.into_iter();
        let tables =
            (0..dtype.size()).map(|i| if present >> i & 1 == 1 { read.next() } else { None }).collect();
        Ok(PlanesParams { geometry, tables })
    }
}
