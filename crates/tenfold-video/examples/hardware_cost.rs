//! What pictures for NVDEC cost: bits of tensors with constant chroma and whole blocks, and without, at equal samples and the same quantiser.
//!
//! `cargo run -p tenfold-video --features video --example hardware_cost -- testdata/*.safetensors`

use std::error::Error;
use std::fs;

use serde_json::{Value, json};
use tenfold::{Dtype, EncodeOptions, Goal, TensorView};
use tenfold_video::{Hardware, Quality, Standard, VideoOptions};

/// Smaller tensors are left out: one picture has 65,536 samples at least.
const LEAST: usize = 1 << 14;

/// A tensor of a safetensors file.
struct Named {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

fn tensors(path: &str) -> Result<Vec<Named>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let start = 8 + u64::from_le_bytes(bytes.get(..8).ok_or("too short")?.try_into()?) as usize;
    let header: Value = serde_json::from_slice(bytes.get(8..start).ok_or("too short")?)?;
    let numbers = |v: &Value| -> Option<Vec<usize>> {
        v.as_array()?.iter().map(|n| n.as_u64().map(|n| n as usize)).collect()
    };
    let mut found = Vec::new();
    for (name, entry) in
        header.as_object().ok_or("no header")?.iter().filter(|(name, _)| *name != "__metadata__")
    {
        let dtype = match entry["dtype"].as_str() {
            Some("F32") => Dtype::F32,
            Some("BF16") => Dtype::Bf16,
            Some("F16") => Dtype::F16,
            _ => continue,
        };
        let shape = numbers(&entry["shape"]).ok_or(format!("{name} has no shape"))?;
        let at = numbers(&entry["data_offsets"]).ok_or(format!("{name} has no place"))?;
        let data = bytes.get(start + at[0]..start + at[1]).ok_or("too short")?.to_vec();
        if shape.iter().product::<usize>() >= LEAST {
            found.push(Named { dtype, shape, data });
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let standards = [("h264", Standard::H264, 28), ("h265", Standard::H265, 28), ("av1", Standard::Av1, 40)];
    let mut rows = Vec::new();
    for path in std::env::args().skip(1) {
        let tensors = tensors(&path)?;
        for (name, standard, qp) in standards {
            let plain = VideoOptions::new(standard).with_quality(Quality::Qp(qp));
            let nvdec = plain.clone().with_hardware(Hardware::Nvdec);
            // The quantiser is fixed: the goal says nothing.
            let options = EncodeOptions::new(Goal::Bits(2.5));
            let (mut values, mut with, mut without, mut chroma, mut padding) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for tensor in &tensors {
                let view = TensorView::new(tensor.dtype, &tensor.shape, &tensor.data)?;
                let n = view.len() as f64;
                let found = tenfold_video::encode_with_report(&view, &options, &nvdec)?;
                values += n;
                with += found.blob.len() as f64 * 8.0;
                chroma += found.chroma_bits.ok_or("the encoder always codes chroma")? * n;
                padding += found.padding * n;
                without += tenfold_video::encode(&view, &options, &plain)?.len() as f64 * 8.0;
            }
            let file = path.rsplit('/').next().unwrap_or(&path);
            rows.push(json!({
                "file": file, "tensors": tensors.len(), "codec": name, "qp": qp, "values": values,
                "bits_for_nvdec": with / values, "bits_without": without / values,
                "chroma_bits": chroma / values, "padding": padding / values,
            }));
        }
    }
    let command =
        "cargo run -p tenfold-video --features video --example hardware_cost -- testdata/*.safetensors";
    let report = json!({"command": command, "version": env!("CARGO_PKG_VERSION"), "rows": rows});
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
