//! The kernels as the driver takes them: PTX, made by `make ptx` from `kernels/` and kept as text with the sources. The build
//! script packs it, because text of 12 MB takes a fifth of that deflated; a module is unpacked when a device loads it.

use std::ffi::CString;

use crate::error::{Error, Result};

/// The PTX of a stage.
pub(crate) struct Module {
    /// Names of its kernels.
    pub(crate) kernels: &'static [&'static str],
    /// Length of the text with its final zero byte.
    len: usize,
    /// That text, deflated.
    packed: &'static [u8],
}

pub(crate) static MODULES: &[Module] = include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// The module that has a kernel.
pub(crate) fn module_of(kernel: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.kernels.contains(&kernel))
}

impl Module {
    /// The text.
    pub(crate) fn unpack(&self) -> Result<CString> {
        let text = miniz_oxide::inflate::decompress_to_vec_with_limit(self.packed, self.len).ok();
        text.and_then(|text| CString::from_vec_with_nul(text).ok()).ok_or_else(|| Error::Driver {
            what: "loading kernels",
            reason: "the packed PTX is damaged".into(),
        })
    }
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
