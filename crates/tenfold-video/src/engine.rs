//! Pictures as one engine among others.

use std::ops::Range;

use tenfold::engine::{Capabilities, Engine, Result};
use tenfold::format::Codec;
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Tensor, TensorView};

use crate::error::Error;
use crate::options::VideoOptions;

/// Writes blobs of pictures; reads those and every blob that [`tenfold::engine::Cpu`] reads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Video {
    options: Option<VideoOptions>,
    decoder: Option<String>,
}

impl Video {
    /// An engine that encodes as the options say.
    pub fn new(options: VideoOptions) -> Self {
        Video { options: Some(options), decoder: None }
    }

    /// An engine that only reads.
    pub fn reader() -> Self {
        Video::default()
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
            Some(video) => Ok(crate::encode(view, options, video)?),
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
            // A rotation is an option of pictures.
            can.does.clear();
            can.feeds = false;
        }
        can
    }

    fn max_encoded_len(&self, dtype: Dtype, shape: &[usize], _: &EncodeOptions) -> Result<usize> {
        // Samples of at most 12 bits that no codec makes much larger, centres and steps of columns, and in the
        // worst case every value special; the rest is headers and the smallest picture.
        let native = tenfold::format::max_encoded_len(dtype, shape)?;
        Ok(native.saturating_mul(24 / dtype.size().min(8)).saturating_add(1 << 18))
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
