//! What a delta's header holds beyond dtype and shape.

use super::check::Fingerprint;
use super::numbers::Way;
use crate::blob::Geometry;
use crate::blob::bytes::{Reader, put_varint};
use crate::entropy::MAX_CLASSES;
use crate::entropy::table::Freqs;
use crate::entropy::table_code::{self, Alphabet, Coded};
use crate::error::{Error, Result};

/// log2 of the sum of a table's frequencies.
pub(super) const LOG: u32 = 12;
/// Most tables of gaps.
pub(super) const MAX_GAPS: usize = 8;

/// Parameters of a delta.
#[derive(Debug, Clone)]
pub(crate) struct DeltaParams {
    /// Fingerprint of the tensor that it belongs to.
    pub(super) base: Fingerprint,
    /// What that becomes; nothing where it stays as it is.
    pub(super) change: Option<Change>,
}

/// What tiles have in common.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Fingerprint of the new tensor.
    pub(super) result: Fingerprint,
    /// Values of a tile, and lanes of its streams.
    pub(super) geometry: Geometry,
    /// Tables of gaps, of which each tile names one.
    pub(super) gaps: Vec<Freqs>,
    /// Smallest key of class 1, 2, …
    pub(super) thresholds: Vec<u8>,
    /// For each way of telling values that occurs: a table for each class.
    pub(super) ways: [Vec<Freqs>; 3],
}

impl Change {
    pub(super) fn classes(&self) -> usize {
        self.thresholds.len() + 1
    }

    /// The class of a key.
    pub(super) fn class_of(&self) -> [u8; 256] {
        std::array::from_fn(|key| self.thresholds.iter().filter(|&&t| usize::from(t) <= key).count() as u8)
    }

    fn tables(&self) -> impl Iterator<Item = &Freqs> {
        self.gaps.iter().chain(self.ways.iter().flatten())
    }
}

impl DeltaParams {
    /// Of a delta that changes nothing there are no tiles.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.change.as_ref().map(|change| change.geometry)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.0);
        let Some(change) = &self.change else {
            out.push(0);
            return;
        };
        let ways = Way::ALL.iter().map(|&way| u8::from(!change.ways[way as usize].is_empty()) << way as u8);
        out.push(1 | ways.sum::<u8>() << 1);
        out.extend_from_slice(&change.result.0);
        change.geometry.write(out);
        out.push(change.gaps.len() as u8);
        out.push(change.classes() as u8);
        out.extend_from_slice(&change.thresholds);
        let mut tables: Vec<Coded> = Vec::new();
        let mut before: Option<&Freqs> = None;
        for table in change.tables() {
            let again = before == Some(table);
            tables.push(if again { Coded::Again } else { Coded::Measured(table.clone()) });
            before = Some(table);
        }
        let bytes = table_code::write(tables.iter().map(|t| (t, Alphabet::bytes(LOG))));
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<DeltaParams> {
        let base = Fingerprint(r.array()?);
        let flags = r.u8()?;
        if flags == 0 {
            return Ok(DeltaParams { base, change: None });
        }
        if flags & 1 == 0 || flags > 15 || flags == 1 {
            return Err(Error::Corrupt("flags of a delta"));
        }
        let result = Fingerprint(r.array()?);
        let geometry = Geometry::read(r)?;
        let (gaps, classes) = (usize::from(r.u8()?), usize::from(r.u8()?));
        if !(1..=MAX_GAPS).contains(&gaps) || !(1..=MAX_CLASSES).contains(&classes) {
            return Err(Error::Corrupt("number of a delta's tables"));
        }
        let thresholds = r.take(classes - 1)?.to_vec();
        if thresholds.first() == Some(&0) || !thresholds.is_sorted_by(|a, b| a < b) {
            return Err(Error::Corrupt("classes of a delta are not in order"));
        }
        let len = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("length of the tables"))?;
        let ways = (flags >> 1).count_ones() as usize;
        let alphabets = vec![Alphabet::bytes(LOG); gaps + ways * classes];
        let mut read = table_code::read(r.take(len)?, &alphabets)?.into_iter();
        let gaps = read.by_ref().take(gaps).collect();
        let mut of_way = |way: usize| match flags >> (1 + way) & 1 {
            1 => read.by_ref().take(classes).collect(),
            _ => Vec::new(),
        };
        let ways = [of_way(0), of_way(1), of_way(2)];
        Ok(DeltaParams { base, change: Some(Change { result, geometry, gaps, thresholds, ways }) })
    }
}
