//! Holds NVDEC against the software decoders on a real GPU, and soaks it. Prints a line a step.
//!
//! ```text
//! cargo run --release -p tenfold-nvcodec --features video --example parity -- make FOLDER   # anywhere, with FFmpeg
//! cargo run --release -p tenfold-nvcodec --example parity -- run [FOLDER]… [--calls 10000]  # on the GPU, without
//! ```
//!
//! `make` writes blobs of several standards, depths and sizes, each beside the elements that software decodes. `run` decodes these
//! and the golden blobs; without a GPU it says so in one line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a program for developers

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tenfold::format::carry::Opened;
use tenfold::{DecodeOptions, Dtype, Tensor};
use tenfold_cuda::{Buffer, Device, OwnedStream, Stream};
use tenfold_nvcodec::{Decoder, Error, LaneSettings, Output};

/// A blob, and what software makes of it.
struct Case {
    name: String,
    blob: Vec<u8>,
    /// Bytes of the tensor.
    len: usize,
    /// The tensor, or for a large one its checksum.
    wanted: Wanted,
    dtype: Dtype,
    rotated: bool,
}

#[derive(Clone)]
enum Wanted {
    Bytes(Vec<u8>),
    Sum(u32),
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["make", folder] => make(Path::new(folder)),
        ["run", rest @ ..] => {
            let number = |name: &str| {
                rest.iter().position(|a| *a == name).and_then(|at| rest.get(at + 1)?.parse::<usize>().ok())
            };
            let folders: Vec<PathBuf> =
                rest.iter().take_while(|a| !a.starts_with("--")).map(PathBuf::from).collect();
            let most = Duration::from_secs(number("--seconds").unwrap_or(3600) as u64);
            run(&folders, number("--calls").unwrap_or(10_000), most)
        }
        _ => {
            eprintln!("parity make FOLDER | parity run [FOLDER]… [--calls N] [--seconds S]");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(feature = "video"))]
fn make(_: &Path) -> ExitCode {
    eprintln!("parity make needs --features video");
    ExitCode::from(2)
}

#[cfg(feature = "video")]
fn make(folder: &Path) -> ExitCode {
    use tenfold::prepare::Hadamard;
    use tenfold::{EncodeOptions, Goal};
    use tenfold_video::{Chroma, Quality, Scaling, Standard, VideoOptions};

    fs::create_dir_all(folder).unwrap();
    let gaussian = |dtype: Dtype, shape: &[usize], seed: u64| {
        let mut x = seed;
        let mut uniform = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as f64 / f64::from(1u32 << 31)
        };
        let one = |_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let values: Vec<f64> = (0..shape.iter().product()).map(one).collect();
        Tensor::from_f64(dtype, shape, &values).unwrap()
    };
    let cases = [
        (Standard::H265, Dtype::Bf16, [160, 192], 8, Scaling::Tensor, false),
        (Standard::H265, Dtype::F32, [256, 256], 8, Scaling::Rows(7), false),
        (Standard::H265, Dtype::F16, [320, 256], 10, Scaling::Columns, false),
        (Standard::H265, Dtype::Bf16, [192, 512], 12, Scaling::Tensor, false),
        (Standard::H265, Dtype::Bf16, [1100, 1000], 8, Scaling::Tensor, false),
        (Standard::H265, Dtype::Bf16, [4096, 1024], 8, Scaling::Columns, false),
        (Standard::H265, Dtype::F32, [512, 512], 8, Scaling::Tensor, true),
        (Standard::H264, Dtype::Bf16, [176, 208], 8, Scaling::Tensor, false),
        (Standard::H264, Dtype::F32, [1030, 1024], 8, Scaling::Rows(3), false),
    ];
    for (i, (standard, dtype, shape, depth, scaling, rotated)) in cases.into_iter().enumerate() {
        let tensor = gaussian(dtype, &shape, i as u64 + 1);
        let mut video = VideoOptions::new(standard)
            .with_depth(depth)
            .with_chroma(Chroma::Constant)
            .with_scaling(scaling)
            .with_quality(Quality::Qp(30));
        if rotated {
            video = video.with_hadamard(Hadamard::new(6, 1).unwrap());
        }
        let goal = EncodeOptions::new(Goal::Bits(2.0)).with_effort(tenfold::Effort::Fast);
        let blob = tenfold_video::encode(&tensor.view().unwrap(), &goal, &video).unwrap();
        let software = if standard == Standard::Av1 { "dav1d" } else { "libav" };
        let back = tenfold_video::decode_with(&blob, &DecodeOptions::default(), Some(software)).unwrap();
        let name = format!("{i}_{standard}_{dtype}_{depth}").to_lowercase().replace('.', "");
        fs::write(folder.join(format!("{name}.tnfd")), &blob).unwrap();
        fs::write(folder.join(format!("{name}.raw")), &back.data).unwrap();
        println!("{name}: {} bytes", blob.len());
    }
    ExitCode::SUCCESS
}

