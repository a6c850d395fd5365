//! Preparation steps.

use super::*;
use crate::writer::varint;

/// A step as a header holds it.
fn step(id: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![id];
    varint(&mut out, content.len() as u64);
    out.extend(content);
    out
}

/// A run of kept elements of four bytes.
fn run(start: u64, len: u32, element: u32) -> Vec<u8> {
    [&start.to_le_bytes()[..], &len.to_le_bytes(), &element.to_le_bytes()].concat()
}

/// Rotary positions, half with half: columns of a head and those turned, the base, and what follows it.
fn rope(head: u8, turned: u8, base: f64, rest: &[u8]) -> Vec<u8> {
    step(8, &[&[0, head, turned][..], &base.to_le_bytes(), rest].concat())
}

/// The sound blob behind these steps.
fn with(steps: &[Vec<u8>]) -> Vec<u8> {
    header(sound, |h| h.steps = [&[steps.len() as u8][..], &steps.concat()].concat())
}

pub fn steps() -> Vec<Fault> {
    let shape = sound().shape.clone();
    let cols = *shape.last().expect("the sound tensor has dimensions");
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let n = (rows * cols) as u64;
    let weights = move |axis: u8, count: usize| step(2, &[&[axis][..], &vec![5; count]].concat());
    let kept = |runs: &[Vec<u8>]| step(4, &runs.concat());
    let (w, k, b) = ("weights step", "kept elements", "basis step");
    vec![
        data("weights_axis", w, "a third axis", move || with(&[weights(2, cols)])),
        data("weights_none", w, "no axis", || with(&[step(2, &[])])),
        data("weights_columns", w, "one weight too few", move || with(&[weights(0, cols - 1)])),
        data("weights_rows", w, "one weight too many", move || with(&[weights(1, rows + 1)])),
        fault("weights_lossless", "unsupported", "preparation step 2", "weights before planes", move || {
            prefix(planes_blob(), |p| {
                // Behind the fixed part and one dimension of two bytes.
                assert_eq!((p[7], p[14]), (1, 0));
                p.splice(14..15, [1, 2, 0]);
                p.resize(p.len().next_multiple_of(4), 0);
            })
        }),
        data("means_width", "means step", "means of three bytes", move || {
            with(&[step(5, &[&[3][..], &vec![0; 3 * cols]].concat())])
        }),
        data("means_count", "means step", "a mean is missing", move || {
            with(&[step(5, &[&[2][..], &vec![0; 2 * cols - 2]].concat())])
        }),
        data("means_infinite", "means step", "an infinite mean", move || {
            with(&[step(5, &[&[2, 0x80, 0x7f][..], &vec![0; 2 * cols - 2]].concat())])
        }),
        data("hadamard_block", "Hadamard", "blocks of 2^15", move || with(&[step(1, &[15, 0, 0, 0, 0])])),
        data("dct_block", "DCT", "blocks of 64", move || with(&[step(6, &[6])])),
        data("delta_one", "delta", "groups of one row", move || with(&[step(9, &[1])])),
        data("delta_twice", "delta", "twice", move || with(&[step(9, &[2]), step(9, &[2])])),
        data("transposed_second", "transposed", "after another step", move || {
            with(&[weights(0, cols), step(10, &[])])
        }),
        data("transposed_twice", "transposed", "twice", move || with(&[step(10, &[]), step(10, &[])])),
        data("transposed_content", "transposed", "a byte of content", move || with(&[step(10, &[0])])),
        data(
            "transposed_weights",
            w,
            "as many as columns of the tensor, but these are rows now",
            move || with(&[step(10, &[]), weights(0, cols)]),
        ),
        data("transposed_basis", "transposition", "before a basis", move || {
            with(&[step(10, &[]), step(7, &[&[0, 1][..], &[0; 16]].concat())])
        }),
        data("basis_kind", b, "a third kind", move || with(&[step(7, &[&[2, 1][..], &[0; 16]].concat())])),
        data("basis_rank", b, "more vectors than columns", move || {
            with(&[step(7, &[&[0, cols as u8 + 1][..], &[0; 16]].concat())])
        }),
        data("basis_none", b, "no vectors", move || with(&[step(7, &[&[0, 0][..], &[0; 16]].concat())])),
        data("basis_short", b, "a byte of the vectors is missing", move || {
            with(&[step(7, &[&[1, 2][..], &vec![0; cols * 4 + 1 + cols * 4 - 1]].concat())])
        }),
        data("basis_scale", b, "a scale above 63", move || {
            with(&[step(7, &[&[1, 1][..], &vec![0; cols * 4], &[1, 64], &vec![0; cols * 2]].concat())])
        }),
        data("basis_nan", b, "a mean that is no number", move || {
            let nan = f32::NAN.to_le_bytes();
            with(&[step(7, &[&[1, 1][..], &nan, &vec![0; cols * 4 - 4], &[0], &vec![0; cols * 2]].concat())])
        }),
        fault("basis_missing", "caller", "ababab", "a basis that nobody has", move || {
            with(&[step(7, &[&[0, cols as u8][..], &[0xab; 16]].concat())])
        }),
        data("rope_head", "rotary", "heads that do not divide the columns", move || {
            with(&[rope(7, 6, 1e4, &[0, 0, 0])])
        }),
        data("rope_odd", "rotary", "an odd number of columns is turned", move || {
            with(&[rope(cols as u8, 3, 1e4, &[0, 0, 0])])
        }),
        data("rope_base", "rotary", "a base of one", move || with(&[rope(cols as u8, 2, 1.0, &[0, 0, 0])])),
        data("rope_positions", "rotary", "no positions", move || {
            with(&[rope(cols as u8, 2, 1e4, &[0, 1, 0])])
        }),
        data("kept_none", k, "no run", move || with(&[kept(&[])])),
        data("kept_length", k, "a byte is missing", move || with(&[step(4, &run(0, 1, 1)[1..])])),
        data("kept_empty_run", k, "a run of no values", move || with(&[kept(&[run(1, 0, 1)])])),
        data("kept_outside", k, "a run that leaves the tensor", move || with(&[kept(&[run(n - 1, 2, 1)])])),
        data("kept_overflow", k, "a run that ends beyond 2^64", move || {
            with(&[kept(&[run(u64::MAX, u32::MAX, 1)])])
        }),
        data("kept_order", k, "runs out of order", move || with(&[kept(&[run(5, 1, 1), run(2, 1, 1)])])),
        data("kept_overlap", k, "runs that overlap", move || with(&[kept(&[run(2, 3, 1), run(4, 1, 1)])])),
        data("kept_second", k, "after another step", move || {
            with(&[weights(0, cols), kept(&[run(0, 1, 1)])])
        }),
        data("weights_exact_nan", "not finite", "an exact working value that is no number", move || {
            // The sound blob has exact values that are not finite.
            with(&[weights(0, cols)])
        }),
        data("kept_twice", k, "twice", move || with(&[kept(&[run(0, 1, 1)]), kept(&[run(3, 1, 1)])])),
    ]
}
