//! Tensors for the caller instead of a file: into memory, or on to a device, while the rest is on its way.

use std::fmt;
use std::path::{Path, PathBuf};

use tenfold::Dtype;
use tenfold_archive::Progress;

use super::file::Task;
use super::place::{Target, Work};
use super::{PullOptions, Pulled, folder, start, wish};
use crate::error::{Error, Result};

/// Pulls of the same model into memory that may run at once; each fetches for itself.
const AT_ONCE: usize = 64;

/// A tensor that has arrived, and whose checksums are right.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// File of the model that holds it.
    pub file: String,
    /// Its name.
    pub name: String,
    /// Its element type; `None` for one that the codec does not have.
    pub dtype: Option<Dtype>,
    /// The element type's name in the file.
    pub dtype_name: String,
    /// Its shape; of rows, that of the rows.
    pub shape: Vec<usize>,
    /// Its values, little-endian; or its blob.
    pub data: Vec<u8>,
    /// Whether `data` is a blob.
    pub is_blob: bool,
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken { file, name, dtype_name, shape, data, is_blob, .. } = self;
        write!(f, "Taken({file}: {name}, {dtype_name} {shape:?}, {} bytes, blob: {is_blob})", data.len())
    }
}

/// Who gets tensors.
pub(super) type Take<'a> = dyn Fn(Taken) -> Result<()> + Sync + 'a;

/// Pulls the tensors of the model at `url` and hands them over one by one, each as soon as it is there. With
/// [`PullOptions::decode`] they are as they were before compression, without it compressed tensors are blobs: for a device to
/// decode.
///
/// `take` is called on one thread, in the order of the files and of the bytes in them; while it works, the next tensors arrive
/// and are decoded. An error of it ends the work. What has arrived is kept in [`PullOptions::cache`] until all of it has been taken, so that a
/// pull that ended early goes on where it was, and hands all tensors over again.
pub fn pull_tensors(
    url: &str,
    options: &PullOptions,
    take: &Take<'_>,
    progress: &dyn Progress,
) -> Result<Pulled> {
    let (runtime, mut context, place) = start(url, options, progress)?;
    context.take = Some(take);
    let mut files = folder::list(&context, &place)?.files;
    files.retain(|(name, ..)| name.ends_with(".safetensors"));
    if files.is_empty() {
        let reason = "holds no safetensors files: pull it into a file or folder".to_owned();
        return Err(Error::InvalidArgument(format!("{url} {reason}")));
    }
    let work = open(&cache(options)?, &wish(url, options))?;
    context.work = work.path().to_owned();
    let (mut pulled, mut is_found) = (Pulled::default(), false);
    for (name, entry, place) in files {
        let out = work.payload(&name);
        let done = context.pull(&Task { place, name, entry, out })?;
        pulled.files += usize::from(done.tensors.is_some());
        pulled.fetched += done.fetched;
        pulled.written += done.written;
        pulled.unchecked += done.unchecked;
        is_found |= done.tensors.is_some();
    }
    if !is_found {
        let globs = options.include.join(", ");
        return Err(Error::InvalidArgument(format!("{url}: no tensor matches {globs}")));
    }
    work.discard();
    drop(context);
    runtime.shutdown_background();
    Ok(pulled)
}

/// The first folder for this wish that nobody else uses.
fn open(cache: &Path, wish: &str) -> Result<Work> {
    let name = blake3::hash(wish.as_bytes()).to_hex();
    let mut last = None;
    for number in 0..AT_ONCE {
        let path = cache.join(format!("{}-{number}", &name[..32]));
        match Work::open(&Target::new(&path, true, "", true)?, wish) {
            Err(error @ Error::Busy(_)) => last = Some(error),
            opened => return opened,
        }
    }
    Err(last.unwrap_or_else(|| Error::Busy(cache.to_owned())))
}

fn cache(options: &PullOptions) -> Result<PathBuf> {
    if let Some(path) = &options.cache {
        return Ok(path.clone());
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    home.map(|home| home.join("tenfold")).ok_or_else(|| {
        Error::InvalidArgument("there is no cache folder: set XDG_CACHE_HOME or state one".into())
    })
}
