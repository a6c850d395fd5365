//! Adds golden vectors of picture blobs: blobs with the tensors they decode to, and forged ones that must be
//! refused. Vectors that exist are never written again.
//!
//! `cargo run -p tenfold-video --features video --example golden -- conformance/video`

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tenfold::engine::Limits;
use tenfold::format::carry::{Opened, Parcel};
use tenfold::prepare::Hadamard;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, Tensor};
use tenfold_video::{Chroma, Quality, Scaling, Standard, VideoOptions};

type Done = Result<(), Box<dyn Error>>;

/// Values with structure by row and column, the same on every machine.
fn tensor(dtype: Dtype, shape: &[usize]) -> Result<Tensor, tenfold::Error> {
    let n: usize = shape.iter().product();
    let mut x = 12345u32;
    let values: Vec<f64> = (0..n)
        .map(|i| {
            let mut sum = 0.0;
            for _ in 0..4 {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                sum += f64::from(x >> 8) / f64::from(1u32 << 24) - 0.5;
            }
            sum * (1.0 + (i % 7) as f64 / 4.0) + 0.25
        })
        .collect();
    Tensor::from_f64(dtype, shape, &values)
}

struct Book<'a> {
    folder: &'a Path,
    entries: Vec<Value>,
}

impl Book<'_> {
    fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|e| e["name"] == name)
    }

    fn add(&mut self, name: &str, tensor: &Tensor, options: &VideoOptions) -> Done {
        if self.has(name) {
            return Ok(());
        }
        // The goal is overridden by the fixed quantiser, or is one that bytes take.
        let goal = if tensor.dtype.is_float() { Goal::Bits(3.0) } else { Goal::Lossless };
        let blob = tenfold_video::encode(&tensor.view()?, &EncodeOptions::new(goal), options)?;
        let back = tenfold_video::decode(&blob, &DecodeOptions::default())?;
        fs::write(self.folder.join(format!("{name}.tnfd")), &blob)?;
        // Of a large tensor the checksum will do.
        if back.data.len() < 1 << 16 {
            fs::write(self.folder.join(format!("{name}.raw")), &back.data)?;
        }
        self.entries.push(json!({
            "name": name, "dtype": back.dtype.to_string(), "shape": back.shape,
            "blob_crc32": crc32fast::hash(&blob), "raw_crc32": crc32fast::hash(&back.data),
        }));
        Ok(())
    }

    /// A blob made from a good one, its checksums right and something else wrong.
    fn forge(&mut self, name: &str, good: &str, change: impl FnOnce(&mut Parcel, &mut Vec<Vec<u8>>)) -> Done {
        if self.has(name) {
            return Ok(());
        }
        let good = fs::read(self.folder.join(format!("{good}.tnfd")))?;
        let opened = Opened::read(&good, &Limits::default())?;
        let mut tiles = (0..opened.parcel.tiles())
            .map(|i| Ok(opened.tile(i)?.to_vec()))
            .collect::<Result<Vec<Vec<u8>>, tenfold::Error>>()?;
        let mut parcel = opened.parcel;
        change(&mut parcel, &mut tiles);
        let blob = parcel.write(tiles)?;
        let error = tenfold_video::decode(&blob, &DecodeOptions::default()).err().ok_or("it decodes")?;
        fs::write(self.folder.join(format!("{name}.tnfd")), &blob)?;
        self.entries.push(json!({
            "name": name, "refused": format!("{:?}", error.kind()).to_lowercase(),
            "blob_crc32": crc32fast::hash(&blob),
        }));
        Ok(())
    }
}

fn main() -> Done {
    let folder = std::env::args().nth(1).ok_or("name a folder")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let index = folder.join("index.json");
    let entries = match fs::read(&index) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Vec::new(),
    };
    let mut book = Book { folder, entries };
    add(&mut book)?;
    forge(&mut book)?;
    fs::write(index, serde_json::to_string_pretty(&book.entries)? + "\n")?;
    println!("{} vectors", book.entries.len());
    Ok(())
}

