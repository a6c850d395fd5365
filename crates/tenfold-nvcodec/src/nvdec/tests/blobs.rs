//! Blobs whose pictures the fake driver decodes: real headers and parameter sets around made-up slices.

use half::bf16;
use tenfold::format::carry::Parcel;
use tenfold::prepare::Transform;
use tenfold::{DecodeOptions, Dtype, Tensor};
use tenfold_cuda::{Buffer, Device, Stream as CudaStream};
use tenfold_video::codec::{Format, stream};
use tenfold_video::params::{Meaning, PictureParams};
use tenfold_video::{Chroma, Mapping, Scaling, Standard};

use super::fake::{self, access_unit, sample};
use crate::decode::{Decoder, Output, Pending};
use crate::error::Result;
use crate::nvdec::LaneSettings;

pub const FORMAT: Format = Format { width: 256, height: 256, depth: 8, chroma: Chroma::Constant };

pub fn parameter_sets() -> Vec<u8> {
    stream::split(Standard::H265, stream::gray(Standard::H265)).unwrap().0
}

/// What a blob is made of.
#[derive(Clone)]
pub struct Recipe {
    pub dtype: Dtype,
    pub rows: usize,
    pub columns: usize,
    pub scaling: Option<Scaling>,
    pub transforms: Vec<Transform>,
    pub specials: Vec<(usize, Vec<u8>)>,
}

impl Recipe {
    pub fn new(dtype: Dtype, rows: usize, columns: usize, scaling: Option<Scaling>) -> Recipe {
        Recipe { dtype, rows, columns, scaling, transforms: Vec::new(), specials: Vec::new() }
    }

    fn values(&self) -> usize {
        self.rows * self.columns
    }

    fn samples(&self) -> Vec<Vec<u16>> {
        let count = self.values().div_ceil(FORMAT.samples());
        (0..count)
            .map(|p| (0..FORMAT.samples() as u32).map(|i| sample(p as u32 + 1, i, 8)).collect())
            .collect()
    }

    fn meaning(&self) -> Meaning {
        let Some(scaling) = self.scaling else { return Meaning::Bytes };
        let part = |i: usize| (bf16::from_f64(i as f64 / 7.0 - 1.0), bf16::from_f64(0.5 + i as f64 / 100.0));
        let parts = (0..scaling.parts(self.rows, self.columns)).map(part).collect();
        Meaning::Mapped(Mapping { scaling, base: 0.3, unit: 0.011, parts })
    }

    /// The blob.
    pub fn blob(&self) -> Vec<u8> {
        let params = PictureParams {
            format: FORMAT,
            meaning: self.meaning(),
            specials: self.specials.clone(),
            parameter_sets: parameter_sets(),
        };
        let tiles = self.samples().into_iter().enumerate().map(|(p, samples)| {
            let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
            [&crc32fast::hash(&bytes).to_le_bytes()[..], &access_unit(p as u32 + 1)].concat()
        });
        let parcel = Parcel {
            codec: tenfold::format::Codec::H265,
            dtype: self.dtype,
            shape: vec![self.rows, self.columns],
            transforms: self.transforms.clone(),
            tile_values: FORMAT.samples(),
            params: params.write(),
        };
        parcel.write(tiles.collect()).unwrap()
    }

    /// What the CPU makes of the same samples.
    pub fn tensor(&self) -> Tensor {
        let samples = &self.samples().concat()[..self.values()];
        let mut data = match self.meaning() {
            Meaning::Bytes => samples.iter().map(|&s| s as u8).collect(),
            Meaning::Mapped(mapping) => {
                let mut values = vec![0.0; samples.len()];
                mapping.to_values(samples, 0, self.columns, 8, &mut values);
                self.transforms.iter().rev().for_each(|t| t.inverse(&mut values, self.columns, 0));
                Tensor::from_f64(self.dtype, &[values.len()], &values).unwrap().data
            }
        };
        let size = self.dtype.size();
        self.specials.iter().for_each(|(at, e)| data[at * size..][..size].copy_from_slice(e));
        Tensor { dtype: self.dtype, shape: vec![self.rows, self.columns], data }
    }
}

pub fn device() -> Device {
    Device::emulated(1 << 30)
}

pub fn decoder(device: &Device, settings: LaneSettings) -> Decoder {
    Decoder::with_api(fake::cuvid(), device, settings).unwrap()
}

/// Decodes into device memory and reads that.
pub fn decode_as(decoder: &Decoder, blob: &[u8], dtype: Dtype) -> Result<Vec<u8>> {
    let info = tenfold::inspect(blob)?;
    let len = info.shape.iter().product::<usize>() * dtype.size();
    let memory = Buffer::from_slice(decoder.device(), &vec![0xee; len.max(16)]).unwrap();
    let output = Output { memory: memory.slice().part(0, len).unwrap(), dtype };
    let options = DecodeOptions::default();
    // SAFETY: the buffer lives until the result is there, and nobody else uses it.
    unsafe { decoder.decode_into(blob, output, &options, CudaStream::DEFAULT)? };
    let mut bytes = vec![0; len];
    memory.read(&mut bytes, CudaStream::DEFAULT).unwrap();
    Ok(bytes)
}

pub fn decode(decoder: &Decoder, recipe: &Recipe) -> Result<Vec<u8>> {
    decode_as(decoder, &recipe.blob(), recipe.dtype)
}

/// Starts decoding into all of a buffer, which is left alone until the result is there.
pub fn submit(decoder: &Decoder, blob: &[u8], memory: &Buffer, dtype: Dtype) -> Pending {
    let output = Output { memory: memory.slice(), dtype };
    // SAFETY: callers give each its own buffer, which outlives the result.
    unsafe { decoder.submit(blob, output, &DecodeOptions::default(), CudaStream::DEFAULT).unwrap() }
}

/// Waits for a result and reads it.
pub fn result(pending: Pending, memory: &Buffer) -> Vec<u8> {
    pending.result(CudaStream::DEFAULT).unwrap();
    let mut found = vec![0; memory.slice().len];
    memory.read(&mut found, CudaStream::DEFAULT).unwrap();
    found
}
