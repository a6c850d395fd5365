//! Video codecs on pictures of the tensor: whatever `tenfold-video` finds on this machine.

use std::sync::OnceLock;

use rayon::prelude::*;
use tenfold::{DecodeOptions, Effort, EncodeOptions, Goal, Tensor, TensorView};
use tenfold_video::codec::{self, Settings};
use tenfold_video::{Quality, Standard, VideoOptions};

use super::{Abilities, Fidelity, Peer, PeerError, Rate};

/// A video codec at a rate.
#[derive(Debug, Clone)]
pub struct Video {
    /// Name of the encoder.
    pub encoder: &'static str,
    /// What it writes.
    pub standard: Standard,
    /// Preset.
    pub effort: Effort,
    /// Bits of a sample; 8 or more by need where it is not said.
    pub depth: Option<u8>,
    /// Bits a value to reach, every byte counted.
    pub bits: f64,
    /// Threads; 0 is all cores.
    threads: usize,
    /// What the last search settled on.
    found: OnceLock<Quality>,
}

impl Video {
    /// An encoder at a preset, aimed at a rate.
    pub fn new(encoder: &'static str, standard: Standard, effort: Effort, bits: f64) -> Self {
        Video { encoder, standard, effort, depth: None, bits, threads: 0, found: OnceLock::new() }
    }

    /// The same with samples of so many bits.
    pub fn with_depth(mut self, depth: u8) -> Self {
        self.depth = Some(depth);
        self
    }

    fn options(&self) -> VideoOptions {
        let mut options = VideoOptions::new(self.standard).with_encoder(self.encoder);
        options.depth = self.depth;
        options
    }
}

impl Peer for Video {
    fn name(&self) -> String {
        let depth = self.depth.map_or_else(String::new, |d| format!(" {d}-bit"));
        format!("{} {}{depth}", self.encoder, preset(self.encoder, self.effort))
    }

    fn abilities(&self) -> Abilities {
        Abilities { fidelity: Fidelity::Lossy, rate: Rate::Any, timed: true }
    }

    fn probe(&self) -> Result<(), PeerError> {
        let of = |e: &&dyn codec::Encoder| e.name() == self.encoder && e.standard() == self.standard;
        match tenfold_video::encoders().into_iter().find(of) {
            Some(encoder) => encoder.abilities().map(|_| ()).map_err(from),
            None => Err(PeerError::NotAvailable(format!("built without {}", feature(self.encoder)))),
        }
    }

    fn on_threads(&self, threads: usize) -> Option<Box<dyn Peer>> {
        Some(Box::new(Video { threads, ..self.clone() }))
    }

    fn without_search(&self, view: &TensorView<'_>) -> Result<Option<Box<dyn Peer>>, PeerError> {
        let Some(&quality) = self.found.get() else { return Ok(None) };
        let pictures = tenfold_video::pictures(view, &self.options()).map_err(from)?;
        let settings = Settings { format: pictures.format, quality, effort: self.effort, inter: false };
        let search = self.clone();
        Ok(Some(Box::new(Settled { search, settings, pictures: pictures.samples })))
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        Some(Box::new(Video { bits, found: OnceLock::new(), ..self.clone() }))
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        if view.is_empty() || !view.dtype().is_float() {
            return Err(PeerError::Unsupported("pictures need at least one float".to_string()));
        }
        self.probe()?;
        let options =
            EncodeOptions::new(Goal::Bits(self.bits)).with_effort(self.effort).with_threads(self.threads);
        let encoded = tenfold_video::encode_with_report(view, &options, &self.options()).map_err(from)?;
        let _ = self.found.set(encoded.quality);
        Ok(encoded.blob)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let options = DecodeOptions::default().with_threads(self.threads);
        tenfold_video::decode(bytes, &options).map_err(from)
    }
}

/// The codec alone, its quantiser known and its pictures made: what its own speed is taken with.
struct Settled {
    search: Video,
    settings: Settings,
    pictures: Vec<Vec<u16>>,
}

