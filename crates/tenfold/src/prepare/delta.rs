//! Rows as differences from the row before. Normative: docs/format.md, 'Delta'.

use super::real::Real;
use crate::blob::bytes::{Reader, put_varint};
use crate::error::{Error, Result};

/// Most rows of a group: readers decode a whole group for one of its rows.
const MOST: u64 = 4096;

/// Differences of rows within groups of some rows; the first of each group stays as it is.
///
/// What a quantiser gets wrong adds up from row to row, so groups are short: the mean squared error of the tensor is about
/// (group + 1) / 2 times that of the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    group: usize,
}

impl Delta {
    /// Groups of 2 to 4096 rows.
    pub fn new(group: usize) -> Result<Self> {
        match group as u64 {
            2..=MOST => Ok(Delta { group }),
            _ => {
                Err(Error::InvalidArgument(format!("a delta group must have 2 to {MOST} rows, not {group}")))
            }
        }
    }

    /// Rows of a group.
    pub fn group(&self) -> usize {
        self.group
    }

    pub(super) fn forward<R: Real>(&self, values: &mut [R], cols: usize) {
        self.groups(values, cols, |group, cols| {
            for at in (cols..group.len()).rev() {
                group[at] = group[at].plus(group[at - cols].times(R::from_f64(-1.0)));
            }
        });
    }

    pub(super) fn inverse<R: Real>(&self, values: &mut [R], cols: usize) {
        self.groups(values, cols, |group, cols| {
            for at in cols..group.len() {
                group[at] = group[at].plus(group[at - cols]);
            }
        });
    }

    fn groups<R: Real>(&self, values: &mut [R], cols: usize, f: impl Fn(&mut [R], usize)) {
        let cols = cols.max(1);
        values.chunks_mut(self.group * cols).for_each(|group| f(group, cols));
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.group as u64);
        out
    }

    pub(super) fn read(content: &[u8]) -> Result<Self> {
        let mut r = Reader::new(content);
        match r.varint() {
            Ok(group @ 2..=MOST) if r.rest().is_empty() => Ok(Delta { group: group as usize }),
            _ => Err(Error::Corrupt("delta step")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_groups_start_anew() {
        let values: Vec<f64> = (0..14).map(|i| f64::from(i * i)).collect();
        let delta = Delta::new(3).unwrap();
        let mut turned = values.clone();
        delta.forward(&mut turned, 2);
        assert_eq!(turned[..8], [0.0, 1.0, 4.0, 8.0, 12.0, 16.0, 36.0, 49.0]);
        delta.inverse(&mut turned, 2);
        assert_eq!(turned, values);
    }

    #[test]
    fn stored_form_has_one_spelling() {
        let delta = Delta::new(200).unwrap();
        assert_eq!(Delta::read(&delta.write()).unwrap(), delta);
        assert!(Delta::new(1).is_err() && Delta::new(4097).is_err());
        for bad in [&[][..], &[1], &[0x81, 0x40], &[3, 0]] {
            assert_eq!(Delta::read(bad), Err(Error::Corrupt("delta step")));
        }
    }
}