/// The checksum of a tensor, by the list of a folder's vectors.
fn sum_of(folder: &Path, name: &str) -> Option<u32> {
    let index: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("index.json")).ok()?).ok()?;
    let entry = index.as_array()?.iter().find(|e| e["name"] == name)?;
    u32::try_from(entry["raw_crc32"].as_u64()?).ok()
}

/// Every blob of pictures in a folder that lies beside what it decodes to, or whose checksum is listed.
fn read(folder: &Path) -> Vec<Case> {
    let files = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let mut blobs: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "tnfd")).collect();
    blobs.sort();
    let case = |path: PathBuf| {
        let name = path.file_stem()?.to_string_lossy().into_owned();
        let wanted = match fs::read(path.with_extension("raw")) {
            Ok(bytes) => Wanted::Bytes(bytes),
            Err(_) => Wanted::Sum(sum_of(folder, &name)?),
        };
        let blob = fs::read(&path).ok()?;
        let opened = Opened::read(&blob, &DecodeOptions::default().limits).ok()?;
        let (dtype, rotated) = (opened.parcel.dtype, !opened.parcel.transforms.is_empty());
        let len = opened.parcel.values() * dtype.size();
        drop(opened);
        Some(Case { name, blob, len, wanted, dtype, rotated })
    };
    blobs.into_iter().filter_map(case).collect()
}

fn decode(decoder: &Decoder, case: &Case, memory: &Buffer, stream: Stream) -> Result<Vec<u8>, Error> {
    let output = Output { memory: memory.slice().part(0, case.len)?, dtype: case.dtype };
    // SAFETY: the buffer outlives the call, and its owner is the only one that uses it.
    unsafe { decoder.decode_into(&case.blob, output, &DecodeOptions::default(), stream)? };
    let mut bytes = vec![0; case.len];
    memory.read(&mut bytes, stream)?;
    Ok(bytes)
}

/// Whether elements are the same, or near where a rotation was undone.
fn agree(case: &Case, found: &[u8]) -> bool {
    let wanted = match &case.wanted {
        Wanted::Bytes(bytes) => bytes,
        Wanted::Sum(sum) => return crc32fast::hash(found) == *sum,
    };
    if !case.rotated {
        return found == wanted;
    }
    let reals = |data: &[u8]| {
        let shape = vec![data.len() / case.dtype.size()];
        Tensor { dtype: case.dtype, shape, data: data.to_vec() }.view().unwrap().to_f64().unwrap()
    };
    let (a, b) = (reals(found), reals(wanted));
    let largest = b.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
    a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= largest / 1e3 || a.to_bits() == b.to_bits())
}

fn run(folders: &[PathBuf], calls: usize, most: Duration) -> ExitCode {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
    };
    println!("device: {:?}", device.properties());
    match tenfold_nvcodec::decodes(&device) {
        Ok(kinds) => kinds.iter().for_each(|k| println!("decodes: {k:?}")),
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
    }
    let start = Instant::now();
    let decoder = Decoder::new(&device).unwrap();
    println!("opened in {:?}: {:?}", start.elapsed(), decoder.counters());
    // Where it was built, or on a machine to which it was brought with the repository.
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/video");
    let golden = if built.exists() { built } else { PathBuf::from("conformance/video") };
    let cases: Vec<Case> = std::iter::once(&golden).chain(folders).flat_map(|f| read(f)).collect();
    let largest = cases.iter().map(|c| c.len).max().unwrap_or(0).max(16);
    let memory = Buffer::new(&device, largest).unwrap();
    let stream = OwnedStream::new(&device).unwrap();
    let (mut same, mut skipped, mut failed) = (Vec::new(), 0, 0);
    for case in &cases {
        let mut times = Vec::new();
        let mut answer = Ok(Vec::new());
        for _ in 0..3 {
            let start = Instant::now();
            answer = decode(&decoder, case, &memory, stream.stream());
            times.push(format!("{:.2}", start.elapsed().as_secs_f64() * 1e3));
            if answer.is_err() {
                break;
            }
        }
        match answer {
            Ok(found) if agree(case, &found) => {
                println!("equal: {}: {} bytes, {} ms", case.name, found.len(), times.join(" / "));
                same.push(case);
            }
            Ok(_) => {
                failed += 1;
                println!("FAILED: {}: other elements", case.name);
            }
            // What the engine does not do is no failure of ours.
            Err(Error::Unsupported(why)) => {
                skipped += 1;
                println!("skipped: {}: {why}", case.name);
            }
            Err(error) => {
                failed += 1;
                println!("FAILED: {}: {:?}: {error}", case.name, error.kind());
            }
        }
    }
    println!("{} equal, {skipped} skipped, {failed} failed; {:?}", same.len(), decoder.counters());
    failed += errors(&decoder, &same, &memory, stream.stream());
    failed += soak(&device, &decoder, &same, calls, most);
    drop(decoder);
    println!("free after closing: {:?} bytes", device.free_memory());
    ExitCode::from(u8::from(failed > 0))
}

