//! Writes a delta. What is in it shows only when every tensor has been looked at, so tensors gather in a spool, and the file is
//! put together at the end: its header is as short as can be, and its order does not depend on who was ready first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tenfold::delta::Fingerprint;

use super::record::{Record, Said};
use super::report::{DeltaReport, DeltaRow, row};
use super::tensors::Meta;
use crate::error::{Error, Result};
use crate::model::{Item, Shard};
use crate::output::{Staging, Target};
use crate::safetensors::{Entry, Header, StoredDtype};
use crate::tags::{self, DELTA};

/// Longest header that readers accept.
const MAX_HEADER: usize = 100_000_000;

/// A tensor to write.
pub(super) struct Content {
    pub name: String,
    pub said: Said,
    /// What the bytes are; `None` where there are none.
    pub meta: Option<Meta>,
    pub data: Vec<u8>,
    pub is_blob: bool,
    pub changed: Option<u64>,
}

/// A tensor that was written to the spool.
struct Kept {
    meta: Meta,
    is_blob: bool,
    place: Range<u64>,
    sum: Option<u32>,
}

/// Where tensors wait.
enum Spool {
    Memory(Vec<u8>),
    File(Box<BufWriter<File>>),
}

/// A delta being written.
pub(super) struct Writer {
    label: PathBuf,
    spool: Spool,
    at: u64,
    kept: Vec<Kept>,
    said: BTreeMap<String, Said>,
    rows: Vec<DeltaRow>,
}