impl Peer for Settled {
    fn name(&self) -> String {
        self.search.name()
    }

    fn abilities(&self) -> Abilities {
        self.search.abilities()
    }

    /// The coded pictures; there is no blob around them.
    fn encode(&self, _view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        let search = &self.search;
        let of = |e: &&dyn codec::Encoder| e.name() == search.encoder && e.standard() == search.standard;
        let encoder = tenfold_video::encoders().into_iter().find(of);
        let encoder = encoder.ok_or_else(|| PeerError::NotAvailable(search.encoder.to_string()))?;
        let one = |picture: &Vec<u16>| encoder.encode(&self.settings, &[picture]);
        let coded: Result<Vec<_>, _> = match search.threads {
            1 => self.pictures.iter().map(one).collect(),
            _ => self.pictures.par_iter().map(one).collect(),
        };
        Ok(coded.map_err(from)?.into_iter().flat_map(|c| c.pictures.concat()).collect())
    }

    fn decode(&self, _bytes: &[u8]) -> Result<Tensor, PeerError> {
        Err(PeerError::Unsupported("only encoding is timed without a blob".to_string()))
    }
}

/// What the encoder calls its preset.
fn preset(encoder: &str, effort: Effort) -> &'static str {
    let [fast, balanced, best] = match encoder {
        "x264" => ["veryfast", "medium", "slower"],
        "x265" => ["ultrafast", "medium", "slow"],
        "aom" => ["cpu-used 8", "cpu-used 6", "cpu-used 4"],
        "svt-av1" => ["preset 12", "preset 8", "preset 4"],
        _ => ["fast", "balanced", "best"],
    };
    match effort {
        Effort::Fast => fast,
        Effort::Balanced => balanced,
        Effort::Best => best,
    }
}

fn feature(encoder: &str) -> &'static str {
    if encoder == "rav1e" { "the feature `av1`" } else { "the feature `video` (the system's FFmpeg)" }
}

fn from(error: tenfold_video::Error) -> PeerError {
    use tenfold_video::Error;
    match error {
        Error::Tensor(e) => PeerError::Tenfold(e),
        Error::NotBuilt { .. } | Error::NotAvailable { .. } => PeerError::NotAvailable(error.to_string()),
        Error::Refused { .. } => PeerError::Unsupported(error.to_string()),
        Error::Stream { .. } => PeerError::Corrupt(error.to_string()),
        _ => PeerError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::synth;
    use tenfold::Dtype;

    #[test]
    fn a_rate_is_met_and_the_coder_is_timed_alone_or_the_feature_is_named() {
        let tensor = synth::gaussian(Dtype::Bf16, &[100, 3, 70], 0.02, 6).unwrap();
        let view = tensor.view().unwrap();
        let peer = Video::new("x264", Standard::H264, Effort::Fast, 3.0);
        assert!(peer.without_search(&view).unwrap().is_none(), "nothing was searched for yet");
        if let Err(e) = peer.probe() {
            assert!(e.to_string().contains("feature `video`"), "{e}");
            return assert!(matches!(peer.encode(&view), Err(PeerError::NotAvailable(_))));
        }
        let bytes = peer.encode(&view).unwrap();
        let bits = bytes.len() as f64 * 8.0 / view.len() as f64;
        assert!((2.94..3.06).contains(&bits), "{bits}");
        let back = peer.decode(&bytes).unwrap();
        let f = metrics::Fidelity::between(&view, &back.view().unwrap()).unwrap();
        assert!((0.015..0.08).contains(&f.nmse()), "{}", f.nmse());
        let alone = peer.without_search(&view).unwrap().unwrap();
        let stream = alone.encode(&view).unwrap();
        assert!(stream.len() as f64 > 0.8 * bytes.len() as f64, "{} {}", stream.len(), bytes.len());
        let ints = TensorView::from_slice(&[1i32], &[1]).unwrap();
        assert!(matches!(peer.encode(&ints), Err(PeerError::Unsupported(_))));
    }
}
