//! From the head of a GGUF file to checked descriptors: every range lies inside the file, names are
//! unique and tensors do not overlap, all before any tensor is read.
//!
//! Header, metadata values and tensor descriptors are parsed by `gguf-rs-lib`, value by value: its whole-file
//! reader refuses metadata keys with a hyphen, which published models have (`command-r.block_count`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use gguf_rs_lib::error::GGUFError;
use gguf_rs_lib::format::endian::{read_u32, read_u64};
use gguf_rs_lib::format::{
    GGUF_MAX_DIMENSIONS, GGUF_MAX_METADATA_KEY_LENGTH, GGUF_MAX_TENSOR_NAME_LENGTH, GGUFHeader,
    GGUFTensorType, GGUFValueType, Metadata, MetadataValue, TensorInfo,
};

use crate::error::{Error, Result};

/// One tensor as the file describes it.
pub(super) struct Descriptor {
    pub name: String,
    /// Outermost dimension first; GGUF stores the innermost first.
    pub shape: Vec<usize>,
    pub kind: GGUFTensorType,
    /// Values, the product of the shape.
    pub values: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes as stored.
    pub bytes: u64,
}

/// The head of a file.
pub(super) struct Head {
    pub metadata: BTreeMap<String, String>,
    pub tensors: Vec<Descriptor>,
}

pub(super) fn read_head(file: &File, path: &Path) -> Result<Head> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    let file_len = file.metadata().map_err(io_error)?.len();
    let mut reader = Reader { inner: BufReader::new(file), path };

    let header = GGUFHeader::read_from(&mut reader.inner).map_err(|e| reader.error("header", e))?;
    header.validate_comprehensive().map_err(|e| reader.error("header", e))?;
    let (metadata, alignment) = reader.read_metadata(header.metadata_kv_count)?;
    // No reservation from the count: a short file may claim a million tensors.
    let mut infos = Vec::new();
    for index in 0..header.tensor_count {
        infos.push(reader.read_descriptor(index)?);
    }
    let end = reader.inner.stream_position().map_err(io_error)?;
    let data = end.checked_next_multiple_of(alignment).ok_or_else(|| reader.bad("alignment overflows"))?;

    let mut tensors = Vec::with_capacity(infos.len());
    for info in infos {
        tensors.push(locate(info, data, alignment, file_len).map_err(|reason| reader.bad(reason))?);
    }
    check_unique(&tensors).map_err(|reason| reader.bad(reason))?;
    check_disjoint(&tensors).map_err(|reason| reader.bad(reason))?;
    Ok(Head { metadata, tensors })
}

struct Reader<'a> {
    inner: BufReader<&'a File>,
    path: &'a Path,
}

impl Reader<'_> {
    fn bad(&self, reason: impl Into<String>) -> Error {
        Error::Malformed { path: self.path.to_owned(), reason: reason.into() }
    }

    /// Who must act: a short file is bad data, a failing disk is not.
    fn error(&self, place: &str, error: GGUFError) -> Error {
        match error {
            GGUFError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.bad(format!("truncated in {place}"))
            }
            GGUFError::Io(source) => Error::Io { path: self.path.to_owned(), source },
            GGUFError::UnexpectedEof => self.bad(format!("truncated in {place}")),
            GGUFError::UnsupportedVersion(v) => Error::Unsupported {
                path: self.path.to_owned(),
                what: format!("GGUF version {v} (this build reads version 3)"),
            },
            other => self.bad(format!("{place}: {other}")),
        }
    }

    /// Scalars and strings under their own names, and the alignment of tensor data. Arrays (vocabularies) are skipped:
    /// they are not text and would dwarf a safetensors header.
    fn read_metadata(&mut self, count: u64) -> Result<(BTreeMap<String, String>, u64)> {
        let mut seen = HashSet::new();
        let mut kept = BTreeMap::new();
        let mut alignment = Metadata { data: HashMap::new() };
        for _ in 0..count {
            let (key, value) = self.read_entry().map_err(|e| self.error("metadata", e))?;
            if key == "general.alignment" {
                alignment.data.insert(key.clone(), value.clone());
            }
            if !matches!(value, MetadataValue::Array(_)) {
                kept.insert(key.clone(), value.to_string_representation());
            }
            if let Some(twice) = seen.replace(key) {
                return Err(self.bad(format!("metadata key {twice:?} appears twice")));
            }
        }
        // Refuses zero and anything that is not a multiple of eight.
        let alignment = alignment.tensor_alignment().map_err(|e| self.error("metadata", e))?;
        Ok((kept, alignment as u64))
    }

    fn read_entry(&mut self) -> Result<(String, MetadataValue), GGUFError> {
        let key = self.read_string(GGUF_MAX_METADATA_KEY_LENGTH)?;
        let kind = GGUFValueType::from_u32(read_u32(&mut self.inner)?)?;
        Ok((key, MetadataValue::read_from(&mut self.inner, kind)?))
    }

    /// A length and that many bytes of UTF-8, at most `limit`.
    fn read_string(&mut self, limit: usize) -> Result<String, GGUFError> {
        let len = read_u64(&mut self.inner)?;
        let len = usize::try_from(len).ok().filter(|&n| n <= limit);
        let len = len.ok_or_else(|| GGUFError::Format(format!("a name is longer than {limit} bytes")))?;
        let mut bytes = vec![0; len];
        self.inner.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| GGUFError::Format("a name is not UTF-8".into()))
    }

    fn read_descriptor(&mut self, index: u64) -> Result<TensorInfo> {
        let start = self.inner.stream_position();
        let failure = match TensorInfo::read_from(&mut self.inner) {
            Ok(info) => return Ok(info),
            Err(e) => e,
        };
        // A type that the parser does not know makes it fail without saying for which tensor: look again.
        let again = start.map_err(GGUFError::Io).and_then(|at| self.read_name_and_type(at));
        Err(match again {
            Ok((name, kind)) if GGUFTensorType::from_u32(kind).is_err() => Error::Unsupported {
                path: self.path.to_owned(),
                what: format!("tensor {name:?} of type number {kind}"),
            },
            Ok((name, _)) => self.error(&format!("descriptor of tensor {name:?}"), failure),
            Err(_) => self.error(&format!("descriptor {index}"), failure),
        })
    }

    fn read_name_and_type(&mut self, at: u64) -> Result<(String, u32), GGUFError> {
        self.inner.seek(SeekFrom::Start(at))?;
        let name = self.read_string(GGUF_MAX_TENSOR_NAME_LENGTH)?;
        let dims = read_u32(&mut self.inner)?;
        if dims as usize > GGUF_MAX_DIMENSIONS {
            return Err(GGUFError::Format("too many dimensions".into()));
        }
        for _ in 0..dims {
            read_u64(&mut self.inner)?;
        }
        Ok((name, read_u32(&mut self.inner)?))
    }
}

