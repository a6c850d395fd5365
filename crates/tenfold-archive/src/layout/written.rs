//! A file that is made of parts of another: its head, and where each part goes, before the first of them has come.

use std::ops::Range;

use super::{Layout, LayoutTensor};
use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::safetensors::{Entry, Header, MAX_HEADER, PREFIX, tensor_bytes};
use crate::tags;

/// A tensor of the file, or rows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// Its number in [`Layout::tensors`].
    pub index: usize,
    /// Rows of its two-dimensional view; `None` for all of them.
    pub rows: Option<Range<usize>>,
}

/// A file to be.
#[derive(Debug, Clone)]
pub struct Written {
    /// Its first bytes, up to the first tensor.
    pub head: Vec<u8>,
    /// Where each pick goes, in the order of the picks.
    pub places: Vec<Range<u64>>,
    /// Bytes of the file.
    pub len: u64,
}

impl Layout {
    /// The file that holds these tensors as they were before compression. With all of them it is the one that
    /// [`decompress`](crate::decompress) writes, byte for byte.
    pub fn restored(&self, picks: &[Pick]) -> Result<Written> {
        if self.is_delta {
            return Err(Error::IsDelta(self.label.clone()));
        }
        let (metadata, order) = match &self.tags {
            Some(tags) => (tags.metadata.clone(), tags.data_order.clone()),
            None => (self.header.metadata.clone(), self.header.data_order()),
        };
        let mut entries = Vec::with_capacity(picks.len());
        for pick in picks {
            let tensor = &self.tensor(pick.index)?.info;
            let shape = match &pick.rows {
                None => tensor.shape.clone(),
                Some(rows) => rows_shape(&tensor.shape, rows).ok_or_else(|| {
                    Error::InvalidArgument(format!("rows {rows:?} are outside tensor {:?}", tensor.name))
                })?,
            };
            let bytes = tensor_bytes(tensor.stored_dtype, &shape).ok_or_else(|| {
                Error::InvalidArgument(format!("tensor {:?} has no whole bytes in a row", tensor.name))
            })?;
            let name = tensor.name.clone();
            entries.push(Entry { name, dtype: tensor.stored_dtype, shape, begin: 0, end: bytes });
        }
        self.place(Header { metadata, entries }, &self.order_of(picks, &order))
    }

    /// The file that holds these tensors as they are stored here, checksums included.
    pub fn subset(&self, indices: &[usize]) -> Result<Written> {
        let picks: Vec<Pick> = indices.iter().map(|&index| Pick { index, rows: None }).collect();
        let mut entries = Vec::with_capacity(indices.len());
        let mut items = Vec::with_capacity(indices.len());
        for &index in indices {
            let LayoutTensor { info, stored } = self.tensor(index)?;
            let entry = &self.header.entries[index];
            let bytes = stored.end - stored.start;
            let (name, shape) = (info.name.clone(), info.shape.clone());
            entries.push(Entry { begin: 0, end: bytes, ..entry.clone() });
            items.push(Item { name, dtype: info.stored_dtype, shape, bytes: info.bytes, shard: 0 });
        }
        let stored_order = self.order_of(&picks, &self.header.data_order());
        let Some(tags) = &self.tags else {
            return self.place(Header { metadata: self.header.metadata.clone(), entries }, &stored_order);
        };
        if tags.plain.is_none() || self.is_delta {
            let what =
                "parts of a delta, or of a file of an earlier version without checksums; take all of it";
            return Err(Error::Unsupported { path: self.label.clone(), what: what.into() });
        }
        let shard = Shard {
            path: self.label.clone(),
            file_name: String::new(),
            metadata: tags.metadata.clone(),
            items: 0..items.len(),
            data_order: self.order_of(&picks, &tags.data_order),
        };
        let metadata = tags::write(&shard, &items, |i| self.tensors[indices[i]].info.compressed)?;
        let mut header = Header { metadata, entries };
        put(&mut header, &stored_order);
        let sums: Vec<Option<u32>> = indices.iter().map(|&i| self.tensors[i].info.checksum).collect();
        tags::seal(&mut header, &sums, &self.label)?;
        self.place(header, &stored_order)
    }

    /// Positions of the picks in the order in which the tensors of the whole file would come.
    fn order_of(&self, picks: &[Pick], order: &[usize]) -> Vec<usize> {
        let mut rank = vec![0; self.tensors.len()];
        order.iter().enumerate().for_each(|(rank_of, &index)| rank[index] = rank_of);
        let mut positions: Vec<usize> = (0..picks.len()).collect();
        positions.sort_by_key(|&i| rank[picks[i].index]);
        positions
    }

    fn place(&self, mut header: Header, order: &[usize]) -> Result<Written> {
        put(&mut header, order);
        let mut json = header
            .to_json()
            .map_err(|e| Error::malformed(&self.label, format!("the header cannot be written: {e}")))?;
        let len = json.len().next_multiple_of(8);
        if len as u64 > MAX_HEADER {
            let reason = format!("the header would take {len} bytes, but the format allows {MAX_HEADER}");
            return Err(Error::malformed(&self.label, reason));
        }
        json.resize(len, b' ');
        let head = [&(len as u64).to_le_bytes(), json.as_slice()].concat();
        let start = PREFIX + len as u64;
        let places: Vec<Range<u64>> =
            header.entries.iter().map(|entry| start + entry.begin..start + entry.end).collect();
        let len = places.iter().map(|place| place.end).max().unwrap_or(start);
        Ok(Written { head, places, len })
    }
}

