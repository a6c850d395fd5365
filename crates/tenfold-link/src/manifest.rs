//! What a folder holds: sizes and BLAKE3 digests of its files and of the tensors in them. `tenfold serve` makes it; any web server may
//! offer a copy beside the files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use blake3::Hash;
use serde::{Deserialize, Serialize};
use tenfold_archive::Layout;

use crate::error::{Error, Result};

/// Name of the manifest, in the folder that it describes.
pub const MANIFEST: &str = "tenfold.manifest.json";

/// Version of the manifest that this build writes and reads.
const VERSION: u32 = 1;

/// Longest manifest that is read.
pub(crate) const MAX_MANIFEST: usize = 256 << 20;

/// Most files of a manifest.
const MAX_FILES: usize = 100_000;

/// What a folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format, 1.
    pub tenfold_manifest: u32,
    /// The files, by name.
    pub files: Vec<FileEntry>,
}

/// A file of a [`Manifest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path in the folder, with `/` between its parts.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// BLAKE3 of the file, as 64 hexadecimal digits.
    pub blake3: String,
    /// Of a safetensors file: BLAKE3 of everything before its first tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Of a safetensors file: its tensors, in the order of its header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorEntry>,
}

/// A tensor of a [`FileEntry`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its first byte in the file.
    pub begin: u64,
    /// One past its last byte.
    pub end: u64,
    /// BLAKE3 of its bytes as stored.
    pub blake3: String,
}

impl Manifest {
    /// A manifest of these files.
    pub fn new(mut files: Vec<FileEntry>) -> Manifest {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Manifest { tenfold_manifest: VERSION, files }
    }

    /// Reads a manifest; refuses names that lead out of the folder.
    pub fn parse(text: &[u8], url: &str) -> Result<Manifest> {
        let bad = |reason: String| Error::Protocol { url: url.to_owned(), reason };
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|e| bad(format!("the manifest is not valid: {e}")))?;
        if manifest.tenfold_manifest != VERSION {
            let version = manifest.tenfold_manifest;
            return Err(Error::Unsupported(format!(
                "{url}: manifest version {version} (this build reads {VERSION}); use a newer tenfold"
            )));
        }
        if manifest.files.len() > MAX_FILES {
            return Err(Error::Limit(format!("{url}: the manifest lists {} files", manifest.files.len())));
        }
        let mut names = std::collections::HashSet::new();
        for file in &manifest.files {
            if !is_safe(&file.name) {
                return Err(bad(format!(
                    "the manifest names {:?}, which leads out of the folder",
                    file.name
                )));
            }
            if !names.insert(&file.name) {
                return Err(bad(format!("the manifest lists {:?} twice", file.name)));
            }
            let digests = file.tensors.iter().map(|t| &t.blake3).chain(&file.head).chain([&file.blake3]);
            if let Some(digest) = digests.into_iter().find(|digest| Hash::from_hex(digest.as_str()).is_err())
            {
                return Err(bad(format!("the manifest has {digest:?} where a BLAKE3 digest belongs")));
            }
            if file.tensors.iter().any(|t| t.begin > t.end || t.end > file.bytes) {
                return Err(bad(format!("the manifest places tensors of {:?} outside of it", file.name)));
            }
        }
        Ok(manifest)
    }

    /// The entry of a file.
    pub fn find(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// Whether a name is a relative path that stays in its folder, on every system, and is not hidden.
pub(crate) fn is_safe(name: &str) -> bool {
    name.len() <= 1024
        && !name.contains(['\\', ':', '\0'])
        && !name.chars().any(char::is_control)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && part.len() <= 255)
}

impl FileEntry {
    /// Reads a file once and notes its digests.
    pub fn of_file(path: &Path, name: &str) -> Result<FileEntry> {
        let file = File::open(path).map_err(Error::io(path))?;
        let bytes = file.metadata().map_err(Error::io(path))?.len();
        let mut marks = Vec::new();
        if name.ends_with(".safetensors")
            && let Some(layout) = layout(&file, path, bytes)
        {
            let tensors = layout.tensors().iter().enumerate();
            marks.extend(tensors.map(|(i, t)| (i, t.info.name.clone(), t.stored.clone())));
            return FileEntry::of_parts(&file, path, name, bytes, layout.head_bytes(), marks);
        }
        FileEntry::of_parts(&file, path, name, bytes, 0, marks)
    }

