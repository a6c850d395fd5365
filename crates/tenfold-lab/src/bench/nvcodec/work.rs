//! What a GPU is given to do: products of matrices, and what is to hide behind them. Here and in `nvdec`, and nowhere else in this bench,
//! addresses are handed to a device.
#![allow(unsafe_code)]

use anyhow::{Context, Result, ensure};
use half::f16;
use tenfold::{Dtype, EncodeOptions, Goal, inspect};
use tenfold_cuda::{
    Buffer, DecodeRequest, DecodeSettings, Device, OwnedStream, Pinned, SquareProduct, Status, Timer, decode,
    decode_workspace_len, multiply_squares,
};

use crate::synth::{self, Shape};

/// Products of a round, and their side.
const PRODUCTS: usize = 30;
const SIDE: usize = 4096;
/// Scratch memory of cuBLAS.
const WORKSPACE: usize = 32 << 20;

/// Something that is done on a device and waited for.
pub(super) trait Work: Send {
    /// For tables and traces.
    fn name(&self) -> &'static str;

    /// Does it once, and waits.
    fn run(&mut self) -> Result<()>;
}

/// 30 products of f16 matrices of 4096², on a stream of their own.
pub(super) struct Products {
    device: Device,
    stream: OwnedStream,
    matrices: [Buffer; 3],
    workspace: Buffer,
    side: usize,
    /// How many rounds a run has.
    pub rounds: usize,
    /// Seconds of the last run, by the device's clock.
    pub seconds: f64,
}

impl Products {
    pub fn new(device: &Device) -> Result<Products> {
        Products::of_side(device, SIDE)
    }

    /// As an emulator can make.
    #[cfg(all(test, feature = "emulator", feature = "video"))]
    pub fn small(device: &Device) -> Result<Products> {
        Products::of_side(device, 4)
    }

    fn of_side(device: &Device, side: usize) -> Result<Products> {
        let once: Vec<u8> =
            (0..4096u32).flat_map(|i| f16::from_f32((i as f32 * 0.37).sin() / 64.0).to_le_bytes()).collect();
        let numbers = once.repeat((side * side * 2).div_ceil(once.len()));
        let matrix = || Buffer::from_slice(device, &numbers[..side * side * 2]);
        let matrices = [matrix()?, matrix()?, matrix()?];
        let (workspace, stream) = (Buffer::new(device, WORKSPACE)?, OwnedStream::new(device)?);
        Ok(Products { device: device.clone(), stream, matrices, workspace, side, rounds: 1, seconds: 0.0 })
    }

    /// Multiply-adds a second, in tera operations, two for each.
    pub fn rate(&self) -> f64 {
        let each = 2.0 * (self.side as f64).powi(3);
        each * (PRODUCTS * self.rounds) as f64 / self.seconds.max(1e-12) / 1e12
    }
}

impl Work for Products {
    fn name(&self) -> &'static str {
        "products"
    }

    fn run(&mut self) -> Result<()> {
        let [a, b, to] = &self.matrices;
        let request = SquareProduct {
            side: self.side,
            dtype: Dtype::F16,
            of: [a.slice(), b.slice()],
            to: to.slice(),
            workspace: self.workspace.slice(),
        };
        let stream = self.stream.stream();
        let timer = Timer::new(&self.device)?;
        timer.start(stream)?;
        for _ in 0..PRODUCTS * self.rounds {
            // SAFETY: buffers of this device, which are this work's alone and live until the wait below.
            unsafe { multiply_squares(&self.device, &request, stream)? };
        }
        timer.stop(stream)?;
        self.seconds = f64::from(timer.milliseconds()?) / 1e3;
        Ok(())
    }
}

/// A tensor decoded by the native CUDA decoder.
pub(super) struct Native {
    device: Device,
    stream: OwnedStream,
    blob: Buffer,
    out: Buffer,
    status: Buffer,
    workspace: Buffer,
    request: DecodeRequest,
    times: usize,
}

