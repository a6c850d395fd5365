//! The headers of a blob's layers, all of them looked at before memory is taken for anything else.

use super::params::working;
use crate::blob::{CodecParams, Frame};
use crate::error::{Error, Result};
use crate::options::{DecodeOptions, Limits};
use crate::view::Dtype;

/// Reads the headers of those layers of a blob that the options ask for; of other blobs, nothing.
pub(crate) fn open(frame: &mut Frame, blob: &[u8], options: &DecodeOptions) -> Result<()> {
    let CodecParams::Layers(params) = &frame.head.params else { return Ok(()) };
    let wanted = if options.layers == 0 { params.count } else { options.layers.min(params.count) };
    frame.layers = (0..wanted).map(|i| layer(frame, frame.part(blob, i)?, options)).collect::<Result<_>>()?;
    Ok(())
}

fn layer(outer: &Frame, bytes: &[u8], options: &DecodeOptions) -> Result<Frame> {
    let mut frame = check(bytes, outer.head.dtype, &outer.head.shape, &options.limits)?;
    frame.resolve(&options.bases)?;
    Ok(frame)
}

/// Reads the header of a layer of a tensor of this dtype and shape.
pub(super) fn check(bytes: &[u8], dtype: Dtype, shape: &[usize], limits: &Limits) -> Result<Frame> {
    // A layer that ends early or has something behind it is a fault of the blob around it, which has all its bytes.
    let whole = |e: Error| match e {
        Error::NotABlob | Error::Truncated { .. } => Error::Corrupt("a layer is not a whole blob"),
        e => e,
    };
    let frame = Frame::parse_layer(bytes, limits).map_err(whole)?;
    frame.check_len(bytes).map_err(whole)?;
    if frame.head.dtype != working(dtype) {
        return Err(Error::Corrupt("dtype of a layer"));
    }
    if frame.head.shape != shape {
        return Err(Error::Corrupt("shape of a layer"));
    }
    Ok(frame)
}
