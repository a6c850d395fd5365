//! Classes of statistics: values of similar expected size share a table.
//!
//! The expected size of a value is the scale of its row times that of its column, both kept as small
//! logarithms; their sum picks the class. Normative: docs/format.md, 'Classes'.

use super::MAX_CLASSES;
use super::bits::unpack;
use crate::blob::bytes::{Reader, put_varint};
use crate::error::{Error, Result};

/// Most bits of a row's or column's scale.
pub const MAX_SCALE_BITS: u32 = 6;
/// Stands for the bits of column scales if the basis supplies the scales.
pub const KNOWN_SCALES: u32 = 15;

/// Which class each value has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassMap {
    /// Values of a row of the map. Rows need not be those of the tensor.
    pub width: usize,
    /// Scale of each row; empty where all are equal.
    pub rows: Vec<u8>,
    /// Scale of each column; empty where all are equal.
    pub cols: Vec<u8>,
    /// Whether the basis before the codec supplies the column scales.
    pub known: bool,
    /// Smallest sum of scales that belongs to class 1, 2, …
    pub thresholds: Vec<u8>,
    /// Whether values of odd number have the class of the value before them.
    pub paired: bool,
}

impl ClassMap {
    /// Number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.thresholds.len() + 1
    }

    /// Fills in the classes of consecutive values from value `start` on.
    pub(crate) fn fill(&self, start: usize, out: &mut [u8]) {
        self.fill_each(start, out);
        if !self.paired {
            return;
        }
        // The class of the pair that the first value is the second of.
        let odd = start % 2;
        if let (1, Some(first)) = (odd, out.first_mut()) {
            self.fill_each(start - 1, std::slice::from_mut(first));
        }
        for pair in out.get_mut(odd..).unwrap_or_default().as_chunks_mut::<2>().0 {
            pair[1] = pair[0];
        }
    }

    fn fill_each(&self, start: usize, out: &mut [u8]) {
        let mut at = start;
        let mut rest = out;
        while !rest.is_empty() {
            let (row, col) = (at / self.width, at % self.width);
            let n = (self.width - col).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            let r = self.rows.get(row).copied().unwrap_or(0);
            match self.cols.get(col..col + n) {
                Some(cols) => self.classes_of(r, cols, now),
                None => {
                    let mut class = [0];
                    self.classes_of(r, &[0], &mut class);
                    now.fill(class[0]);
                }
            }
            at += n;
            rest = later;
        }
    }

    /// Classes of the values of a row: as many as thresholds are at or below the sum of scales. All thresholds are compared with
    /// many sums at once, which vectors do faster than look-ups.
    fn classes_of(&self, row: u8, cols: &[u8], out: &mut [u8]) {
        const AT_ONCE: usize = 64;
        for (cols, out) in cols.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
            let (mut sums, mut classes) = ([0u8; AT_ONCE], [0u8; AT_ONCE]);
            sums.iter_mut().zip(cols).for_each(|(s, &c)| *s = row + c);
            for &threshold in &self.thresholds {
                for (class, &sum) in classes.iter_mut().zip(&sums) {
                    *class += (threshold <= sum) as u8;
                }
            }
            out.copy_from_slice(&classes[..out.len()]);
        }
    }

    /// Appends the map to a header.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.width as u64);
        let bits = |v: &[u8]| v.iter().max().map_or(0, |&m| 8 - m.leading_zeros());
        let (row_bits, col_bits) =
            (bits(&self.rows), if self.known { KNOWN_SCALES } else { bits(&self.cols) });
        out.push((row_bits | col_bits << 4) as u8);
        out.extend_from_slice(&self.thresholds);
        for (values, n) in [(&self.rows, row_bits), (&self.cols, col_bits)] {
            if (1..KNOWN_SCALES).contains(&n) {
                out.extend(super::bits::pack(values.iter().map(|&v| v as u32), n));
            }
        }
    }

    /// Reads a map of `classes` classes over `values` values. `rank` is that of a basis right before the codec: scales that it
    /// knows are left to [`ClassMap::learn`].
    pub(crate) fn read(
        r: &mut Reader<'_>,
        classes: usize,
        values: usize,
        rank: Option<usize>,
    ) -> Result<ClassMap> {
        if !(2..=MAX_CLASSES).contains(&classes) {
            return Err(Error::Corrupt("number of classes"));
        }
        let width = usize::try_from(r.varint()?).map_err(|_| Error::Corrupt("width of the class map"))?;
        if width == 0 || width > values {
            return Err(Error::Corrupt("width of the class map"));
        }
        let packed = r.u8()? as u32;
        let (row_bits, col_bits) = (packed & 15, packed >> 4);
        let known = col_bits == KNOWN_SCALES;
        if row_bits > MAX_SCALE_BITS || col_bits > MAX_SCALE_BITS && !(known && rank == Some(width)) {
            return Err(Error::Corrupt("bits of a scale"));
        }
        let thresholds = r.take(classes - 1)?.to_vec();
        if thresholds.windows(2).any(|w| w[0] >= w[1]) || thresholds.first() == Some(&0) {
            return Err(Error::Corrupt("class thresholds are not increasing"));
        }
        let mut scales = |count: usize, bits: u32| -> Result<Vec<u8>> {
            if bits == 0 || bits == KNOWN_SCALES {
                return Ok(Vec::new());
            }
            // The packed bytes exist before memory is allocated: at most eight scales a byte.
            let len =
                count.checked_mul(bits as usize).ok_or(Error::Corrupt("size of the class map"))?.div_ceil(8);
            let bytes = r.take(len)?;
            let mut out = vec![0u8; count];
            let mut chunk = [0u32; 256];
            for (i, out) in out.chunks_mut(256).enumerate() {
                unpack(bytes, bits, i * 256, &mut chunk[..out.len()]);
                out.iter_mut().zip(chunk).for_each(|(o, v)| *o = v as u8);
            }
            Ok(out)
        };
        let rows = scales(values.div_ceil(width), row_bits)?;
        let cols = scales(width, col_bits)?;
        Ok(ClassMap { width, rows, cols, known, thresholds, paired: false })
    }

    /// Takes the column scales from the basis, if the map relies on them.
    pub(crate) fn learn(&mut self, scales: &[u8]) -> Result<()> {
        if self.known {
            if scales.len() != self.width {
                return Err(Error::Corrupt("the basis has no scales"));
            }
            self.cols = scales.to_vec();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_come_back_and_fill_from_anywhere() {
        let map = ClassMap {
            width: 5,
            rows: vec![0, 9, 3, 1],
            cols: vec![4, 0, 1, 7, 2],
            known: false,
            thresholds: vec![3, 8],
            paired: false,
        };
        let mut bytes = Vec::new();
        map.write(&mut bytes);
        let back = ClassMap::read(&mut Reader::new(&bytes), 3, 18, None).unwrap();
        assert_eq!(back, map);
        let known = ClassMap { known: true, ..map.clone() };
        let mut short = Vec::new();
        known.write(&mut short);
        assert!(short.len() < bytes.len());
        for rank in [None, Some(4)] {
            assert!(ClassMap::read(&mut Reader::new(&short), 3, 18, rank).is_err());
        }
        let mut back = ClassMap::read(&mut Reader::new(&short), 3, 18, Some(5)).unwrap();
        assert!(back.learn(&[]).is_err());
        back.learn(&map.cols).unwrap();
        assert_eq!(back, known);
        let mut all = [0u8; 18];
        map.fill(0, &mut all);
        assert_eq!(all[..5], [1, 0, 0, 1, 0]);
        assert_eq!(all[5..10], [2, 2, 2, 2, 2]);
        let mut part = [0u8; 9];
        map.fill(7, &mut part);
        assert_eq!(part, all[7..16]);
        let pairs = ClassMap { paired: true, ..map };
        let mut of_pairs = [0u8; 18];
        pairs.fill(0, &mut of_pairs);
        assert!(of_pairs.chunks(2).zip(all.chunks(2)).all(|(p, a)| p == [a[0]; 2]));
        pairs.fill(7, &mut part);
        assert_eq!(part, of_pairs[7..16]);
    }
}