impl Native {
    /// A blob of at most so many values at a rate, decoded until as many are.
    pub fn new(device: &Device, values: usize, bits: f64, threads: usize) -> Result<Native> {
        // Made on the host: more would take long, and a device is as busy with as many values in several calls.
        let most = values.min(1 << 24);
        let rows = (most / 4096).max(1);
        let tensor =
            synth::tensor(Dtype::Bf16, &[rows, 4096], &synth::values(Shape::Gaussian, 1.0, rows * 4096, 5))
                .context("a tensor of noise")?;
        let options = EncodeOptions::new(Goal::Bits(bits)).with_threads(threads);
        let bytes = tenfold::encode(&tensor.view()?, &options)?;
        let (blob, out) = (Buffer::from_slice(device, &bytes)?, Buffer::new(device, tensor.data.len())?);
        let info = inspect(&bytes)?;
        let request = DecodeRequest::new(blob.slice(), out.slice(), Dtype::Bf16).with_info(&info);
        let workspace = Buffer::new(device, decode_workspace_len(&[request]))?;
        let status = Buffer::from_slice(device, &[0xff; size_of::<Status>()])?;
        let (device, stream) = (device.clone(), OwnedStream::new(device)?);
        let times = values.div_ceil(rows * 4096);
        Ok(Native { device, stream, blob, out, status, workspace, request, times })
    }
}

impl Work for Native {
    fn name(&self) -> &'static str {
        "native CUDA decoder"
    }

    fn run(&mut self) -> Result<()> {
        let stream = self.stream.stream();
        let settings = DecodeSettings::default();
        debug_assert!(self.blob.slice().len > 0 && self.out.slice().len > 0);
        for _ in 0..self.times {
            let (status, workspace) = (self.status.slice(), self.workspace.slice());
            // SAFETY: buffers of this device, which are this work's alone and live until the wait below.
            unsafe { decode(&self.device, &[self.request], &settings, status, workspace, stream)? };
        }
        self.device.synchronize(stream)?;
        let mut bytes = [0u8; size_of::<Status>()];
        self.status.read(&mut bytes, stream)?;
        Ok(Status::from_bytes(bytes).check()?)
    }
}

/// So many bytes copied: on the device, or to it from pinned memory.
pub(super) struct Copies {
    device: Device,
    stream: OwnedStream,
    from: Source,
    to: Buffer,
    times: usize,
}

enum Source {
    Device(Buffer),
    Host(Pinned),
}

/// Bytes of a copy at most.
const COPY: usize = 256 << 20;

impl Copies {
    pub fn on_device(device: &Device, bytes: usize) -> Result<Copies> {
        let once = bytes.clamp(1, COPY);
        Copies::new(device, Source::Device(Buffer::new(device, once)?), bytes, once)
    }

    pub fn to_device(device: &Device, bytes: usize) -> Result<Copies> {
        let once = bytes.clamp(1, COPY);
        Copies::new(device, Source::Host(Pinned::new(device, once)?), bytes, once)
    }

    fn new(device: &Device, from: Source, bytes: usize, once: usize) -> Result<Copies> {
        let (to, stream) = (Buffer::new(device, once)?, OwnedStream::new(device)?);
        Ok(Copies { device: device.clone(), stream, from, to, times: bytes.div_ceil(once).max(1) })
    }
}

impl Work for Copies {
    fn name(&self) -> &'static str {
        match self.from {
            Source::Device(_) => "copies on the device",
            Source::Host(_) => "copies from pinned host memory",
        }
    }

    fn run(&mut self) -> Result<()> {
        let stream = self.stream.stream();
        for _ in 0..self.times {
            // SAFETY: memory of this work alone, which lives until the wait below.
            unsafe {
                match &self.from {
                    Source::Device(from) => self.device.copy(self.to.slice(), from.slice(), stream)?,
                    Source::Host(from) => self.device.copy_in(self.to.slice(), from, stream)?,
                }
            }
        }
        Ok(self.device.synchronize(stream)?)
    }
}

/// CRC-32 of each of the equal parts of a buffer; they must all be the same.
pub(super) fn checksum_of_parts(buffer: &Buffer, parts: usize) -> Result<u32> {
    let mut bytes = vec![0u8; buffer.slice().len];
    buffer.read(&mut bytes, tenfold_cuda::Stream::DEFAULT)?;
    let part = bytes.len() / parts.max(1);
    let mut sums = bytes.chunks_exact(part.max(1)).map(crc32fast::hash);
    let first = sums.next().context("nothing was decoded")?;
    ensure!(sums.all(|sum| sum == first), "the same pictures decode to other values later in the tensor");
    Ok(first)
}
