//! The lanes of `tenfold-nvcodec`.
#![allow(unsafe_code)]

use anyhow::{Context, Result};
use tenfold::{DecodeOptions, Dtype};
use tenfold_cuda::{Buffer, Device, OwnedStream};
use tenfold_nvcodec::{Decoder, LaneSettings, Output, decodes};

use super::engines::{Engines, Lanes};

/// The engines of a device; an error says why there are none.
pub(super) fn open(device: &Device) -> Result<Engines> {
    let kinds = decodes(device).context("the video engines")?;
    let count = kinds.iter().filter(|kind| kind.used).map(|kind| kind.engines).max().unwrap_or(0);
    anyhow::ensure!(count > 0, "{} has no video engines for H.264 and H.265", device.properties().name);
    let all = count as usize;
    Ok(Engines::new(all, move |device, lanes| Ok(Box::new(Nvdec::open(device, lanes, all)?))))
}

struct Nvdec {
    device: Device,
    decoder: Decoder,
    stream: OwnedStream,
    options: DecodeOptions,
}

impl Nvdec {
    fn open(device: &Device, lanes: usize, all: usize) -> Result<Nvdec> {
        // All of them as a user has them: the default.
        let lanes = if lanes == all { 0 } else { lanes };
        let decoder = Decoder::with_settings(device, LaneSettings::default().with_lanes(lanes))?;
        let (device, stream) = (device.clone(), OwnedStream::new(device)?);
        Ok(Nvdec { device, decoder, stream, options: DecodeOptions::default() })
    }
}

impl Lanes for Nvdec {
    fn decode(&mut self, blob: &[u8], out: &Buffer) -> Result<()> {
        let stream = self.stream.stream();
        let output = Output { memory: out.slice(), dtype: Dtype::Bf16 };
        // SAFETY: the buffer is the caller's, who waits here, and on no other stream meanwhile.
        unsafe { self.decoder.decode_into(blob, output, &self.options, stream)? };
        Ok(self.device.synchronize(stream)?)
    }
    fn decode_in_turn(&mut self, blob: &[u8], outs: [&Buffer; 2], times: usize) -> Result<()> {
        let stream = self.stream.stream();
        let mut before = None;
        for out in outs.into_iter().cycle().take(times) {
            let output = Output { memory: out.slice(), dtype: Dtype::Bf16 };
            // SAFETY: as above. Of two blobs on their way each has a buffer of its own.
            let pending = unsafe { self.decoder.submit(blob, output, &self.options, stream)? };
            if let Some(before) = before.replace(pending) {
                before.result(stream)?;
            }
        }
        if let Some(last) = before {
            last.result(stream)?;
        }
        Ok(self.device.synchronize(stream)?)
    }
}
