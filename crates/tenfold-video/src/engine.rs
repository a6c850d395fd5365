//! Pictures as one engine among others.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tenfold::engine::{Capabilities, Engine, Result};
use tenfold::format::Codec;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Tensor, TensorView};

use crate::encode::{Encoded, encode_with_report};
use crate::error::Error;
use crate::options::VideoOptions;

/// Writes blobs of pictures; reads those and every blob that [`tenfold::engine::Cpu`] reads.
#[derive(Debug, Clone, Default)]
pub struct Video {
    options: Option<VideoOptions>,
    decoder: Option<String>,
    costs: Option<Arc<Costs>>,
}

/// What decoders in hardware cost all tensors that an engine has encoded for them.
#[derive(Debug, Default)]
pub struct Costs(Mutex<Sums>);

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    values: f64,
    padding: f64,
    /// Values of tensors whose chroma was measured, and its bits.
    measured: f64,
    chroma: f64,
}

impl Costs {
    fn add(&self, values: usize, encoded: &Encoded) {
        let values = values as f64;
        // Sums are whole after every line.
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sums.values += values;
        sums.padding += values * encoded.padding;
        if let Some(bits) = encoded.chroma_bits {
            sums.measured += values;
            sums.chroma += values * bits;
        }
    }

    fn sums(&self) -> Sums {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples that hold no value, over those that do; nothing if nothing was encoded.
    pub fn padding(&self) -> Option<f64> {
        let sums = self.sums();
        (sums.values > 0.0).then(|| sums.padding / sums.values)
    }

    /// Bits of constant chroma a value; nothing if it was not measured.
    pub fn chroma_bits(&self) -> Option<f64> {
        let sums = self.sums();
        (sums.measured > 0.0).then(|| sums.chroma / sums.measured)
    }
}

impl Video {
    /// An engine that encodes as the options say.
    pub fn new(options: VideoOptions) -> Self {
        Video { options: Some(options), ..Video::default() }
    }

    /// An engine that only reads.
    pub fn reader() -> Self {
        Video::default()
    }

    /// Adds up here what a decoder in hardware costs ([`VideoOptions::hardware`]).
    pub fn with_costs(mut self, costs: Arc<Costs>) -> Self {
        self.costs = Some(costs);
        self
    }

    /// Sets the decoder by name; by default the first that runs here is taken.
    pub fn with_decoder(mut self, name: impl Into<String>) -> Self {
        self.decoder = Some(name.into());
        self
    }
}

/// Codecs of pictures.
const PICTURES: [Codec; 3] = [Codec::H264, Codec::H265, Codec::Av1];

/// Whether a blob holds pictures.
fn holds_pictures(blob: &[u8]) -> Result<bool> {
    // Checks only the codec; the decoder finds bad parameters.
    Ok(PICTURES.contains(&tenfold::inspect(blob)?.codec))
}

impl Engine for Video {
    fn name(&self) -> String {
        match &self.options {
            Some(options) => format!("video ({})", options.standard),
            None => "video".into(),
        }
    }

    fn encode(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<u8>> {
        match &self.options {
            Some(video) => {
                let encoded = encode_with_report(view, options, video)?;
                if let Some(costs) = &self.costs {
                    costs.add(view.len(), &encoded);
                }
                Ok(encoded.blob)
            }
            None => tenfold::encode(view, options),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::native();
        can.decodes.extend(PICTURES);
        if let Some(options) = &self.options {
            can.encodes = vec![options.standard.codec()];
            can.dtypes.retain(|dtype| dtype.is_float() || dtype.size() == 1);
            can.goals.retain(|goal| !["step", "round_bits"].contains(goal));
            can.does.retain(|transform| !["delta", "kept elements", "transposed"].contains(transform));
            can.feeds = false;
        }
        can
    }

    fn max_encoded_len(&self, dtype: Dtype, shape: &[usize], options: &EncodeOptions) -> Result<usize> {
        // Samples of at most 12 bits that no codec makes much larger, centres and steps of columns, and in the
        // worst case every value special; the rest is headers and the smallest picture.
        let native = tenfold::format::max_encoded_len(dtype, shape)?;
        // Means and weights are part of the 24 bytes a value; a basis is not.
        let chain = options.prepare.fixed().unwrap_or_default();
        let chain = tenfold::format::transforms(&chain)?.len();
        Ok(native.saturating_mul(24 / dtype.size().min(8)).saturating_add(chain).saturating_add(1 << 18))
    }

    fn decode(&self, blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
        if holds_pictures(blob)? {
            return Ok(crate::decode_with(blob, options, self.decoder.as_deref())?);
        }
        tenfold::decode(blob, options)
    }

    fn decode_rows(&self, blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
        if holds_pictures(blob)? {
            return Ok(crate::decode::decode_rows_with(blob, rows, options, self.decoder.as_deref())?);
        }
        tenfold::decode_rows(blob, rows, options)
    }
}

impl From<Error> for tenfold::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(e) => e,
            other => tenfold::Error::Engine { kind: other.kind(), reason: other.to_string() },
        }
    }
}
