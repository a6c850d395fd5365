//! Adds golden vectors of picture blobs: blobs with the tensors they decode to, and forged ones that must be
//! refused. Vectors that exist are never written again.
//!
//! `cargo run -p tenfold-video --features video --example golden -- conformance/video`

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tenfold::engine::Limits;
use tenfold::format::carry::{Opened, Parcel};
use tenfold::prepare::{Axis, Basis, Dct, Hadamard, Means, Rotation, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Goal, Tensor};
use tenfold_video::{Chroma, Hardware, Quality, Scaling, Standard, VideoOptions};

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
        self.add_behind(name, tensor, options, Vec::new())
    }

    /// The same behind transforms.
    fn add_behind(
        &mut self,
        name: &str,
        tensor: &Tensor,
        options: &VideoOptions,
        chain: Vec<Transform>,
    ) -> Done {
        if self.has(name) {
            return Ok(());
        }
        // The goal is overridden by the fixed quantiser, or is one that bytes take.
        let goal = if tensor.dtype.is_float() { Goal::Bits(3.0) } else { Goal::Lossless };
        let mut how = EncodeOptions::new(goal);
        if !chain.is_empty() {
            how = how.with_transforms(chain);
        }
        let blob = tenfold_video::encode(&tensor.view()?, &how, options)?;
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

    /// A blob whose header's bytes are changed, its checksum right.
    fn forge_bytes(&mut self, name: &str, good: &str, change: impl FnOnce(&mut [u8]) -> Done) -> Done {
        if self.has(name) {
            return Ok(());
        }
        let mut blob = fs::read(self.folder.join(format!("{good}.tnfd")))?;
        let len = u32::from_le_bytes(blob[8..12].try_into()?) as usize - 4;
        change(&mut blob[..len])?;
        let sum = crc32fast::hash(&blob[..len]);
        blob[len..len + 4].copy_from_slice(&sum.to_le_bytes());
        self.refused(name, &blob)
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
        self.refused(name, &parcel.write(tiles)?)
    }

    fn refused(&mut self, name: &str, blob: &[u8]) -> Done {
        let error = tenfold_video::decode(blob, &DecodeOptions::default()).err().ok_or("it decodes")?;
        fs::write(self.folder.join(format!("{name}.tnfd")), blob)?;
        self.entries.push(json!({
            "name": name, "refused": format!("{:?}", error.kind()).to_lowercase(),
            "blob_crc32": crc32fast::hash(blob),
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
    behind_transforms(book)?;
    let nvdec = |standard, qp| at(standard, qp).with_hardware(Hardware::Nvdec);
    book.add("h264_nvdec", &bf16, &nvdec(Standard::H264, 30))?;
    book.add("h265_nvdec", &tensor(Dtype::Bf16, &[330, 320])?, &nvdec(Standard::H265, 30))?;
    book.add("h265_nvdec_12_bits", &bf16, &nvdec(Standard::H265, 30).with_depth(12))?;
    book.add("av1_nvdec", &bf16, &nvdec(Standard::Av1, 35))?;
    let mut special = bf16.clone();
    for (at, bits) in [(0usize, 0x7fc0u16), (77, 0x7f80), (1919, 0xff80)] {
        special.data[2 * at..2 * at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    book.add("h264_specials", &special, &at(Standard::H264, 30))?;
    for_engines(book, &special)
}

/// What NVDEC takes, in all that it may mean. `special` has values that no sample holds.
fn for_engines(book: &mut Book<'_>, special: &Tensor) -> Done {
    let nvdec = |standard| VideoOptions::new(standard).with_hardware(Hardware::Nvdec);
    let h264 = nvdec(Standard::H264).with_quality(Quality::Qp(30));
    let h265 = nvdec(Standard::H265).with_quality(Quality::Qp(30));
    let short = || -> Result<_, tenfold::Error> { Ok(Transform::Basis(Rotation::embedded(&cosines(12)?))) };
    let wide = tensor(Dtype::Bf16, &[72, 96])?;
    let bytes = Tensor { dtype: Dtype::U8, shape: vec![72, 96], data: wide.data[..6912].to_vec() };
    book.add(
        "h264_nvdec_rows",
        &tensor(Dtype::F32, &[3, 20, 90])?,
        &h264.clone().with_scaling(Scaling::Rows(7)),
    )?;
    book.add(
        "h264_nvdec_hadamard",
        &tensor(Dtype::F16, &[72, 96])?,
        &h264.clone().with_hadamard(Hadamard::new(5, 77)?),
    )?;
    book.add("h264_nvdec_specials", special, &h264)?;
    book.add("h264_nvdec_pictures", &tensor(Dtype::Bf16, &[200, 150])?, &h264.clone().with_side(144))?;
    book.add_behind("h264_nvdec_basis", &tensor(Dtype::Bf16, &[150, 48])?, &h264, vec![short()?])?;
    book.add("h265_nvdec_8_bits", &wide, &h265)?;
    book.add("h265_nvdec_10_bits", &wide, &h265.clone().with_depth(10))?;
    book.add(
        "h265_nvdec_rows",
        &tensor(Dtype::F32, &[3, 20, 90])?,
        &h265.clone().with_scaling(Scaling::Rows(7)),
    )?;
    let columns = h265.clone().with_scaling(Scaling::Columns);
    book.add("h265_nvdec_columns", &tensor(Dtype::F16, &[72, 96])?, &columns)?;
    book.add("h265_nvdec_columns_12_bits", &tensor(Dtype::F32, &[72, 96])?, &columns.clone().with_depth(12))?;
    book.add("h265_nvdec_f64", &tensor(Dtype::F64, &[33, 95])?, &h265)?;
    book.add("h265_nvdec_f8", &tensor(Dtype::F8E4M3, &[33, 95])?, &h265)?;
    book.add("h265_nvdec_specials", special, &h265)?;
    book.add("h265_nvdec_bytes", &bytes, &nvdec(Standard::H265))?;
    book.add("h265_nvdec_samples", &wide, &nvdec(Standard::H265).with_quality(Quality::Lossless))?;
    book.add(
        "h265_nvdec_pictures",
        &tensor(Dtype::Bf16, &[200, 150])?,
        &h265.clone().with_side(160).with_depth(10),
    )?;
    let rotated = h265.clone().with_hadamard(Hadamard::new(5, 77)?);
    book.add("h265_nvdec_hadamard", &tensor(Dtype::F32, &[72, 96])?, &rotated)?;
    book.add("h265_nvdec_hadamard_12_bits", &wide, &rotated.with_depth(12))?;
    book.add_behind("h265_nvdec_basis", &tensor(Dtype::Bf16, &[150, 48])?, &h265, vec![short()?])?;
    let means = Transform::Means(Means::new(&[0.25; 96]));
    book.add_behind("h265_nvdec_means", &wide, &h265, vec![means, Transform::Dct(Dct::new(3)?)])?;
    book.add("av1_nvdec_10_bits", &wide, &nvdec(Standard::Av1).with_quality(Quality::Qp(35)).with_depth(10))
}

/// Orthonormal vectors for rows of 48 columns: cosines, as exact on every machine as bf16 needs.
fn cosines(rank: usize) -> Result<Arc<Basis>, tenfold::Error> {
    const COLS: usize = 48;
    let entry = |k: usize, c: usize| {
        let turn = std::f64::consts::PI * k as f64 * (2 * c + 1) as f64 / (2 * COLS) as f64;
        (turn.cos() * ((if k == 0 { 1.0 } else { 2.0 }) / COLS as f64).sqrt()) as f32
    };
    let vectors: Vec<f32> = (0..rank).flat_map(|k| (0..COLS).map(move |c| entry(k, c))).collect();
    let means: Vec<f32> = (0..COLS).map(|c| 0.25 + c as f32 / 64.0).collect();
    Ok(Arc::new(Basis::orthonormal(&means, &vectors)?))
}

/// All that may stand before pictures.
fn behind_transforms(book: &mut Book<'_>) -> Done {
    let h265 = VideoOptions::new(Standard::H265).with_quality(Quality::Qp(30));
    let bf16 = tensor(Dtype::Bf16, &[40, 48])?;
    let short = || -> Result<_, tenfold::Error> { Ok(Transform::Basis(Rotation::embedded(&cosines(12)?))) };
    book.add_behind("h265_basis", &bf16, &h265, vec![Transform::Basis(Rotation::embedded(&cosines(48)?))])?;
    book.add_behind(
        "h264_basis_few",
        &bf16,
        &VideoOptions::new(Standard::H264).with_quality(Quality::Qp(30)),
        vec![short()?],
    )?;
    let columns = h265.clone().with_scaling(Scaling::Columns);
    let mut special = bf16.clone();
    special.data[2 * 1919..].copy_from_slice(&0x7f80u16.to_le_bytes());
    book.add_behind("h265_basis_few_columns", &special, &columns, vec![short()?])?;
    book.add_behind("h265_basis_f64", &tensor(Dtype::F64, &[3, 12, 48])?, &h265, vec![short()?])?;
    let means = Transform::Means(Means::new(&[0.25; 48]));
    book.add_behind("h265_means", &bf16, &h265, vec![means.clone()])?;
    let eighths = (0..40).map(|r| (r % 24) as i8 - 12).collect();
    let rows = Transform::Weights(Weights::new(Axis::Rows, eighths));
    book.add_behind("h265_means_weights_dct", &bf16, &h265, vec![means, rows, Transform::Dct(Dct::new(3)?)])?;
    // A position beyond the coordinates but within the tensor is good, as above; one beyond the tensor is not.
    book.forge("special_beyond_a_basis", "h265_basis_few_columns", |p, _| {
        // With one row less the last special lies beyond the tensor, and the coordinates still fill the same picture.
        p.shape = vec![39, 48];
    })?;
    book.forge("basis_columns", "h265_basis_few_columns", |p, _| {
        // Coordinates have twelve parts; a reader that counts the tensor's columns finds too few bytes.
        p.params.truncate(5 + 16 + 4 * 11);
    })?;
    book.forge_bytes("delta_before_pictures", "h265_means_weights_dct", |header| {
        // A DCT of eight columns becomes a delta of groups of three rows: the same bytes but for the number.
        let dct = header.windows(3).position(|w| w == [6, 1, 3]).ok_or("there is no DCT")?;
        header[dct] = 9;
        Ok(())
    })?;
    book.forge("bytes_behind_a_basis", "h265_basis", |p, _| {
        (p.dtype, p.params[4]) = (Dtype::F8E4M3, 3);
    })
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
