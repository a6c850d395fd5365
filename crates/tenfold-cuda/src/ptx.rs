//! The kernels as the driver takes them: PTX, made by `make ptx` from `kernels/` and kept as text with the sources. The build
//! script packs it, because text of 17 MB takes a ninth of that packed; a module is unpacked when a device loads a kernel of it.
//!
//! The driver compiles what it is given, once a machine, and a stage's kernels for all dtypes take up to ten seconds. So each kernel is
//! loaded by itself, without the others of its module.

use std::ffi::CString;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use crate::error::{Error, Result};

/// The PTX of a stage.
pub(crate) struct Module {
    /// Names of its kernels.
    pub(crate) kernels: &'static [&'static str],
    /// Length of the text with its final zero byte.
    len: usize,
    /// That text, packed with zstd.
    packed: &'static [u8],
}

pub(crate) static MODULES: &[Module] = include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// The module that has a kernel.
pub(crate) fn module_of(kernel: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.kernels.contains(&kernel))
}

impl Module {
    /// The text without all kernels but one.
    pub(crate) fn unpack_only(&self, kernel: &str) -> Result<CString> {
        let text = self.unpack()?.into_string().unwrap_or_default();
        CString::new(only(&text, kernel)).map_err(|_| Error::Driver {
            what: "loading a kernel",
            reason: "the packed PTX is damaged".into(),
        })
    }

    /// The text.
    pub(crate) fn unpack(&self) -> Result<CString> {
        let mut text = Vec::with_capacity(self.len);
        let whole = StreamingDecoder::new(self.packed)
            .ok()
            .and_then(|packed| packed.take(self.len as u64).read_to_end(&mut text).ok());
        let text = whole.map(|_| text);
        text.and_then(|text| CString::from_vec_with_nul(text).ok()).ok_or_else(|| Error::Driver {
            what: "loading kernels",
            reason: "the packed PTX is damaged".into(),
        })
    }
}

/// How a kernel begins.
const ENTRY: &str = ".visible .entry ";

/// PTX without all kernels but one; functions and tables stay.
fn only(text: &str, kernel: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(ENTRY) {
        let len = entry_len(&rest[at..]);
        let name = rest[at + ENTRY.len()..].split('(').next().unwrap_or_default().trim();
        kept.push_str(&rest[..if name == kernel { at + len } else { at }]);
        rest = &rest[at + len..];
    }
    kept + rest
}

/// Bytes of a kernel: its body is the first block of braces, which comments have none of.
fn entry_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return i + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_unpacks_to_its_file() {
        let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/ptx"))
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        let mut unpacked: Vec<_> =
            MODULES.iter().map(|m| m.unpack().unwrap().into_string().unwrap()).collect();
        files.sort();
        unpacked.sort();
        assert!(files == unpacked, "{} files, {} modules", files.len(), unpacked.len());
    }

    #[test]
    fn a_kernel_is_loaded_without_the_others() {
        for module in MODULES {
            let whole = module.unpack().unwrap().into_string().unwrap();
            let (tables, functions) = (whole.matches("\n.global").count(), whole.matches("\n.func").count());
            for &kernel in module.kernels {
                let text = module.unpack_only(kernel).unwrap().into_string().unwrap();
                let entries: Vec<_> =
                    text.split(ENTRY).skip(1).map(|t| t.split('(').next().unwrap()).collect();
                assert_eq!(entries, [kernel]);
                assert_eq!(
                    (text.matches("\n.global").count(), text.matches("\n.func").count()),
                    (tables, functions)
                );
                assert_eq!(text.matches('{').count(), text.matches('}').count(), "{kernel}");
                let own = whole.find(&format!("{ENTRY}{kernel}(")).unwrap();
                assert!(text.contains(&whole[own..own + entry_len(&whole[own..])]), "{kernel}");
            }
            // One that it does not have leaves none.
            assert!(!module.unpack_only("absent").unwrap().into_string().unwrap().contains(ENTRY));
        }
    }

    /// Blocks that take all the dynamic shared memory there is leave 1 KiB for what kernels have besides.
    #[test]
    fn fixed_shared_memory_fits_beside_what_is_asked_for() {
        let whole_blocks = [
            "levels_decode_",
            "levels_pack_",
            "levels_trellis_",
            "lossless_decode_",
            "lossless_encode_tiles_",
            "lossless_halves",
            "lossless_whole_tiles",
            "pairs_decode_",
        ];
        for module in MODULES {
            for &kernel in module.kernels.iter().filter(|k| whole_blocks.iter().any(|w| k.starts_with(w))) {
                let text = module.unpack_only(kernel).unwrap().into_string().unwrap();
                let fixed: usize = text
                    .lines()
                    .filter_map(|line| {
                        line.trim_start().strip_prefix(".shared ")?.split_once(".b8 ")?.1.strip_suffix("];")
                    })
                    .filter_map(|array| array.split_once('['))
                    .filter(|(name, size)| !size.is_empty() && text.matches(name).count() > 1)
                    .map(|(_, size)| size.parse::<usize>().unwrap())
                    .sum();
                assert!(fixed <= 1 << 10, "{kernel} has {fixed} bytes of fixed shared memory");
            }
        }
    }

    #[test]
    fn modules_are_found_by_their_kernels() {
        let module = module_of("levels_pass_open").unwrap();
        assert!(module.unpack().unwrap().to_str().unwrap().contains(".entry levels_pass_open("));
        assert!(module_of("levels_pass_absent").is_none());
        let mut names: Vec<_> = MODULES.iter().flat_map(|m| m.kernels).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "no kernel is in two modules");
    }
}
