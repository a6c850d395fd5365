//! The JSON header of a safetensors file: parsing with every check, and writing.
//!
//! What is refused: names or metadata keys that occur twice, offsets that overlap, leave holes or run
//! past the file, and sizes that do not follow from dtype and shape.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use safetensors::Dtype;
use safetensors::tensor::TensorInfo as StoredInfo;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Name under which a header keeps its key/value metadata.
const METADATA: &str = "__metadata__";

/// One tensor of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Entry {
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }
}

/// A header: metadata and tensors, both in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub metadata: Vec<(String, String)>,
    pub entries: Vec<Entry>,
}

impl Header {
    /// Parses a header and checks it against the bytes that follow it in the file.
    pub fn parse(json: &[u8], data_len: u64) -> Result<Header, String> {
        let header: Header =
            serde_json::from_slice(json).map_err(|e| format!("the header is not valid: {e}"))?;
        header.check(data_len)?;
        Ok(header)
    }

    /// Indices of the entries in the order of their bytes; ties (empty tensors) keep the header's order.
    pub fn data_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|&i| (self.entries[i].begin, self.entries[i].end, i));
        order
    }

    /// The header as compact JSON, without padding.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    fn check(&self, data_len: u64) -> Result<(), String> {
        for entry in &self.entries {
            let Entry { name, dtype, shape, begin, end } = entry;
            if end < begin {
                return Err(format!("tensor {name:?} ends at {end}, before it begins at {begin}"));
            }
            let need = tensor_bytes(*dtype, shape)
                .ok_or_else(|| format!("tensor {name:?} of shape {shape:?} has too many elements"))?;
            if need != end - begin {
                return Err(format!(
                    "tensor {name:?} ({dtype}, shape {shape:?}) takes {need} bytes, but its offsets span {}",
                    end - begin
                ));
            }
            if *end > data_len {
                return Err(format!(
                    "tensor {name:?} ends at byte {end}, but only {data_len} bytes follow the header"
                ));
            }
        }
        let mut at = 0;
        let mut before = "";
        for i in self.data_order() {
            let entry = &self.entries[i];
            if entry.begin < at {
                return Err(format!("tensors {before:?} and {:?} overlap", entry.name));
            }
            if entry.begin > at {
                return Err(format!("no tensor holds bytes {at} to {}", entry.begin));
            }
            at = entry.end;
            before = &entry.name;
        }
        if at != data_len {
            return Err(format!("the tensors end at byte {at}, but {data_len} bytes follow the header"));
        }
        Ok(())
    }
}

/// Bytes of a tensor; `None` if the number does not fit or is not whole.
pub(crate) fn tensor_bytes(dtype: Dtype, shape: &[usize]) -> Option<u64> {
    let bits = shape.iter().try_fold(dtype.bitsize(), |n, &d| n.checked_mul(d))?;
    (bits % 8 == 0 && isize::try_from(bits / 8).is_ok()).then_some(bits as u64 / 8)
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, &Pairs(&self.metadata))?;
        }
        for entry in &self.entries {
            // Both fit: they were read as usize or follow from sizes in memory.
            let data_offsets = (entry.begin as usize, entry.end as usize);
            let info = StoredInfo { dtype: entry.dtype, shape: entry.shape.clone(), data_offsets };
            map.serialize_entry(&entry.name, &info)?;
        }
        map.end()
    }
}

struct Pairs<'a>(&'a [(String, String)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(k, v)| (k, v)))
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tensor names to dtype, shape and offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut seen = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(duplicate(&name));
                    }
                    if name == METADATA {
                        header.metadata =
                            map.next_value::<Option<UniqueMap<String>>>()?.unwrap_or_default().0;
                        continue;
                    }
                    let info: StoredInfo = map.next_value()?;
                    let (begin, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
                    header.entries.push(Entry { name, dtype: info.dtype, shape: info.shape, begin, end });
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}

fn duplicate<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("the name {name:?} occurs twice"))
}

/// A JSON map that keeps its order and refuses a key that occurs twice.
#[derive(Debug)]
pub(crate) struct UniqueMap<V>(pub Vec<(String, V)>);

impl<V> Default for UniqueMap<V> {
    fn default() -> Self {
        UniqueMap(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for MapVisitor<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<V>, A::Error> {
                let mut pairs = Vec::new();
                let mut seen = HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if !seen.insert(key.clone()) {
                        return Err(duplicate(&key));
                    }
                    pairs.push((key, value));
                }
                Ok(UniqueMap(pairs))
            }
        }

        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}
