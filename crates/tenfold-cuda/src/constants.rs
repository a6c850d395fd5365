//! The C headers that are made from Rust: the numbers of the format, and what `abi` describes. `make ptx` writes them; a
//! test checks that they are current.

use std::fmt::Write;

use tenfold::format::VERSION;
use tenfold::prepare::{Axis, EIGHTHS};
use tenfold::{Dtype, format};

use crate::{abi, status};

/// Lowest coefficients of the CRC's polynomial first, in one bit string from the top.
const CRC_POLYNOMIAL: u32 = 0xedb8_8320;

/// Words of a header that a warp sums up at a time.
const CRC_PART: usize = 288;

/// Product of two polynomials modulo the CRC's, both with their lowest coefficient in the top bit.
fn multiply(a: u32, b: u32) -> u32 {
    let (mut a, mut product) = (a, 0);
    for bit in (0..32).rev() {
        product ^= if b >> bit & 1 == 1 { a } else { 0 };
        a = (a >> 1) ^ if a & 1 == 1 { CRC_POLYNOMIAL } else { 0 };
    }
    product
}

/// x to the power of 32·n.
fn x_to_words(n: usize) -> u32 {
    // Squares of x^32, taken where n has a bit.
    let word = (0..32).fold(1u32 << 31, |p, _| multiply(p, 1 << 30));
    let (mut power, mut square, mut left) = (1u32 << 31, word, n);
    while left > 0 {
        if left & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        left >>= 1;
    }
    power
}