/// Places a tensor in the file, or says what is wrong with it.
fn locate(info: TensorInfo, data: u64, alignment: u64, file_len: u64) -> Result<Descriptor, String> {
    let name = info.name;
    let bad = |what: &str| format!("tensor {name:?}: {what}");
    let kind = GGUFTensorType::from_u32(info.tensor_type).map_err(|e| bad(&e.to_string()))?;
    let shape: Option<Vec<usize>> = info.dimensions.iter().rev().map(|&d| usize::try_from(d).ok()).collect();
    let shape = shape.ok_or_else(|| bad("a dimension does not fit this machine"))?;
    // As in the codec, a zero anywhere makes the tensor empty, whatever the rest multiplies to.
    let values = match info.dimensions.contains(&0) {
        true => Some(0),
        false => info.dimensions.iter().try_fold(1u64, |n, &d| n.checked_mul(d)),
    };
    let values = values.ok_or_else(|| bad("the number of values overflows"))?;
    let block_values = kind.block_size() as u64;
    let block_bytes = kind.block_size_bytes().unwrap_or(0) as u64;
    let innermost = info.dimensions.first().copied().unwrap_or(1);
    if block_values == 0 || block_bytes == 0 || !innermost.is_multiple_of(block_values) {
        return Err(bad(&format!("rows of {innermost} values do not divide into blocks of {}", kind.name())));
    }
    let bytes = (values / block_values).checked_mul(block_bytes);
    let bytes = bytes.ok_or_else(|| bad("the size in bytes overflows"))?;
    if !info.offset.is_multiple_of(alignment) {
        return Err(bad(&format!("offset {} is not a multiple of {alignment}", info.offset)));
    }
    let start = data.checked_add(info.offset);
    let range = start.and_then(|at| Some((at, at.checked_add(bytes)?))).filter(|&(_, end)| end <= file_len);
    let Some((offset, _)) = range else {
        return Err(bad(&format!("its {bytes} bytes at {} lie past the end of the file", info.offset)));
    };
    Ok(Descriptor { shape, kind, values, offset, bytes, name })
}

fn check_unique(tensors: &[Descriptor]) -> Result<(), String> {
    let mut seen = HashSet::with_capacity(tensors.len());
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        Some(twice) => Err(format!("tensor {:?} appears twice", twice.name)),
        None => Ok(()),
    }
}

/// Overlaps are refused: no writer makes them, and a million descriptors of the same bytes would make a
/// small file expand without end.
fn check_disjoint(tensors: &[Descriptor]) -> Result<(), String> {
    let mut order: Vec<&Descriptor> = tensors.iter().filter(|t| t.bytes > 0).collect();
    order.sort_by_key(|t| t.offset);
    match order.windows(2).find(|w| w[0].offset + w[0].bytes > w[1].offset) {
        Some(w) => Err(format!("tensors {:?} and {:?} overlap", w[0].name, w[1].name)),
        None => Ok(()),
    }
}
