//! Small models made on the spot.
#![allow(dead_code)] // each test file uses its share

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tempfile::TempDir;

pub struct Made {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// Pseudo-random numbers, the same on every machine.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Near enough to a Gaussian: the sum of uniform numbers.
    pub fn gauss(&mut self) -> f32 {
        (0..6).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5).sum::<f32>() * 1.414
    }
}

pub fn floats(name: &str, shape: &[usize], scale: f32) -> Made {
    let mut noise = Noise::new(name.bytes().map(u64::from).sum::<u64>() + 7);
    let count: usize = shape.iter().product();
    let data = (0..count).flat_map(|_| (noise.gauss() * scale).to_le_bytes()).collect();
    Made { name: name.into(), dtype: Dtype::F32, shape: shape.into(), data }
}

pub fn halves(name: &str, shape: &[usize], scale: f32) -> Made {
    let full = floats(name, shape, scale);
    let data = full.data.chunks_exact(4).flat_map(|c| [c[2], c[3]]).collect();
    Made { dtype: Dtype::BF16, data, ..full }
}

pub fn bytes(name: &str, dtype: Dtype, shape: &[usize]) -> Made {
    let mut noise = Noise::new(3);
    let count = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let data = (0..count).map(|_| noise.next() as u8).collect();
    Made { name: name.into(), dtype, shape: shape.into(), data }
}

/// A file as the `safetensors` crate writes it.
pub fn write_standard(path: &Path, tensors: &[Made], metadata: &[(&str, &str)]) {
    let views =
        tensors.iter().map(|t| (&t.name, TensorView::new(t.dtype, t.shape.clone(), &t.data).unwrap()));
    let metadata: std::collections::HashMap<_, _> =
        metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let metadata = (!metadata.is_empty()).then_some(metadata);
    std::fs::write(path, safetensors::serialize(views, metadata.map(|m| m.into_iter().collect())).unwrap())
        .unwrap();
}

/// A file with exactly this header, then these bytes.
pub fn write_raw(path: &Path, header: &str, data: &[u8]) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    std::fs::write(path, bytes).unwrap();
}

/// A usual small model: two matrices to compress, a vector, an integer table.
pub fn small_model() -> Vec<Made> {
    vec![
        floats("layers.0.weight", &[64, 96], 0.05),
        halves("layers.1.weight", &[80, 64], 0.02),
        floats("norm.weight", &[64], 1.0),
        bytes("position_ids", Dtype::I64, &[1, 33]),
        bytes("flag", Dtype::BOOL, &[3]),
    ]
}

/// A folder of two shards with an index, a configuration and a subfolder. Returns the folder.
pub fn sharded(dir: &TempDir) -> PathBuf {
    let folder = dir.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    let (one, two) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    write_standard(
        &folder.join(one),
        &[floats("layers.0.weight", &[64, 96], 0.05), floats("b", &[7], 1.0)],
        &[("format", "pt")],
    );
    write_standard(&folder.join(two), &[halves("layers.1.weight", &[80, 64], 0.02)], &[("format", "pt")]);
    let index = format!(
        "{{\n  \"metadata\": {{\n    \"total_size\": {},\n    \"note\": \"kept\"\n  }},\n  \"weight_map\": {{\n    \
         \"b\": \"{one}\",\n    \"layers.0.weight\": \"{one}\",\n    \"layers.1.weight\": \"{two}\"\n  }}\n}}\n",
        64 * 96 * 4 + 28 + 80 * 64 * 2
    );
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    std::fs::create_dir(folder.join("1_Pooling")).unwrap();
    std::fs::write(folder.join("1_Pooling/config.json"), "{\"a\":1}").unwrap();
    folder
}

/// Names in a folder, sorted.
pub fn list(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Loads a file with the `safetensors` crate, so that another reader judges it.
pub fn with_standard<T>(path: &Path, look: impl FnOnce(&SafeTensors<'_>) -> T) -> T {
    let bytes = std::fs::read(path).unwrap();
    look(&SafeTensors::deserialize(&bytes).unwrap())
}

/// The bytes of a file with other metadata.
pub fn edit_metadata(
    whole: &[u8],
    edit: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>),
) -> Vec<u8> {
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&whole[8..8 + length]).unwrap();
    edit(header["__metadata__"].as_object_mut().unwrap());
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &whole[8 + length..]].concat()
}

/// The bytes of a file as versions wrote it that knew no checksums of files.
pub fn older(whole: &[u8]) -> Vec<u8> {
    edit_metadata(whole, |metadata| {
        for key in ["tenfold.plain", "tenfold.check"] {
            metadata.shift_remove(key).unwrap();
        }
    })
}

/// The same tensor with a share of its values changed a little.
pub fn trained(made: &Made, every: usize) -> Made {
    let size = made.dtype.bitsize() / 8;
    let mut data = made.data.clone();
    for value in data.chunks_exact_mut(size).step_by(every) {
        value[0] = value[0].wrapping_add(3);
    }
    Made { name: made.name.clone(), dtype: made.dtype, shape: made.shape.clone(), data }
}

/// The same tensor under another name.
pub fn renamed(made: &Made, name: &str) -> Made {
    Made { name: name.into(), dtype: made.dtype, shape: made.shape.clone(), data: made.data.clone() }
}

/// Whether two files hold the same tensors, whatever their order and metadata.
pub fn same_tensors(a: &Path, b: &Path) -> bool {
    let all = |path: &Path| {
        with_standard(path, |file| {
            let mut all: Vec<_> = file
                .tensors()
                .into_iter()
                .map(|(name, t)| (name, t.dtype().to_string(), t.shape().to_vec(), t.data().to_vec()))
                .collect();
            all.sort();
            all
        })
    };
    all(a) == all(b)
}