/// The generated headers by their names.
pub fn headers() -> [(&'static str, String); 2] {
    [("format.h", format()), ("abi.h", abi::header())]
}

/// The numbers of the format.
fn format() -> String {
    let mut out = String::from(
        "// Made by `make ptx` from the Rust definition of the format; do not edit.\n#pragma once\n\n",
    );
    let mut put = |name: &str, v: i64| {
        let _ = writeln!(out, "#define {name} {v}");
    };
    put("MAGIC", u32::from_le_bytes(format::MAGIC) as i64);
    put("FORMAT_VERSION", VERSION as i64);
    put("FIXED", format::FIXED as i64);
    put("CODEC_PLANES", format::CODEC_PLANES as i64);
    put("CODEC_LEVELS", format::CODEC_LEVELS as i64);
    put("CODEC_PAIRS", format::CODEC_PAIRS as i64);
    put("PAIR_LOG", format::PAIR_LOG as i64);
    put("PAIR_ESCAPE", format::PAIR_ESCAPE as i64);
    put("PAIR_ESCAPE_BITS", format::PAIR_ESCAPE_BITS as i64);
    put("PAIR_FIRST_ODD", format::PAIR_FIRST_ODD as i64);
    put("PAIR_SECOND_ODD", format::PAIR_SECOND_ODD as i64);
    put("TRANSFORM_WEIGHTS", format::TRANSFORM_WEIGHTS as i64);
    put("TRANSFORM_MEANS", format::TRANSFORM_MEANS as i64);
    put("TRANSFORM_KEPT", format::TRANSFORM_KEPT as i64);
    put("MAX_POSITION", format::MAX_POSITION as i64);
    put("TRANSFORM_BASIS", format::TRANSFORM_BASIS as i64);
    put("TRANSFORM_ROPE", format::TRANSFORM_ROPE as i64);
    put("TRANSFORM_TRANSPOSED", format::TRANSFORM_TRANSPOSED as i64);
    put("SCALES_OF_BASIS", format::SCALES_OF_BASIS as i64);
    put("AXIS_COLUMNS", Axis::Columns as i64);
    put("AXIS_ROWS", Axis::Rows as i64);
    put("MAX_TILE", format::MAX_TILE as i64);
    put("MAX_LANES", format::MAX_LANES as i64);
    put("LANES_LOG", format::MAX_LANES.ilog2() as i64);
    put("MAX_CLASSES", format::MAX_CLASSES as i64);
    put("MAX_LEVEL", format::MAX_LEVEL as i64);
    put("MAX_LOW_BITS", format::MAX_LOW_BITS as i64);
    put("MAX_SCALE_BITS", format::MAX_SCALE_BITS as i64);
    put("ESCAPE", format::ESCAPE as i64);
    put("START", format::START as i64);
    put("LOG_LEAST", *format::LOG_RANGE.start() as i64);
    put("LOG_MOST", *format::LOG_RANGE.end() as i64);
    put("PLANE_LOG", format::PLANE_LOG as i64);
    put("TILE_CODED", format::CODED as i64);
    put("TILE_ESCAPES_SHIFT", format::ESCAPES_SHIFT as i64);
    put("TILE_EXACT", format::EXACT as i64);
    put("PLANE_CONSTANT", format::PLANE_CONSTANT as i64);
    put("PLANE_STORED", format::PLANE_STORED as i64);
    put("PLANE_CODED", format::PLANE_CODED as i64);
    put("OFFSETS", format::OFFSETS as i64);
    put("UNITS", format::UNITS as i64);
    for dtype in Dtype::ALL {
        put(&format!("DTYPE_{}", dtype.name().to_uppercase()), dtype.id() as i64);
    }
    for (code, name, _) in status::CODES {
        put(&format!("STATUS_{name}"), *code as i64);
    }
    out.push_str("\n// Feedback of the trellis by log2 of its states: on the quantiser, on the parity; 0 where there is none.\n");
    for (name, part) in [("TRELLIS_QUANTISER", 0), ("TRELLIS_PARITY", 1)] {
        let of = |nu: u8| {
            let code = format::TRELLIS_CODES.iter().find(|c| c.0 == nu);
            code.map_or(0, |c| [c.1, c.2][part] >> 1).to_string()
        };
        let list: Vec<String> = (0..=8).map(of).collect();
        let _ = writeln!(out, "#define {name} {{{}}}", list.join(", "));
    }
    out.push_str("\n// Bits of 2^(k/8) as an f32, for k = 0 … 7.\n");
    let eighths: Vec<String> = EIGHTHS.iter().map(|e| format!("{:#x}u", e.to_bits())).collect();
    let _ = writeln!(out, "#define EIGHTHS {{{}}}", eighths.join(", "));
    out.push_str("\n// CRC-32: the polynomial; x to the power of 32·n for n = 0 … 32; to that of 32·CRC_PART·n for n = 0 … 15, and\n");
    out.push_str("// of sixteen times that; products of x to the power of 32·32 with each half of a byte.\n");
    let _ = writeln!(out, "#define CRC_POLYNOMIAL {CRC_POLYNOMIAL:#x}u");
    let _ = writeln!(out, "#define CRC_PART {CRC_PART}");
    let mut list = |name: &str, numbers: Vec<u32>| {
        let numbers: Vec<String> = numbers.iter().map(|n| format!("{n:#x}u")).collect();
        let _ = writeln!(out, "#define {name} {{{}}}", numbers.join(", "));
    };
    list("CRC_POWERS", (0..=32).map(x_to_words).collect());
    list("CRC_PARTS", (0..16).map(|n| x_to_words(n * CRC_PART)).collect());
    list("CRC_SIXTEENS", (0..16).map(|n| x_to_words(n * 16 * CRC_PART)).collect());
    let row = x_to_words(32);
    list("CRC_NIBBLES", (0..128).map(|i| multiply((i & 15) << (4 * (i >> 4)), row)).collect());
    // And x to the power of 32·2^n for n = 0 … 31.
    list("CRC_DOUBLINGS", (0..32).map(|n| x_to_words(1 << n)).collect());
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_kernels_have_what_the_host_has() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        for (name, text) in headers() {
            assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), text, "{name}: run `make ptx`");
        }
    }

    #[test]
    fn powers_advance_a_checksum_by_words() {
        // Zeros after a message multiply its remainder by a power of x.
        let mut crc = 0x1234_5678u32;
        let whole = multiply(crc, x_to_words(3));
        for _ in 0..96 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { CRC_POLYNOMIAL } else { 0 };
        }
        assert_eq!(whole, crc);
    }
}