    /// Hashes the head, then each tensor in the order of the bytes, and the whole beside them.
    fn of_parts(
        file: &File,
        path: &Path,
        name: &str,
        bytes: u64,
        head: u64,
        mut marks: Vec<(usize, String, std::ops::Range<u64>)>,
    ) -> Result<FileEntry> {
        marks.sort_by_key(|(_, _, range)| (range.start, range.end));
        let mut whole = blake3::Hasher::new();
        let mut buffer = vec![0; 4 << 20];
        let mut part = |range: std::ops::Range<u64>| -> Result<String> {
            let mut own = blake3::Hasher::new();
            let mut at = range.start;
            while at < range.end {
                let take = buffer.len().min((range.end - at) as usize);
                file.read_exact_at(&mut buffer[..take], at).map_err(Error::io(path))?;
                own.update_rayon(&buffer[..take]);
                whole.update_rayon(&buffer[..take]);
                at += take as u64;
            }
            Ok(own.finalize().to_hex().to_string())
        };
        let is_model = head > 0;
        let head_hash = part(0..if is_model { head } else { bytes })?;
        let mut tensors = Vec::with_capacity(marks.len());
        for (index, name, range) in marks {
            let entry = TensorEntry { name, begin: range.start, end: range.end, blake3: part(range)? };
            tensors.push((index, entry));
        }
        tensors.sort_by_key(|(index, _)| *index);
        Ok(FileEntry {
            name: name.to_owned(),
            bytes,
            blake3: whole.finalize().to_hex().to_string(),
            head: is_model.then_some(head_hash),
            tensors: tensors.into_iter().map(|(_, entry)| entry).collect(),
        })
    }
}

/// The layout of a file, if it is safetensors.
fn layout(mut file: &File, path: &Path, bytes: u64) -> Option<Layout> {
    let mut prefix = [0; Layout::PREFIX];
    file.read_exact(&mut prefix).ok()?;
    let mut head = vec![0; usize::try_from(Layout::head_len(prefix, bytes, path).ok()?).ok()?];
    file.read_exact_at(&mut head, 0).ok()?;
    Layout::parse(&head, bytes, path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in
            ["../x", "/x", "a/../b", "a//b", "", ".", ".hidden", "a/.git", "c:\\x", "a\\b", "a\0b", "a/\n"]
        {
            assert!(!is_safe(name), "{name:?}");
            let entry = FileEntry {
                name: name.into(),
                bytes: 0,
                blake3: "0".repeat(64),
                head: None,
                tensors: vec![],
            };
            let text = serde_json::to_vec(&Manifest::new(vec![entry])).unwrap();
            assert!(matches!(Manifest::parse(&text, "u"), Err(Error::Protocol { .. })));
        }
        assert!(is_safe("a/b-1.safetensors"));
    }

    #[test]
    fn digests_are_of_the_whole_and_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.safetensors");
        let tensors = [("a", vec![1u8; 300]), ("b", vec![2; 70])].map(|(name, bytes)| {
            let content = tenfold_archive::Content::Plain(tenfold::Dtype::U8, vec![bytes.len()], bytes);
            (name.to_owned(), content)
        });
        tenfold_archive::assemble(&path, Vec::new(), &tensors, false).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let entry = FileEntry::of_file(&path, "m.safetensors").unwrap();
        let hex = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        assert_eq!((entry.bytes, &entry.blake3), (bytes.len() as u64, &hex(&bytes)));
        assert_eq!(entry.tensors[0].blake3, hex(&[1; 300]));
        assert_eq!(entry.head.as_deref(), Some(hex(&bytes[..bytes.len() - 370]).as_str()));
        let manifest = Manifest::new(vec![entry]);
        let text = serde_json::to_vec(&manifest).unwrap();
        assert_eq!(Manifest::parse(&text, "u").unwrap(), manifest);
        let other = dir.path().join("config.json");
        std::fs::write(&other, "{}").unwrap();
        let entry = FileEntry::of_file(&other, "config.json").unwrap();
        assert_eq!((entry.blake3, entry.head), (hex(b"{}"), None));
    }
}
