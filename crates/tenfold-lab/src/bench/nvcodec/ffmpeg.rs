//! The way through FFmpeg: the same blob by libavcodec's decoder on CUDA devices, a session a picture, samples by way of the host.

use std::time::Instant;

use anyhow::{Result, ensure};
use tenfold::DecodeOptions;

use super::streams::Stream;
use crate::metrics::median;

/// Seconds of a blob; an error if this machine has no such decoder.
pub(super) fn seconds(blob: &[u8], stream: &Stream, repeats: usize) -> Result<f64> {
    let options = DecodeOptions::default();
    let decode = || tenfold_video::decode_with(blob, &options, Some("cuda"));
    let tensor = decode()?;
    let part = &tensor.data[..stream.values() * 2];
    ensure!(
        crc32fast::hash(part) == stream.crc32,
        "FFmpeg's CUDA decoder gives other values than the software decoder gave"
    );
    let mut times = Vec::new();
    for _ in 0..repeats {
        let start = Instant::now();
        decode()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(&times))
}