/// What else a delta says.
pub(super) struct Frame {
    pub base: Fingerprint,
    pub result: Fingerprint,
    pub removed: Vec<String>,
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Writer {
    /// A delta that becomes bytes.
    pub fn in_memory() -> Writer {
        Writer::new(Path::new("delta"), Spool::Memory(Vec::new()))
    }

    /// A delta that becomes a file; what gathers lies beside it.
    pub fn in_file(staging: &Staging, label: &Path) -> Result<Writer> {
        // Another name than the file's own.
        let name = label.file_name().unwrap_or_default().to_string_lossy();
        let place = staging.path(Path::new(&format!("{name}.spool")));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(place).map_err(Error::io(label))?;
        Ok(Writer::new(label, Spool::File(Box::new(BufWriter::with_capacity(1 << 20, file)))))
    }

    fn new(label: &Path, spool: Spool) -> Writer {
        Writer {
            label: label.to_owned(),
            spool,
            at: 0,
            kept: Vec::new(),
            said: BTreeMap::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a tensor, in any order.
    pub fn put(&mut self, content: Content) -> Result<()> {
        self.rows.push(row(&content, content.data.len() as u64));
        let Content { name, said, meta, data, is_blob, .. } = content;
        self.said.insert(name, said);
        let Some(meta) = meta else { return Ok(()) };
        let place = self.at..self.at + data.len() as u64;
        match &mut self.spool {
            Spool::Memory(bytes) => bytes.extend_from_slice(&data),
            Spool::File(file) => file.write_all(&data).map_err(Error::io(&self.label))?,
        }
        self.at = place.end;
        let sum = (!is_blob).then(|| tags::tensor_checksum(meta.stored, &meta.shape, &data));
        self.kept.push(Kept { meta, is_blob, place, sum });
        Ok(())
    }

    /// The file's bytes.
    pub fn into_bytes(mut self, frame: Frame) -> Result<(Vec<u8>, DeltaReport)> {
        let mut out = self.header(&frame)?;
        if let Spool::Memory(bytes) = &self.spool {
            for kept in &self.kept {
                // Both ends lie in memory.
                out.extend_from_slice(&bytes[kept.place.start as usize..kept.place.end as usize]);
            }
        }
        Ok((out, self.into_report(frame)))
    }

    /// Puts the file into place.
    pub fn into_file(mut self, frame: Frame, staging: Staging, target: &Target) -> Result<DeltaReport> {
        let name = PathBuf::from(target.path().file_name().unwrap_or_default());
        let header = self.header(&frame)?;
        self.copy(&header, &staging.path(&name)).map_err(Error::io(&self.label))?;
        let report = self.into_report(frame);
        staging.commit(&[name])?;
        Ok(report)
    }

    fn copy(&mut self, header: &[u8], place: &Path) -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create_new(place)?);
        out.write_all(header)?;
        if let Spool::File(spool) = &mut self.spool {
            spool.flush()?;
            let spool = spool.get_mut();
            for kept in &self.kept {
                spool.seek(SeekFrom::Start(kept.place.start))?;
                std::io::copy(&mut spool.take(kept.place.end - kept.place.start), &mut out)?;
            }
        }
        out.flush()?;
        out.get_ref().sync_all()
    }

    /// The header with its length, padded. Tensors are in the order of their names; those that are not blobs come first, where they are aligned.
    fn header(&mut self, frame: &Frame) -> Result<Vec<u8>> {
        let cannot = |e: serde_json::Error| {
            Error::malformed(&self.label, format!("the header cannot be written: {e}"))
        };
        let record = Record {
            base: frame.base,
            result: frame.result,
            tensors: std::mem::take(&mut self.said),
            removed: frame.removed.clone(),
            metadata: frame.metadata.clone(),
        };
        let said = record.to_json().map_err(cannot)?;
        self.kept.sort_by(|a, b| (a.is_blob, &a.meta.name).cmp(&(b.is_blob, &b.meta.name)));
        let item = |kept: &Kept| Item {
            name: kept.meta.name.clone(),
            dtype: kept.meta.stored,
            shape: kept.meta.shape.clone(),
            bytes: kept.meta.bytes,
            shard: 0,
        };
        let items: Vec<Item> = self.kept.iter().map(item).collect();
        let shard = Shard {
            path: self.label.clone(),
            file_name: String::new(),
            metadata: vec![(DELTA.to_owned(), said)],
            items: 0..items.len(),
            data_order: (0..items.len()).collect(),
        };
        let metadata = tags::write(&shard, &items, |i| self.kept[i].is_blob)?;
        let mut at = 0;
        let entry = |kept: &Kept| {
            let bytes = kept.place.end - kept.place.start;
            let (dtype, shape) = match kept.is_blob {
                // It lay in memory.
                true => (StoredDtype::U8, vec![bytes as usize]),
                false => (kept.meta.stored, kept.meta.shape.clone()),
            };
            let begin = at;
            at += bytes;
            Entry { name: kept.meta.name.clone(), dtype, shape, begin, end: at }
        };
        let mut header = Header { metadata, entries: self.kept.iter().map(entry).collect() };
        let sums: Vec<Option<u32>> = self.kept.iter().map(|kept| kept.sum).collect();
        tags::seal(&mut header, &sums, &self.label)?;
        let mut json = header.to_json().map_err(cannot)?;
        json.resize(json.len().next_multiple_of(8), b' ');
        if json.len() > MAX_HEADER {
            let reason = format!(
                "the header would take {} bytes, but the format allows {MAX_HEADER}: there are too many tensors",
                json.len()
            );
            return Err(Error::malformed(&self.label, reason));
        }
        let mut out = (json.len() as u64).to_le_bytes().to_vec();
        out.append(&mut json);
        Ok(out)
    }

    fn into_report(mut self, frame: Frame) -> DeltaReport {
        self.rows.sort_by(|a, b| a.name.cmp(&b.name));
        DeltaReport::new(frame.base, frame.result, self.rows, frame.removed)
    }
}

/// Refuses an output that is one of the inputs, however it is spelt.
pub(super) fn check_inputs<'f>(output: &Path, inputs: impl IntoIterator<Item = &'f Path>) -> Result<()> {
    let Ok(place) = output.canonicalize() else { return Ok(()) };
    if inputs.into_iter().any(|input| input.canonicalize().is_ok_and(|input| input == place)) {
        let reason = format!("{} is both input and output; name another output", output.display());
        return Err(Error::InvalidArgument(reason));
    }
    Ok(())
}
