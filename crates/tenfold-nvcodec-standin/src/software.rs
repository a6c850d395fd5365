//! What really codes: this build's software codecs.

use tenfold_video::Standard;
use tenfold_video::codec::{Coded, Decoder, Encoder, Format, Quality, Settings};

/// Names of codecs that need no device.
const SOFTWARE: [&str; 9] =
    ["libav", "dav1d", "aom", "rav1d", "x264", "x265", "rav1e", "svt-av1", "openh264"];

/// The first decoder of a standard that runs here.
pub(crate) fn decoder(standard: Standard) -> Option<&'static dyn Decoder> {
    let all = tenfold_video::decoders().into_iter();
    let mut fit = all.filter(|d| d.standard() == standard && SOFTWARE.contains(&d.name()));
    fit.find(|d| d.probe().is_ok())
}

/// The first encoder of a standard that runs here; of AV1 the one that starts fastest.
pub(crate) fn encoder(standard: Standard) -> Option<&'static dyn Encoder> {
    let all = tenfold_video::encoders().into_iter();
    let mut fit: Vec<_> = all.filter(|e| e.standard() == standard && SOFTWARE.contains(&e.name())).collect();
    fit.sort_by_key(|e| e.name() != "rav1e");
    fit.into_iter().find(|e| e.abilities().is_ok())
}

/// Samples of a picture.
pub(crate) fn decode(
    standard: Standard,
    format: &Format,
    sets: &[u8],
    picture: &[u8],
) -> Result<Vec<u16>, String> {
    let decoder = decoder(standard).ok_or_else(|| format!("no software decoder of {standard}"))?;
    let mut out = vec![0; format.samples()];
    decoder.decode(format, sets, &[picture], &mut out).map_err(|e| e.to_string())?;
    Ok(out)
}

/// A picture of samples. Quantisers are NVIDIA's; libaom's go to 63 where the standard's go to 255.
pub(crate) fn encode(standard: Standard, settings: &Settings, samples: &[u16]) -> Result<Coded, String> {
    let encoder = encoder(standard).ok_or_else(|| format!("no software encoder of {standard}"))?;
    let mut settings = *settings;
    if let (Standard::Av1, Quality::Qp(qp)) = (standard, settings.quality) {
        let coarsest = *encoder.abilities().map_err(|e| e.to_string())?.qp.end();
        settings.quality = Quality::Qp(qp * coarsest / 255);
    }
    encoder.encode(&settings, &[samples]).map_err(|e| e.to_string())
}
