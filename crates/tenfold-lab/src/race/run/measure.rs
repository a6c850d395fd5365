//! One peer on one tensor: real encode, real decode, error and speed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenfold::{Tensor, TensorView};

use super::{Heat, Measured, Speed};
use crate::bench::clock::time;
use crate::metrics::{Fidelity, gap_bits, median};
use crate::peers::{self, Peer, PeerError};
use crate::values::to_f64;

/// A direction is timed again only while all its runs together took less: slow coders are timed once.
const PATIENCE: f64 = 3.0;

/// How speeds are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Runs of which the median counts.
    pub runs: usize,
    /// What 'all threads' is.
    pub threads: usize,
}

/// Codes and decodes; `picture` asks for the heat-map of the error. The reason if it cannot be done: a
/// peer that panics must not end everybody's race.
pub(crate) fn measure(
    peer: &dyn Peer,
    tensor: &Tensor,
    timing: Option<Timing>,
    picture: bool,
) -> Result<(Measured, Option<Heat>), String> {
    let attempt = || attempt(peer, tensor, timing, picture).map_err(|e| e.to_string());
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(format!("panicked: {text}"))
    })
}

fn attempt(
    peer: &dyn Peer,
    tensor: &Tensor,
    timing: Option<Timing>,
    picture: bool,
) -> Result<(Measured, Option<Heat>), PeerError> {
    let view = tensor.view()?;
    let timing = timing.filter(|_| peer.abilities().timed);
    // The error is that of the form on one thread; the other form is only timed.
    let single = peer.on_threads(1);
    let single = single.as_deref().unwrap_or(peer);
    let runs = timing.map_or(1, |t| t.runs + 1);
    let (encode, bytes) = encode_timed(single, &view, runs)?;
    let (decode, decoded) = repeat(runs, || single.decode(&bytes))?;
    let values = view.len() as f64;
    let mut speeds = Vec::new();
    if let Some(timing) = timing {
        speeds.push(Speed { threads: 1, encode: values / encode, decode: values / decode });
        let several = peer.on_threads(timing.threads).filter(|_| timing.threads > 1);
        if let Some(several) = several {
            let (encode, bytes) = encode_timed(&*several, &view, runs)?;
            let (decode, _) = repeat(runs, || several.decode(&bytes))?;
            speeds.push(Speed { threads: timing.threads, encode: values / encode, decode: values / decode });
        }
    }
    let fidelity = judge(peer, &view, tensor, &decoded)?;
    let measured = figures(&fidelity, bytes.len(), values, speeds);
    let heat = picture.then(|| error_picture(&view, &decoded, fidelity.variance().sqrt())).flatten();
    Ok((measured, heat))
}

/// Median seconds of encoding, and the bytes. Where the search for a rate is not the coder's own work, it is
/// done once and the coder is timed without it.
fn encode_timed(peer: &dyn Peer, view: &TensorView<'_>, runs: usize) -> Result<(f64, Vec<u8>), PeerError> {
    let (seconds, bytes) = time(|| peer.encode(view));
    let bytes = bytes?;
    match peer.without_search(view)?.filter(|_| runs > 1) {
        Some(alone) => Ok((repeat(runs, || alone.encode(view))?.0, bytes)),
        None if runs > 1 && seconds < PATIENCE => repeat(runs - 1, || peer.encode(view)),
        None => Ok((seconds.max(1e-9), bytes)),
    }
}

/// Median seconds of up to `runs` calls and what the last one returned. The first call warms caches and
/// pools up and does not count, unless it is the only one.
fn repeat<T>(runs: usize, mut call: impl FnMut() -> Result<T, PeerError>) -> Result<(f64, T), PeerError> {
    let mut seconds = Vec::new();
    loop {
        let (time, result) = time(&mut call);
        let result = result?;
        // Coders of a few microseconds still give a finite speed.
        seconds.push(time.max(1e-9));
        if seconds.len() >= runs || seconds.iter().sum::<f64>() > PATIENCE {
            let counted = if seconds.len() > 1 { &seconds[1..] } else { &seconds[..] };
            return Ok((median(counted), result));
        }
    }
}

