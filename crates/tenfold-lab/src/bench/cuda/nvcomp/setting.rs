//! What a user of nvCOMP's ANS can choose, and what is tried here.

use std::ffi::c_int;

use super::ffi::{self, CompressOptions, DecompressOptions};

/// Streams that each lane of nvCOMP's coder interleaves: its own default, named so that decompression can be told.
const STATES: u8 = 2;
/// What 0 stands for when sub-chunks are counted.
const SUB_CHUNKS: u8 = 8;

/// What the bytes are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataType {
    Bytes,
    /// Made for floats of two bytes, bf16 among them.
    Float16,
}

impl DataType {
    fn number(self) -> c_int {
        match self {
            DataType::Bytes => ffi::TYPE_UCHAR,
            DataType::Float16 => ffi::TYPE_FLOAT16,
        }
    }
}

/// One way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub data: DataType,
    /// Bytes that are compressed on their own.
    pub chunk: usize,
    /// Parts of a chunk that are coded side by side.
    pub sub_chunks: u8,
    /// One in 2^n symbols is counted.
    pub sampled: u8,
}

/// One way to decompress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing is told: chunks say what they are.
    Inferred,
    /// All that the compressor was told is told again, which lets nvCOMP take a more special kernel.
    Named,
    /// As `Named`, and chunks are believed.
    Unchecked,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Inferred, Way::Named, Way::Unchecked];

    pub fn name(self) -> &'static str {
        match self {
            Way::Inferred => "type inferred",
            Way::Named => "type named",
            Way::Unchecked => "type named, not validated",
        }
    }
}

impl Setting {
    /// All that is tried. The headers advise chunks of 64 KiB; larger ones are cut into parts of about the same size
    /// or left at the default. Counting fewer symbols is meant for chunks of one distribution, which these are.
    pub fn all() -> Vec<Setting> {
        let chunks = [64 << 10, 256 << 10, 1 << 20];
        let plain = |data, chunk| Setting { data, chunk, sub_chunks: SUB_CHUNKS, sampled: 0 };
        let mut all: Vec<Setting> = Vec::new();
        all.extend(chunks.map(|chunk| plain(DataType::Bytes, chunk)));
        all.extend(chunks.map(|chunk| plain(DataType::Float16, chunk)));
        for (chunk, sub_chunks) in [(256 << 10, 32), (1 << 20, 64)] {
            all.push(Setting { sub_chunks, ..plain(DataType::Float16, chunk) });
        }
        all.extend(chunks.map(|chunk| Setting { sampled: 3, ..plain(DataType::Float16, chunk) }));
        all
    }

    pub fn name(self) -> String {
        let data = match self.data {
            DataType::Bytes => "uint8",
            DataType::Float16 => "float16",
        };
        let mut name = format!("{data}, chunks of {} KiB", self.chunk >> 10);
        if self.sub_chunks != SUB_CHUNKS {
            name += &format!(" in {}", self.sub_chunks);
        }
        if self.sampled > 0 {
            name += &format!(", 1/{} counted", 1 << self.sampled);
        }
        name
    }

    pub fn compress(self) -> CompressOptions {
        CompressOptions {
            ans: ffi::RANS,
            data_type: self.data.number(),
            max_sub_chunk_count: self.sub_chunks,
            states_per_lane: STATES,
            histogram_reduction_log2: self.sampled,
            reserved: [0; 53],
        }
    }

    pub fn decompress(self, way: Way) -> DecompressOptions {
        let inferred = DecompressOptions {
            backend: ffi::BACKEND_DEFAULT,
            data_type: ffi::TYPE_BITS,
            max_sub_chunk_count: 0,
            states_per_lane: 0,
            skip_validate: 0,
            reserved: [0; 53],
        };
        if way == Way::Inferred {
            return inferred;
        }
        DecompressOptions {
            data_type: self.data.number(),
            max_sub_chunk_count: self.sub_chunks,
            states_per_lane: STATES,
            skip_validate: u8::from(way == Way::Unchecked),
            ..inferred
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_differ_and_keep_to_the_limits_of_the_headers() {
        let all = Setting::all();
        for (i, s) in all.iter().enumerate() {
            assert!(s.chunk <= ffi::MAX_CHUNK && s.chunk.is_multiple_of(64 << 10));
            assert!(s.sub_chunks.is_power_of_two() && (4..=64).contains(&s.sub_chunks) && s.sampled <= 8);
            assert!(all[..i].iter().all(|o| o != s && o.name() != s.name()), "{}", s.name());
            assert_eq!(s.compress().reserved, [0; 53]);
            for way in Way::ALL {
                assert_eq!(s.decompress(way).skip_validate == 1, way == Way::Unchecked);
            }
        }
        assert_eq!(all[0].name(), "uint8, chunks of 64 KiB");
        assert!(all.iter().any(|s| s.name() == "float16, chunks of 1024 KiB in 64"));
        assert!(all.iter().any(|s| s.name() == "float16, chunks of 64 KiB, 1/8 counted"));
    }
}
