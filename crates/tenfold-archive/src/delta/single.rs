//! Deltas of single tensors, put together and taken out again: for callers who follow a model in memory and hold its tensors themselves.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tenfold::delta::{DeltaInfo, Fingerprint};

use super::file::{Change, DeltaFile};
use super::fingerprint::{from_hex, of_model};
use super::record::{How, Said};
use super::report::DeltaReport;
use super::tensors::Meta;
use super::write::{Content, Frame, Writer};
use crate::error::{Error, Result};
use crate::safetensors::stored_dtype;

/// Makes a delta of a model from those of its tensors. `base` has the fingerprint of every tensor of the model, whether it changes or not, and
/// becomes that of the result. An error leaves it as it is.
///
/// ```
/// use std::collections::BTreeMap;
/// use tenfold::{TensorView, delta};
/// use tenfold_archive::delta::{collect, fingerprint_of};
/// let (old, new) = (TensorView::from_slice(&[1u8, 2], &[2])?, TensorView::from_slice(&[1u8, 3], &[2])?);
/// let mut prints = BTreeMap::from([("w".to_owned(), delta::fingerprint(&old))]);
/// let blob = delta::make(&old, &new, &Default::default())?;
/// let (_, report) = collect(&mut prints, vec![("w".to_owned(), blob)])?;
/// assert_eq!(report.result, fingerprint_of(&prints).to_string());
/// assert_eq!(prints["w"], delta::fingerprint(&new));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn collect(
    base: &mut BTreeMap<String, Fingerprint>,
    blobs: Vec<(String, Vec<u8>)>,
) -> Result<(Vec<u8>, DeltaReport)> {
    let mut writer = Writer::in_memory();
    let mut after = base.clone();
    for (name, blob) in blobs {
        let info = tenfold::delta::inspect(&blob).map_err(Error::codec(&name))?;
        let Some(print) = after.get_mut(&name) else {
            return Err(Error::InvalidArgument(format!("the model has no tensor {name:?}")));
        };
        if *print != info.base {
            let source =
                tenfold::Error::WrongBase { expected: info.base.to_string(), found: print.to_string() };
            return Err(Error::codec(&name)(source));
        }
        *print = info.result;
        if info.changed == 0 {
            continue;
        }
        let bytes = info.values.saturating_mul(info.dtype.size() as u64);
        let meta = Meta { name: name.clone(), shape: info.shape, bytes, stored: stored_dtype(info.dtype)? };
        writer.put(Content {
            name,
            said: Said { how: How::Delta, from: None, base: None, result: None },
            meta: Some(meta),
            data: blob,
            is_blob: true,
            changed: Some(info.changed),
        })?;
    }
    let frame = Frame { base: of_model(base), result: of_model(&after), removed: Vec::new(), metadata: None };
    let made = writer.into_bytes(frame)?;
    *base = after;
    Ok(made)
}

/// The fingerprint of a model, from those of all of its tensors.
pub fn fingerprint_of(tensors: &BTreeMap<String, Fingerprint>) -> Fingerprint {
    of_model(tensors)
}

/// Reads a fingerprint as it is printed: 32 lower-case hexadecimal digits.
pub fn parse_fingerprint(text: &str) -> Option<Fingerprint> {
    from_hex(text)
}

impl Change {
    /// What the tensor in the file is: the result; of a difference, the difference. `None` where the file has none.
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// What the delta of a tensor says of itself; `None` for one that comes to be in another way.
    pub fn info(&self) -> Option<&DeltaInfo> {
        self.info.as_ref()
    }
}

impl DeltaFile {
    /// The delta of a tensor; `None` for one that comes to be in another way. A file in memory lends it.
    pub fn read_blob(&self, change: &Change) -> Result<Option<Cow<'_, [u8]>>> {
        (change.how == How::Delta).then(|| self.read_raw(change)).transpose()
    }
}