fn add(book: &mut Book<'_>) -> Done {
    let bf16 = tensor(Dtype::Bf16, &[40, 48])?;
    let at = |standard: Standard, qp: u32| VideoOptions::new(standard).with_quality(Quality::Qp(qp));
    let standards = [("h264", Standard::H264, 30), ("h265", Standard::H265, 30), ("av1", Standard::Av1, 35)];
    for (name, standard, qp) in standards {
        book.add(&format!("{name}_bf16"), &bf16, &at(standard, qp))?;
        book.add(&format!("{name}_10_bits"), &bf16, &at(standard, qp).with_depth(10))?;
        book.add(&format!("{name}_chroma"), &bf16, &at(standard, qp).with_chroma(Chroma::Constant))?;
        let bytes = Tensor { dtype: Dtype::U8, shape: vec![40, 48], data: bf16.data[..1920].to_vec() };
        book.add(&format!("{name}_bytes"), &bytes, &VideoOptions::new(standard))?;
    }
    let h265 = at(Standard::H265, 30);
    book.add("h265_12_bits", &bf16, &h265.clone().with_depth(12))?;
    book.add("h265_f64", &tensor(Dtype::F64, &[33, 35])?, &h265)?;
    book.add("h265_f8", &tensor(Dtype::F8E4M3, &[33, 35])?, &h265)?;
    book.add("h265_rows", &tensor(Dtype::F32, &[3, 12, 40])?, &h265.clone().with_scaling(Scaling::Rows(7)))?;
    book.add("h265_columns", &tensor(Dtype::F16, &[64, 20])?, &h265.clone().with_scaling(Scaling::Columns))?;
    let rotated = h265.clone().with_hadamard(Hadamard::new(5, 77)?);
    book.add("h265_hadamard", &tensor(Dtype::F32, &[40, 45])?, &rotated)?;
    book.add("h265_samples", &bf16, &VideoOptions::new(Standard::H265).with_quality(Quality::Lossless))?;
    book.add("h265_one_value", &tensor(Dtype::F32, &[1])?, &h265)?;
    book.add("h265_empty", &tensor(Dtype::F32, &[0, 5])?, &h265)?;
    book.add("h264_two_pictures", &tensor(Dtype::Bf16, &[1025, 1024])?, &at(Standard::H264, 51))?;
    let mut special = bf16.clone();
    for (at, bits) in [(0usize, 0x7fc0u16), (77, 0x7f80), (1919, 0xff80)] {
        special.data[2 * at..2 * at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    book.add("h264_specials", &special, &at(Standard::H264, 30))
}

fn forge(book: &mut Book<'_>) -> Done {
    for name in ["h264", "h265", "av1"] {
        let good = format!("{name}_bf16");
        book.forge(&format!("{name}_bad_check"), &good, |_, tiles| tiles[0][0] ^= 1)?;
        book.forge(&format!("{name}_cut"), &good, |_, tiles| {
            let half = tiles[0].len() / 2;
            tiles[0].truncate(half);
        })?;
        book.forge(&format!("{name}_no_picture"), &good, |_, tiles| tiles[0].truncate(4))?;
        book.forge(&format!("{name}_empty_tile"), &good, |_, tiles| tiles[0].clear())?;
        book.forge(&format!("{name}_no_sets"), &good, |p, _| p.params.truncate(22))?;
    }
    let set = |at: usize, value: u8| move |p: &mut Parcel, _: &mut Vec<Vec<u8>>| p.params[at] = value;
    book.forge("depth", "h265_bf16", set(0, 9))?;
    book.forge("other_depth", "h265_bf16", set(0, 10))?;
    book.forge("chroma", "h265_bf16", set(1, 2))?;
    book.forge("width", "h265_bf16", set(2, 47))?;
    book.forge("map", "h265_bf16", set(4, 4))?;
    book.forge("bytes_of_bf16", "h265_bf16", set(4, 3))?;
    book.forge("swapped_sides", "h265_bf16", |p, _| p.params.swap(2, 3))?;
    book.forge("short_params", "h265_bf16", |p, _| p.params.truncate(10))?;
    book.forge("special_too_far", "h264_specials", |p, _| p.shape = vec![40, 2])?;
    book.forge("other_standard", "h265_bf16", |p, _| p.codec = tenfold::format::Codec::H264)
}
