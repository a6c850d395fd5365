//! What a delta says of itself: the JSON under `tenfold.delta` in the file's metadata.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenfold::delta::Fingerprint;

use super::DELTA_FORMAT;
use super::fingerprint::from_hex;
use crate::error::{Error, Result};
use crate::safetensors::UniqueMap;
use crate::tags::DELTA;

/// How a tensor of the result comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum How {
    /// From the base's tensor, by a blob of what changed: bit for bit.
    Delta,
    /// From the base's tensor, by adding a tensor that was coded with loss.
    Difference,
    /// It is in the file whole: it is new, or its dtype or number of values changed.
    Stored,
    /// It is a tensor of the base under another name.
    Copy,
}

impl How {
    /// Its name, in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            How::Delta => "delta",
            How::Difference => "difference",
            How::Stored => "stored",
            How::Copy => "copy",
        }
    }

    fn from_name(name: &str) -> Option<How> {
        [How::Delta, How::Difference, How::Stored, How::Copy].into_iter().find(|how| how.name() == name)
    }
}

/// What is said of one tensor of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub how: How,
    /// Tensor of the base that it is made of, where that has another name.
    pub from: Option<String>,
    /// Fingerprints of that and of the result. Delta blobs have their own.
    pub base: Option<Fingerprint>,
    pub result: Option<Fingerprint>,
}

impl Said {
    /// Whether it goes without saying: a delta of the tensor of the same name.
    fn is_plain(&self) -> bool {
        self.how == How::Delta && self.from.is_none()
    }
}

/// All that is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub base: Fingerprint,
    pub result: Fingerprint,
    pub tensors: BTreeMap<String, Said>,
    pub removed: Vec<String>,
    /// The result's metadata, where it is not the base's.
    pub metadata: Option<BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    base: String,
    result: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tensors: BTreeMap<&'a str, Entry>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    removed: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Read {
    base: String,
    result: String,
    #[serde(default)]
    tensors: UniqueMap<Entry>,
    #[serde(default)]
    removed: Vec<String>,
    metadata: Option<UniqueMap<String>>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    how: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

#[derive(Deserialize)]
struct Versioned {
    format: serde_json::Value,
}

impl Record {
    pub fn to_json(&self) -> serde_json::Result<String> {
        let entry = |said: &Said| Entry {
            how: said.how.name().into(),
            from: said.from.clone(),
            base: said.base.map(|print| print.to_string()),
            result: said.result.map(|print| print.to_string()),
        };
        serde_json::to_string(&Written {
            format: DELTA_FORMAT,
            base: self.base.to_string(),
            result: self.result.to_string(),
            tensors: self
                .tensors
                .iter()
                .filter(|(_, said)| !said.is_plain())
                .map(|(name, said)| (name.as_str(), entry(said)))
                .collect(),
            removed: &self.removed,
            metadata: self.metadata.as_ref(),
        })
    }

    /// Reads what a file says. Of tensors that go without saying nothing is known yet.
    pub fn parse(text: &str, path: &Path) -> Result<Record> {
        let bad = |what: String| Error::malformed(path, format!("{DELTA} in the metadata: {what}"));
        let versioned: Versioned = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        if versioned.format != DELTA_FORMAT {
            let what = format!(
                "delta format {} (this build reads {DELTA_FORMAT}); use a newer tenfold",
                versioned.format
            );
            return Err(Error::Unsupported { path: path.to_owned(), what });
        }
        let read: Read = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        let print =
            |text: &str| from_hex(text).ok_or_else(|| bad(format!("{text:?} is not 32 hexadecimal digits")));
        let mut tensors = BTreeMap::new();
        for (name, entry) in read.tensors.0 {
            let how = How::from_name(&entry.how).ok_or_else(|| Error::Unsupported {
                path: path.to_owned(),
                what: format!("tensor {name:?} is made by {:?}; use a newer tenfold", entry.how),
            })?;
            let said = Said {
                how,
                from: entry.from,
                base: entry.base.as_deref().map(print).transpose()?,
                result: entry.result.as_deref().map(print).transpose()?,
            };
            let whole = match how {
                How::Delta => said.base.is_none() && said.result.is_none(),
                How::Difference => said.base.is_some() && said.result.is_some(),
                How::Stored => said.from.is_none() && said.base.is_none() && said.result.is_some(),
                How::Copy => said.from.is_some() && said.base.is_none() && said.result.is_some(),
            };
            if !whole {
                return Err(bad(format!(
                    "what it says of tensor {name:?} is not what {:?} needs",
                    how.name()
                )));
            }
            tensors.insert(name, said);
        }
        if !read.removed.is_sorted_by(|a, b| a < b) {
            return Err(bad("the removed tensors are not in order".into()));
        }
        Ok(Record {
            base: print(&read.base)?,
            result: print(&read.result)?,
            tensors,
            removed: read.removed,
            metadata: read.metadata.map(|map| map.0.into_iter().collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenfold::engine::ErrorKind;

    fn record() -> Record {
        let print = |n| Some(Fingerprint([n; 16]));
        let said =
            |how, from: Option<&str>, base, result| Said { how, from: from.map(str::to_owned), base, result };
        Record {
            base: Fingerprint([1; 16]),
            result: Fingerprint([2; 16]),
            tensors: BTreeMap::from([
                ("a".to_owned(), said(How::Stored, None, None, print(3))),
                ("b".to_owned(), said(How::Copy, Some("x"), None, print(4))),
                ("c".to_owned(), said(How::Difference, None, print(5), print(6))),
                ("d".to_owned(), said(How::Delta, Some("y"), None, None)),
            ]),
            removed: vec!["x".into(), "y".into()],
            metadata: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
        }
    }

    #[test]
    fn what_is_said_reads_again_and_what_goes_without_saying_is_left_out() {
        let path = Path::new("d");
        let text = record().to_json().unwrap();
        assert_eq!(Record::parse(&text, path).unwrap(), record());
        let mut more = record();
        more.tensors.insert("e".into(), Said { how: How::Delta, from: None, base: None, result: None });
        assert_eq!(more.to_json().unwrap(), text);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = record().to_json().unwrap();
        let kind = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Record::parse(&text.replacen(from, to, 1), Path::new("d")).unwrap_err().kind()
        };
        assert_eq!(kind("\"format\":1", "\"format\":2"), ErrorKind::Unsupported);
        assert_eq!(kind("\"format\":1", "\"format\":\"1\""), ErrorKind::Unsupported);
        assert_eq!(kind("\"stored\"", "\"guessed\""), ErrorKind::Unsupported);
        for (from, to) in [
            ("\"format\":1,", ""),
            ("0101", "01"),
            ("0202", "0G02"),
            ("\"stored\"", "\"copy\""),
            ("\"copy\"", "\"stored\""),
            ("\"difference\"", "\"delta\""),
            ("\"difference\"", "\"stored\""),
            ("\"x\",\"y\"", "\"y\",\"x\""),
            ("\"x\",\"y\"", "\"x\",\"x\""),
            ("\"b\":", "\"a\":"),
        ] {
            assert_eq!(kind(from, to), ErrorKind::Data, "{from} {to}");
        }
    }
}
