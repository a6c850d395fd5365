//! What the codec promises of a blob it has made.

use tenfold::engine::{Cpu, Engine};
use tenfold::{DecodeOptions, Goal, TensorView};

use super::case::Case;
use super::number::numbers;

/// Checks a blob of a case: header, size, values, and each way to decode it.
pub fn check(case: &Case, blob: &[u8]) {
    let Case { tensor, options, .. } = case;
    let most = match options.residual.len() {
        0 => tenfold::format::max_encoded_len(tensor.dtype, &tensor.shape),
        n => tenfold::format::max_layered_len(tensor.dtype, &tensor.shape, n + 1),
    };
    let most = most.expect("the tensor exists");
    assert!(blob.len() <= most, "{} bytes, worst case {most}", blob.len());

    let info = tenfold::inspect(blob).expect("a fresh blob has a header");
    assert_eq!((info.dtype, &info.shape), (tensor.dtype, &tensor.shape));
    assert_eq!(info.blob_bytes, blob.len() as u64);

    let decoded =
        tenfold::decode(blob, &DecodeOptions::default().with_threads(1)).expect("a fresh blob decodes");
    assert_eq!((decoded.dtype, &decoded.shape), (tensor.dtype, &tensor.shape));
    assert_eq!(decoded.data.len(), tensor.data.len());

    if options.residual.is_empty() {
        check_size(case, blob.len());
    }
    if options.goal == Goal::Lossless || !tensor.dtype.is_float() {
        assert!(decoded.data == tensor.data, "not lossless");
        return;
    }
    check_values(case, &decoded.data);
}

fn check_values(case: &Case, decoded: &[u8]) {
    let dtype = case.tensor.dtype;
    let (before, after) = (numbers(dtype, &case.tensor.data), numbers(dtype, decoded));
    let elements = case.tensor.data.chunks_exact(dtype.size()).zip(decoded.chunks_exact(dtype.size()));
    for (i, ((&x, &y), (bits, got))) in before.iter().zip(&after).zip(elements).enumerate() {
        if x.is_finite() {
            assert!(y.is_finite(), "value {i}: {x} became {y}");
        } else {
            assert!(bits == got, "value {i}: {x} became {y}, or its bits changed");
        }
    }
    // Steps change what errors are counted in, and goals of layers are their own.
    if case.options.prepare.is_asked() || !case.options.residual.is_empty() {
        return;
    }
    let finite = || before.iter().zip(&after).filter(|(x, _)| x.is_finite());
    let count = finite().count().max(1) as f64;
    let mse = finite().map(|(x, y)| (x - y) * (x - y)).sum::<f64>() / count;
    // Sums are rounded here and in the encoder, in another order.
    let slack = 1.0 + 1e-6;
    match case.options.goal {
        Goal::MaxError(most) => {
            for (i, (x, y)) in finite().enumerate() {
                // The difference of two doubles may itself be rounded up.
                assert!((x - y).abs() <= most * (1.0 + 1e-15), "value {i}: {x} became {y}, bound {most}");
            }
        }
        Goal::Mse(most) => assert!(!mse.is_finite() || mse <= most * slack, "mse {mse}, goal {most}"),
        Goal::Nmse(most) => {
            let mean = finite().map(|(x, _)| x).sum::<f64>() / count;
            let variance = finite().map(|(x, _)| (x - mean) * (x - mean)).sum::<f64>() / count;
            let usable = variance.is_normal() && mse.is_finite() && mean.abs() < 1e6 * variance.sqrt();
            assert!(!usable || mse <= most * variance * slack, "nmse {}, goal {most}", mse / variance);
        }
        _ => {}
    }
}

fn check_size(case: &Case, bytes: usize) {
    let values = case.tensor.data.len() / case.tensor.dtype.size();
    let bits = match case.options.goal {
        Goal::MaxBytes(cap) => {
            assert!(bytes <= cap, "{bytes} bytes, cap {cap}");
            return;
        }
        Goal::Bits(bits) => bits,
        Goal::Ratio(ratio) => case.tensor.dtype.size() as f64 * 8.0 / ratio,
        _ => return,
    };
    // Promised for 4,096 values and up. Short lanes are the caller's choice and may cost more than a low
    // rate leaves.
    if case.noise
        && !case.options.prepare.is_asked()
        && values >= 4096
        && bits >= 1.0
        && case.options.lane_values == 0
    {
        let got = bytes as f64 * 8.0 / values as f64;
        assert!(got <= bits * 1.02, "{got} bits a value for {:?}, {values} values", case.options.goal);
    }
}

/// The same bytes from every way to encode, the same values from every way to decode.
pub fn check_ways(case: &Case, blob: &[u8], rows: std::ops::Range<usize>) {
    let view = case.tensor.view().expect("the case is sound");
    let mut room = vec![0; blob.len()];
    let written = Cpu.encode_into(&view, &case.options, &mut room).expect("the room is exact");
    assert!(written == blob.len() && room == blob, "encode_into differs");
    let threaded =
        tenfold::encode(&view, &case.options.clone().with_threads(2)).expect("it was encoded before");
    assert!(threaded == blob, "two threads differ");
    check_decoders(blob, rows, &view);
}

fn check_decoders(blob: &[u8], rows: std::ops::Range<usize>, view: &TensorView<'_>) {
    let options = DecodeOptions::default().with_threads(1);
    let whole = tenfold::decode(blob, &options).expect("it was decoded before");
    let threaded = tenfold::decode(blob, &options.clone().with_threads(2)).expect("it was decoded before");
    assert!(threaded == whole, "two threads differ");
    let width = view.cols() * view.dtype().size();
    let part = tenfold::decode_rows(blob, rows.clone(), &options).expect("the rows exist");
    assert_eq!(part.shape, [rows.len(), view.cols()]);
    assert!(part.data == whole.data[rows.start * width..rows.end * width], "rows {rows:?} differ");
}