/// Damage and limits: the error of each, and that the decoder goes on.
fn errors(decoder: &Decoder, cases: &[&Case], memory: &Buffer, stream: Stream) -> usize {
    let Some(case) = cases.first() else { return 0 };
    let mut failed = 0;
    let mut expect = |what: &str, answer: Result<Vec<u8>, Error>| match answer {
        Err(error) => println!("refused: {what}: {:?}: {error}", error.kind()),
        Ok(_) => {
            failed += 1;
            println!("FAILED: {what} was accepted");
        }
    };
    let damaged = |at: usize| {
        let mut blob = case.blob.clone();
        blob[at] ^= 0x20;
        Case { name: case.name.clone(), blob, wanted: case.wanted.clone(), ..**case }
    };
    expect("a flipped bit at the end", decode(decoder, &damaged(case.blob.len() - 9), memory, stream));
    expect("a flipped bit in the middle", decode(decoder, &damaged(case.blob.len() / 2), memory, stream));
    // Damage that the blob's own checksums cannot see: sealed anew around a changed picture.
    let opened = Opened::read(&case.blob, &DecodeOptions::default().limits).unwrap();
    let mut tiles: Vec<Vec<u8>> =
        (0..opened.parcel.tiles()).map(|i| opened.tile(i).unwrap().to_vec()).collect();
    let at = tiles[0].len() / 2;
    tiles[0][at] ^= 0x55;
    let resealed = opened.parcel.clone().write(tiles.clone()).unwrap();
    let with = |blob: Vec<u8>| Case { name: case.name.clone(), blob, wanted: case.wanted.clone(), ..**case };
    expect("a changed picture under a good checksum", decode(decoder, &with(resealed), memory, stream));
    tiles[0].truncate(at);
    let cut = opened.parcel.clone().write(tiles).unwrap();
    expect("a cut picture under a good checksum", decode(decoder, &with(cut), memory, stream));
    let again = decode(decoder, case, memory, stream);
    match again {
        Ok(found) if agree(case, &found) => println!("equal after errors: {}", case.name),
        other => {
            failed += 1;
            println!("FAILED after errors: {:?}", other.map(|_| "other elements"));
        }
    }
    failed
}

/// Many calls of mixed sizes on two threads, for so long at most; in their second half the device's memory must stay as it is.
fn soak(device: &Device, decoder: &Decoder, cases: &[&Case], calls: usize, most: Duration) -> usize {
    if cases.is_empty() {
        println!("skipped: no blob that this engine decodes; make some with `parity make`");
        return 0;
    }
    let (failed, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let end = Instant::now() + most;
    let work = |share: usize| {
        let largest = cases.iter().map(|c| c.len).max().unwrap_or(16);
        let memory = Buffer::new(device, largest).unwrap();
        let stream = OwnedStream::new(device).unwrap();
        for i in 0..share {
            if Instant::now() > end {
                break;
            }
            let case = cases[i * 7 % cases.len()];
            done.fetch_add(1, Ordering::Relaxed);
            match decode(decoder, case, &memory, stream.stream()) {
                Ok(found) if agree(case, &found) => {}
                other => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("FAILED: call {i}, {}: {:?}", case.name, other.map(|_| "other elements"));
                }
            }
        }
    };
    let round = |share: usize| thread::scope(|s| (0..2).for_each(|_| drop(s.spawn(|| work(share)))));
    // In the first half lanes still meet kinds of pictures that are new to them, and keep decoders for these.
    let mut free = [0; 2];
    let start = Instant::now();
    for free in &mut free {
        round(calls / 4);
        *free = device.free_memory().unwrap();
        let (done, took) = (done.load(Ordering::Relaxed), start.elapsed());
        println!("soak: {done} of {calls} calls in {took:?}; free {free}; {:?}", decoder.counters());
    }
    if free[0].saturating_sub(free[1]) > 64 << 20 {
        failed.fetch_add(1, Ordering::Relaxed);
        println!("FAILED: the device's memory shrank");
    }
    // Decoders of their own, closed again.
    for _ in 0..5 {
        let short = Decoder::with_settings(device, LaneSettings::default().with_lanes(2)).unwrap();
        let memory = Buffer::new(device, cases[0].len.max(16)).unwrap();
        let _ = decode(&short, cases[0], &memory, Stream::DEFAULT).unwrap();
    }
    println!("free after five decoders: {}", device.free_memory().unwrap());
    failed.into_inner()
}