/// What came back against the original. A lossless peer must return every bit.
fn judge(
    peer: &dyn Peer,
    view: &TensorView<'_>,
    tensor: &Tensor,
    decoded: &Tensor,
) -> Result<Fidelity, PeerError> {
    if peer.abilities().fidelity == peers::Fidelity::Lossless && decoded != tensor {
        return Err(PeerError::Failed("it says it is lossless, and other values came back".to_string()));
    }
    let fidelity = Fidelity::between(view, &decoded.view()?).ok_or_else(|| {
        let (dtype, shape) = (decoded.dtype, &decoded.shape);
        PeerError::Failed(format!("{dtype} values of the shape {shape:?} came back"))
    })?;
    if !fidelity.squared_error.is_finite() {
        return Err(PeerError::Failed("NaN or infinite values came back where there were none".to_string()));
    }
    Ok(fidelity)
}

fn figures(fidelity: &Fidelity, bytes: usize, values: f64, speeds: Vec<Speed>) -> Measured {
    let bits = bytes as f64 * 8.0 / values.max(1.0);
    let nmse = Some(fidelity.nmse()).filter(|n| n.is_finite());
    let std = fidelity.variance().sqrt();
    Measured {
        bytes,
        bits,
        nmse,
        mse: fidelity.mse(),
        max_error: fidelity.max_error,
        max_error_over_std: Some(fidelity.max_error / std).filter(|e| e.is_finite()),
        gap: nmse.filter(|&n| n > 0.0).map(|n| gap_bits(bits, n)),
        lost_specials: fidelity.lost_specials,
        speeds,
    }
}

/// Heat-map of the error; none for a constant tensor, whose errors have no scale.
fn error_picture(view: &TensorView<'_>, decoded: &Tensor, std: f64) -> Option<Heat> {
    let (original, decoded) = (to_f64(view)?, to_f64(&decoded.view().ok()?)?);
    let errors: Vec<f64> = original.iter().zip(&decoded).map(|(a, b)| a - b).collect();
    (std > 0.0).then(|| Heat::from_errors(&errors, view.cols(), std))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Abilities, Coder, Combined, Quantiser, Rate, Rtn, Zstd};
    use crate::synth;
    use tenfold::Dtype;

    /// Wraps zstd and misbehaves in one way.
    struct Bad(&'static str);

    impl Peer for Bad {
        fn name(&self) -> String {
            self.0.to_string()
        }
        fn abilities(&self) -> Abilities {
            let fidelity = if self.0 == "liar" { peers::Fidelity::Lossless } else { peers::Fidelity::Lossy };
            Abilities { fidelity, rate: Rate::Free, timed: true }
        }
        fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
            assert!(self.0 != "panics", "at the disco");
            Zstd { level: 1 }.encode(view)
        }
        fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
            let mut tensor = Zstd { level: 1 }.decode(bytes)?;
            match self.0 {
                "liar" => tensor.data[0] ^= 1,
                "nan" => tensor.data[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
                _ => tensor = Tensor { shape: vec![2], data: vec![0; 8], ..tensor },
            }
            Ok(tensor)
        }
    }

    #[test]
    fn figures_are_those_of_the_metrics() {
        let tensor = synth::gaussian(Dtype::F32, &[64, 128], 0.5, 3).unwrap();
        let rtn = Rtn { bits: 4, group: 128, symmetric: false };
        let peer = Combined { quantiser: Quantiser::Rtn(rtn), coder: Coder::Packed };
        let timing = Some(Timing { runs: 2, threads: 2 });
        let (m, heat) = measure(&peer, &tensor, timing, true).unwrap();
        let view = tensor.view().unwrap();
        let bytes = peer.encode(&view).unwrap();
        let back = peer.decode(&bytes).unwrap();
        let f = Fidelity::between(&view, &back.view().unwrap()).unwrap();
        assert_eq!(m.bytes, bytes.len());
        assert_eq!((m.nmse, m.mse, m.max_error), (Some(f.nmse()), f.mse(), f.max_error));
        assert_eq!(m.gap, Some(f.gap(m.bits)));
        assert!((m.max_error_over_std.unwrap() - f.max_error / f.variance().sqrt()).abs() < 1e-12);
        // Round to nearest has no threads: one speed.
        assert_eq!(m.speeds.len(), 1);
        assert!(m.speeds[0].encode > 0.0 && m.speeds[0].decode.is_finite());
        assert_eq!((heat.as_ref().unwrap().rows, heat.unwrap().cols), (64, 96));
    }

    #[test]
    fn what_goes_wrong_is_a_reason() {
        let tensor = synth::gaussian(Dtype::F32, &[64, 64], 0.5, 3).unwrap();
        for (how, reason) in
            [("panics", "disco"), ("liar", "lossless"), ("nan", "NaN"), ("short", "the shape [2]")]
        {
            let error = measure(&Bad(how), &tensor, None, false).unwrap_err();
            assert!(error.contains(reason), "{how}: {error}");
        }
    }
}
