//! In the place of the calls of `rav1d` where FFmpeg is part of the build.
//!
//! `rav1d` defines dav1d's C functions under dav1d's names. In an executable that also links a libavcodec
//! that uses dav1d, the loader would lead libavcodec to those, of another version and another layout of
//! structures. As long as nothing names the crate it is not linked; FFmpeg has an AV1 decoder of its own.

use super::decode::NAME;
use crate::codec::Format;
use crate::error::{Error, Result};

pub(super) fn probe() -> Result<()> {
    let reason = "it cannot be in one executable with FFmpeg; use FFmpeg's decoder, or build without the feature `video`";
    Err(Error::NotAvailable { name: NAME.into(), reason: reason.into() })
}

pub(super) fn decode(_: &Format, _: &[u8], _: &[&[u8]], _: &mut [u16]) -> Result<()> {
    probe()
}

#[cfg(test)]
mod tests {
    use crate::Error;
    use crate::codec::Decoder;
    use crate::codec::av1::Rav1d;

    #[test]
    fn the_decoder_says_why_it_is_left_out() {
        assert!(matches!(Rav1d.probe(), Err(Error::NotAvailable { .. })));
    }
}