/// Gives each entry its offsets, in this order.
fn put(header: &mut Header, order: &[usize]) {
    let mut at = 0;
    for &i in order {
        let entry = &mut header.entries[i];
        let bytes = entry.bytes();
        (entry.begin, entry.end) = (at, at + bytes);
        at += bytes;
    }
}

/// Shape of some rows of the two-dimensional view.
fn rows_shape(shape: &[usize], rows: &Range<usize>) -> Option<Vec<usize>> {
    let (&cols, outer) = shape.split_last()?;
    let all = outer.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    (rows.start <= rows.end && rows.end <= all).then(|| vec![rows.end - rows.start, cols])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenfold::{DecodeOptions, EncodeOptions, Goal, TensorView};

    use super::*;
    use crate::{Archive, Content, Silent, assemble, decompress};

    fn model(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
        let path = dir.join("a.safetensors");
        let values: Vec<f32> = (0..6000).map(|i| (i as f32 * 0.3).sin()).collect();
        let view = TensorView::from_slice(&values, &[200, 30]).unwrap();
        let blob = tenfold::encode(&view, &EncodeOptions::new(Goal::Bits(4.0))).unwrap();
        let tensors = [
            ("w".to_owned(), Content::Blob(blob.clone())),
            ("norm".to_owned(), Content::Plain(tenfold::Dtype::U16, vec![2], vec![1, 0, 2, 0])),
            ("v".to_owned(), Content::Blob(blob)),
        ];
        assemble(&path, vec![("k".into(), "v".into())], &tensors, false).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    }

    fn parse(bytes: &[u8]) -> Layout {
        let label = Path::new("a.safetensors");
        let len = Layout::head_len(bytes[..8].try_into().unwrap(), bytes.len() as u64, label).unwrap();
        Layout::parse(&bytes[..len as usize], bytes.len() as u64, label).unwrap()
    }

    /// Fills a file to be with what `part` gives.
    fn fill(written: &Written, part: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
        let mut out = written.head.clone();
        out.resize(written.len as usize, 0);
        for (i, place) in written.places.iter().enumerate() {
            out[place.start as usize..place.end as usize].copy_from_slice(&part(i));
        }
        out
    }

    #[test]
    fn the_whole_file_restored_is_what_decompress_writes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes) = model(dir.path());
        let layout = parse(&bytes);
        let archive = Archive::open(&path).unwrap();
        let picks: Vec<Pick> = (0..3).map(|index| Pick { index, rows: None }).collect();
        let made = fill(&layout.restored(&picks).unwrap(), |i| {
            archive.read(i, &DecodeOptions::default()).unwrap().data
        });
        let plain = dir.path().join("plain.safetensors");
        decompress(&path, &plain, &DecodeOptions::default(), false, &Silent).unwrap();
        assert!(made == std::fs::read(plain).unwrap());
    }

    #[test]
    fn parts_read_as_the_whole_does() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes) = model(dir.path());
        let (layout, archive) = (parse(&bytes), Archive::open(&path).unwrap());
        for picked in [vec![0], vec![1], vec![2, 1], vec![0, 1, 2]] {
            let made = fill(&layout.subset(&picked).unwrap(), |i| {
                let stored = &layout.tensors()[picked[i]].stored;
                bytes[stored.start as usize..stored.end as usize].to_vec()
            });
            let part = Archive::parse(made, Path::new("part")).unwrap();
            assert_eq!(part.tensors().len(), picked.len());
            for (i, &index) in picked.iter().enumerate() {
                let (a, b) =
                    (part.read(i, &DecodeOptions::default()), archive.read(index, &DecodeOptions::default()));
                assert_eq!(a.unwrap().data, b.unwrap().data);
                assert_eq!(part.tensors()[i].name, archive.tensors()[index].name);
            }
        }
        let rows = layout.restored(&[Pick { index: 2, rows: Some(10..20) }]).unwrap();
        assert_eq!(rows.len - rows.head.len() as u64, 10 * 30 * 4);
        assert!(layout.restored(&[Pick { index: 2, rows: Some(10..201) }]).is_err());
    }

    #[test]
    fn checks_know_right_bytes_from_wrong_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (_, bytes) = model(dir.path());
        let layout = parse(&bytes);
        let stored = |i: usize| {
            let range = layout.tensors()[i].stored.clone();
            &bytes[range.start as usize..range.end as usize]
        };
        assert!(layout.check_blob(0, stored(0)).is_ok());
        assert!(layout.check_blob(0, stored(1)).is_err());
        let mut sum = layout.plain_sum(1).unwrap().unwrap();
        sum.update(stored(1));
        assert!(sum.is_right());
        let mut sum = layout.plain_sum(1).unwrap().unwrap();
        sum.update(&[1, 0, 2, 1]);
        assert!(!sum.is_right());
        assert!(layout.plain_sum(0).unwrap().is_none());
    }
}
