//! Inputs to start from, made by the codec itself when a run begins: nothing large is kept in the repository,
//! and the seeds follow the format.

use std::path::Path;

use tenfold::prepare::{Axis, Transform, Weights};
use tenfold::{Dtype, Effort, EncodeOptions, Goal, TensorView};
use tenfold_archive::{CompressOptions, Silent};

/// Writes the seeds of a target into the folder that the environment variable `FUZZ_SEEDS` names, if it does.
pub fn write_if_asked(target: &str) {
    let Some(folder) = std::env::var_os("FUZZ_SEEDS") else {
        return;
    };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("the folder for seeds");
    let seeds = match target {
        "blob_decode" => blobs(),
        "archive_read" => files(),
        "video_decode" => golden(),
        // Which ways to check, and which rows.
        "roundtrip" => decisions(&[&[1, 3, 0, 9, 0]]),
        // Flips, a cut, dtype, tile, what is verified, values, share; then content.
        "delta" => changes(),
        "delta_file" => crate::bodies::delta_file::seeds(),
        // Nothing changed, two bytes changed, the end cut off.
        _ => decisions(&[&[0, 0], &[2, 40, 0, 1, 90, 0, 0x80, 0], &[0, 200, 70, 0]]),
    };
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:04}")), seed).expect("a seed");
    }
}

/// Blobs of every dtype, goal, effort and kind of shape.
fn blobs() -> Vec<Vec<u8>> {
    let shapes: [&[usize]; 6] = [&[], &[0, 3], &[1], &[7], &[24, 32], &[2, 3, 50]];
    let goals = [
        Goal::Lossless,
        Goal::Bits(2.5),
        Goal::Bits(9.0),
        Goal::Nmse(0.01),
        Goal::MaxError(0.05),
        Goal::Step(0.25),
        Goal::MaxBytes(400),
        Goal::RoundToNearest { bits: 8 },
    ];
    let mut out = Vec::new();
    for dtype in Dtype::ALL {
        for shape in shapes {
            let values: usize = shape.iter().product();
            // Smooth, with a few outliers and, where the dtype has them, values that are no numbers.
            let data: Vec<u8> = (0..values).flat_map(|i| element(dtype, i)).collect();
            let Ok(view) = TensorView::new(dtype, shape, &data) else {
                continue;
            };
            for (i, goal) in goals.into_iter().enumerate() {
                let effort = [Effort::Fast, Effort::Balanced, Effort::Best][(i + shape.len()) % 3];
                let options = EncodeOptions::new(goal).with_effort(effort).with_threads(1);
                // Some goals do not go with some tensors.
                out.extend(tenfold::encode(&view, &options).ok());
                let weights = |axis, n: usize| {
                    Transform::Weights(Weights::new(axis, (0..n).map(|j| j as i8).collect()))
                };
                let layers = options.clone().with_residual(Goal::RoundToNearest { bits: 8 });
                out.extend(tenfold::encode(&view, &layers).ok());
                let transforms = vec![weights(Axis::Columns, view.cols()), weights(Axis::Rows, view.rows())];
                out.extend(tenfold::encode(&view, &options.with_transforms(transforms)).ok());
            }
        }
    }
    out
}

/// Two versions of tensors of every dtype.
fn changes() -> Vec<Vec<u8>> {
    let content: Vec<u8> = (0..200u8).map(|i| i.wrapping_mul(37)).collect();
    let seed = |dtype: u8| {
        let mut seed = vec![0, 0, dtype, dtype % 5, dtype % 2, 0, 4 + dtype % 8, 30 * (dtype % 8)];
        seed.extend(&content);
        seed
    };
    (0..15).map(seed).collect()
}

/// The golden vectors of picture blobs, good and forged.
fn golden() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/video");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "tnfd")).collect();
    paths.sort();
    paths.iter().filter_map(|p| std::fs::read(p).ok()).filter(|b| b.len() <= 8192).collect()
}

fn element(dtype: Dtype, i: usize) -> Vec<u8> {
    let value = match i % 97 {
        50 => f32::NAN,
        51 => f32::NEG_INFINITY,
        52 => 300.0,
        _ => (i as f32 * 0.7).sin(),
    };
    match dtype {
        Dtype::F64 => f64::from(value).to_le_bytes().to_vec(),
        Dtype::F32 => value.to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::Bf16 => half::bf16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::F8E5M2 => vec![half::f16::from_f32(value).to_le_bytes()[1]],
        Dtype::Bool => vec![u8::from(i % 3 == 0)],
        _ => (i as u64 % 50).to_le_bytes()[..dtype.size()].to_vec(),
    }
}

/// Small files of each format.
fn files() -> Vec<Vec<u8>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tenfold-archive/tests/data");
    let mut out =
        vec![safetensors(), br#"{"metadata":{},"weight_map":{"a":"model-1.safetensors"}}"#.to_vec()];
    for goal in [Goal::Lossless, Goal::Bits(3.0)] {
        out.extend(compressed(goal));
    }
    for folder in ["gguf", "npy"] {
        let entries = std::fs::read_dir(data.join(folder)).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "gguf" || e == "npy"));
        paths.sort();
        out.extend(paths.iter().filter_map(|p| std::fs::read(p).ok()));
    }
    out
}

/// A file of two tensors.
fn safetensors() -> Vec<u8> {
    let mut header = String::from(
        r#"{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[8,16],"data_offsets":[0,512]},"#,
    );
    header += r#""b":{"dtype":"U8","shape":[4],"data_offsets":[512,516]}}"#;
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend((0..128).flat_map(|i| element(Dtype::F32, i)));
    out.extend([1, 2, 3, 4]);
    out
}

/// The same file, compressed.
fn compressed(goal: Goal) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let (plain, packed) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    std::fs::write(&plain, safetensors()).ok()?;
    let options = CompressOptions::new(goal).with_include("*");
    tenfold_archive::compress(&plain, &packed, &options, &Silent).ok()?;
    std::fs::read(packed).ok()
}

/// Decisions that reach every dtype and goal, as `Case::draw` reads them, after what the target reads first.
fn decisions(prefixes: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for dtype in 0..Dtype::ALL.len() as u8 {
        for goal in 0..8 {
            for content in [0, 1] {
                let prefix = prefixes[out.len() % prefixes.len()];
                // A number near one, and a matrix of 40 rows.
                let case = [dtype, goal, 126 + content, 40, goal % 3, 0, content, 0, 40, 0, 100, 0];
                let rest: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(37)).collect();
                out.push([prefix, &case, &rest].concat());
            }
        }
    }
    out
}
