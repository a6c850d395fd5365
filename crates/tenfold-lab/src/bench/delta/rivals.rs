//! What others make of two versions: places and values, or the bits that differ, behind zstd.

use anyhow::{Result, ensure};

use super::cases::Versions;

/// A way to tell the new version to somebody who has the old one.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::bench) enum Rival {
    /// Places as 64-bit numbers, then new values.
    Indices(i32),
    /// Gaps between places as 32-bit numbers, then new values; both byte by byte, all first bytes first.
    Planes(i32),
    /// Old and new, bit by bit.
    Xor(i32),
    /// The new version as it is.
    Whole(i32),
}

impl Rival {
    pub const ALL: [Rival; 7] = [
        Rival::Indices(3),
        Rival::Indices(19),
        Rival::Planes(3),
        Rival::Planes(19),
        Rival::Xor(3),
        Rival::Xor(19),
        Rival::Whole(3),
    ];

    pub fn name(self) -> String {
        format!("{}, zstd -{}", self.form(), self.level())
    }

    /// What is compressed.
    pub fn form(self) -> &'static str {
        match self {
            Rival::Indices(_) => "64-bit places and values",
            Rival::Planes(_) => "gaps and values in planes",
            Rival::Xor(_) => "XOR",
            Rival::Whole(_) => "the new version",
        }
    }

    /// What is sent.
    pub fn encode(self, versions: &Versions) -> Result<Vec<u8>> {
        Ok(zstd::bulk::compress(&self.plain(versions), self.level())?)
    }

    /// Brings the old version up to date, in place. For XOR alone, which is what others apply.
    pub fn apply(frame: &[u8], tensor: &mut [u8], room: &mut Vec<u8>) -> Result<()> {
        room.resize(tensor.len(), 0);
        ensure!(zstd::bulk::decompress_to_buffer(frame, room)? == tensor.len(), "zstd came back shorter");
        tensor.iter_mut().zip(room.iter()).for_each(|(value, by)| *value ^= by);
        Ok(())
    }

    fn level(self) -> i32 {
        match self {
            Rival::Indices(level) | Rival::Planes(level) | Rival::Xor(level) | Rival::Whole(level) => level,
        }
    }

    /// Its bytes.
    pub fn plain(self, versions: &Versions) -> Vec<u8> {
        let size = versions.dtype.size();
        let changed = || versions.pairs().enumerate().filter(|(_, (old, new))| old != new);
        let value = |new: u64| new.to_le_bytes().into_iter().take(size);
        match self {
            Rival::Whole(_) => versions.new.clone(),
            Rival::Xor(_) => versions.old.iter().zip(&versions.new).map(|(old, new)| old ^ new).collect(),
            Rival::Indices(_) => {
                let places = changed().flat_map(|(place, _)| (place as i64).to_le_bytes());
                places.chain(changed().flat_map(|(_, (_, new))| value(new))).collect()
            }
            Rival::Planes(_) => {
                let mut last = 0;
                let gaps: Vec<u32> = changed()
                    .map(|(place, _)| {
                        let gap = place - last;
                        last = place;
                        gap as u32
                    })
                    .collect();
                let values: Vec<u64> = changed().map(|(_, (_, new))| new).collect();
                let mut out: Vec<u8> =
                    (0..4).flat_map(|byte| gaps.iter().map(move |gap| (gap >> (8 * byte)) as u8)).collect();
                out.extend(
                    (0..size).flat_map(|byte| values.iter().map(move |new| (new >> (8 * byte)) as u8)),
                );
                out
            }
        }
    }
}
