//! Tables against the definitions of the formats, scales against the rules of the specification.

use super::*;
use crate::values::{f8_e4m3, f8_e5m2};

const FLOATS: [(MxFormat, f64, f64); 5] = [
    // The format, its largest and its smallest positive number.
    (MxFormat::E4m3, 448.0, 0.001_953_125),
    (MxFormat::E5m2, 57_344.0, 1.525_878_906_25e-5),
    (MxFormat::E2m3, 7.5, 0.125),
    (MxFormat::E3m2, 28.0, 0.0625),
    (MxFormat::E2m1, 6.0, 0.5),
];

#[test]
fn tables_are_the_formats() {
    for (format, most, least) in FLOATS {
        let finite: Vec<f64> = format.table().into_iter().filter(|v| v.is_finite()).collect();
        assert_eq!(finite.iter().fold(0f64, |m, &v| m.max(v)), most, "{format:?}");
        let positive = finite.iter().filter(|v| **v > 0.0);
        assert_eq!(positive.fold(f64::MAX, |m, &v| m.min(v)), least, "{format:?}");
    }
    assert_eq!(MxFormat::E2m1.table()[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    for code in 0..=255u8 {
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        assert!(same(MxFormat::E4m3.table()[usize::from(code)], f8_e4m3(code)), "{code}");
        assert!(same(MxFormat::E5m2.table()[usize::from(code)], f8_e5m2(code)), "{code}");
    }
    let ints = MxFormat::Int8.table();
    assert_eq!((ints[64], ints[127], ints[0x81]), (1.0, 127.0 / 64.0, -127.0 / 64.0));
}

#[test]
fn rounding_is_to_the_nearest_code_and_ties_go_to_even() {
    for format in MxFormat::ALL {
        let table = format.table();
        for i in -3000..=3000 {
            let v = f64::from(i) * 2f64.powi(format.top_exponent() - 11);
            let got = table[usize::from(format.round(v))];
            let best = table.iter().filter(|t| t.is_finite()).map(|t| (t - v).abs()).fold(f64::MAX, f64::min);
            // Integers leave −128 unused.
            assert!(
                (got - v).abs() == best || format == MxFormat::Int8 && v < -127.0 / 64.0,
                "{format:?} {v}"
            );
        }
    }
    // Half-way between 1.0 and 1.5, between 0 and 0.5, between 4 and 6.
    assert_eq!([1.25, 0.25, 5.0].map(|v| MxFormat::E2m1.round(v)), [2, 0, 6]);
    assert_eq!([1.75, 0.75, 2.5].map(|v| MxFormat::E2m1.round(v)), [4, 2, 4]);
}

#[test]
fn numbers_beyond_the_largest_saturate() {
    for (format, most, _) in FLOATS {
        // The largest magnitude of a block is below twice the top power of two, so it can exceed the
        // largest element.
        let v = 1.999 * 2f64.powi(format.top_exponent());
        let q = format.quantise(&[v, -v, 0.0]);
        assert_eq!(i32::from(q.side[0]), SCALE_BIAS);
        assert_eq!(format.restore(&q.codes, &q.side), [most, -most, 0.0]);
    }
    let q = MxFormat::Int8.quantise(&[1.999, -1.999]);
    assert_eq!(MxFormat::Int8.restore(&q.codes, &q.side), [127.0 / 64.0, -127.0 / 64.0]);
}

#[test]
fn scales_follow_the_largest_magnitude() {
    for format in MxFormat::ALL {
        for (most, exponent) in [(1.0, 0), (1.99, 0), (2.0, 1), (0.3, -2), (1e-20, -67), (1e30, 99)] {
            let wanted = exponent - format.top_exponent() + SCALE_BIAS;
            assert_eq!(i32::from(format.quantise(&[0.0, -most, most / 3.0]).side[0]), wanted, "{format:?}");
        }
    }
}

#[test]
fn zeros_and_subnormal_blocks() {
    for format in MxFormat::ALL {
        let q = format.quantise(&[0.0; 40]);
        assert_eq!(
            (q.side.as_slice(), format.restore(&q.codes, &q.side)),
            ([0, 0].as_slice(), vec![0.0; 40])
        );
        // The least f32: the scale stops at 2^−127, and what an element cannot reach becomes zero.
        let tiny = f64::from(f32::from_bits(1));
        let q = format.quantise(&[tiny, 2f64.powi(-126)]);
        let back = format.restore(&q.codes, &q.side);
        assert!(back[0] >= 0.0 && back[0] <= 2.0 * tiny.max(2f64.powi(-134)), "{format:?}: {}", back[0]);
        assert_eq!(back[1], 2f64.powi(-126));
        // The top of f32's range.
        let q = format.quantise(&[f64::from(f32::MAX)]);
        let back = format.restore(&q.codes, &q.side)[0];
        assert!(back.is_finite() && back > 0.7 * f64::from(f32::MAX), "{format:?}: {back}");
    }
}

#[test]
fn subnormal_elements_keep_their_value() {
    // In a block with a large value small ones land on subnormal codes.
    let q = MxFormat::E2m1.quantise(&[4.0, 0.5, -0.5, 0.2]);
    assert_eq!(q.codes, [6, 1, 9, 0]);
    let q = MxFormat::E4m3.quantise(&[256.0, 2f64.powi(-9), 3.0 * 2f64.powi(-9)]);
    assert_eq!(q.codes[1..], [1, 3]);
}

#[test]
fn the_scale_that_is_no_number_gives_none() {
    assert!(MxFormat::E2m1.restore(&[1, 2], &[255]).iter().all(|v| v.is_nan()));
}
