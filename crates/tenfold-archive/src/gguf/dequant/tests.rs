//! Blocks small enough to work out on paper. Whole random blocks are checked against golden data in
//! `tests/gguf.rs`.

use super::*;

const ONE: [u8; 2] = [0x00, 0x3c];
const TWO: [u8; 2] = [0x00, 0x40];
const HALF: [u8; 2] = [0x00, 0x38];

fn expand(kind: GGUFTensorType, raw: &[u8]) -> Vec<f32> {
    let blocks = blocks(kind).unwrap();
    assert_eq!(raw.len(), blocks.bytes);
    let mut out = vec![0; 4 * blocks.values];
    blocks.expand(raw, &mut out);
    out.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn layouts_agree_with_the_parser() {
    for number in 0..64 {
        let Ok(kind) = GGUFTensorType::from_u32(number) else {
            continue;
        };
        if let Some(blocks) = blocks(kind) {
            assert_eq!((blocks.values, Some(blocks.bytes)), (kind.block_size(), kind.block_size_bytes()));
        }
    }
}

#[test]
fn q4_0() {
    let mut block = [TWO.as_slice(), &[0x88; 16]].concat();
    block[2] = 0xf0; // value 0: nibble 0, value 16: nibble 15
    let got = expand(GGUFTensorType::Q4_0, &block);
    assert_eq!((got[0], got[16], got[1], got[17]), (-16.0, 14.0, 0.0, 0.0));
}

#[test]
fn q4_1() {
    let mut block = [TWO.as_slice(), &HALF, &[0; 16]].concat();
    block[4 + 15] = 0xf1; // value 15: nibble 1, value 31: nibble 15
    let got = expand(GGUFTensorType::Q4_1, &block);
    assert_eq!((got[15], got[31], got[0]), (2.5, 30.5, 0.5));
}

#[test]
fn q5_0() {
    // Fifth bits of values 0 and 31.
    let mut block = [TWO.as_slice(), &[1, 0, 0, 0x80], &[0; 16]].concat();
    block[6] = 0x21; // value 0: 1 + 16, value 16: 2
    let got = expand(GGUFTensorType::Q5_0, &block);
    assert_eq!((got[0], got[16], got[31], got[1]), (2.0, -28.0, 0.0, -32.0));
}

#[test]
fn q5_1() {
    let mut block = [ONE.as_slice(), &HALF, &[0, 0, 1, 0], &[0; 16]].concat();
    block[8] = 0x35; // value 0: 5, value 16: 3 + 16
    let got = expand(GGUFTensorType::Q5_1, &block);
    assert_eq!((got[0], got[16], got[1]), (5.5, 19.5, 0.5));
}

#[test]
fn q8_0() {
    let mut block = [HALF.as_slice(), &[0; 32]].concat();
    block[2] = 0x80;
    block[33] = 0x7f;
    let got = expand(GGUFTensorType::Q8_0, &block);
    assert_eq!((got[0], got[31], got[1]), (-64.0, 63.5, 0.0));
}

#[test]
fn q2_k() {
    let mut block = vec![0; 84];
    block[80..82].copy_from_slice(&TWO);
    block[82..84].copy_from_slice(&HALF);
    block[0] = 0x21; // sub-block 0: scale 1, minimum 2
    block[2] = 0x03; // sub-block 2 (values 32..48): scale 3
    block[15] = 0x0f; // the last sub-block: scale 15
    block[16] = 0b0110; // value 0: 2, value 32: 1
    block[79] = 0b1100_0000; // value 255: 3
    let got = expand(GGUFTensorType::Q2_K, &block);
    assert_eq!((got[0], got[1], got[32], got[255]), (3.0, -1.0, 6.0, 90.0));
}

#[test]
fn q3_k() {
    let mut block = vec![0; 110];
    block[108..110].copy_from_slice(&ONE);
    // Scales are six bits, offset by 32. Sub-block 0: 5 | 2 << 4 = 37; sub-block 15: 3 | 3 << 4 = 51.
    block[96] = 0x05;
    block[96 + 7] = 0x30;
    block[96 + 8] = 0b10;
    block[96 + 11] = 0b1100_0000;
    block[32] = 0b11; // value 0: 3
    block[0] = 1; // and its third bit, so nothing is subtracted
    block[95] = 0b0100_0000; // value 255: 1
    let got = expand(GGUFTensorType::Q3_K, &block);
    assert_eq!((got[0], got[1], got[255]), (15.0, -20.0, 19.0 * -3.0));
    // Sub-block 1 has scale 0 - 32 and 0 - 4 in each value.
    assert_eq!(got[16], 128.0);
}

#[test]
fn q4_k() {
    let mut block = vec![0; 144];
    block[0..2].copy_from_slice(&ONE);
    block[2..4].copy_from_slice(&HALF);
    block[4] = 0b1000_0011; // sub-block 0: scale 3; upper bits of the scale of sub-block 4
    block[8] = 0b0100_0100; // sub-block 0: minimum 4; upper bits of the minimum of sub-block 4
    block[12] = 0x21; // sub-block 4: scale 1 | 2 << 4 = 33, minimum 2 | 1 << 4 = 18
    block[16] = 0x0f; // value 0: 15
    block[16 + 64] = 0x02; // value 128: 2
    let got = expand(GGUFTensorType::Q4_K, &block);
    assert_eq!((got[0], got[1], got[32]), (43.0, -2.0, 0.0));
    assert_eq!((got[128], got[129]), (57.0, -9.0));
}

#[test]
fn q5_k() {
    let mut block = vec![0; 176];
    block[0..2].copy_from_slice(&ONE);
    block[2..4].copy_from_slice(&HALF);
    block[5] = 3; // sub-block 1: scale 3
    block[9] = 4; // and minimum 4
    block[16] = 0b10; // fifth bit of value 32
    block[48] = 0x50; // value 32: 5
    let got = expand(GGUFTensorType::Q5_K, &block);
    assert_eq!((got[32], got[33], got[0]), (61.0, -2.0, 0.0));
}

#[test]
fn q6_k() {
    let mut block = vec![0; 210];
    block[208..210].copy_from_slice(&HALF);
    block[192] = 0xfe; // sub-block 0: scale -2
    block[207] = 4; // the last sub-block
    block[0] = 0x0f; // value 0: 15
    block[128] = 0b10; // | 2 << 4
    block[127] = 0x10; // value 255: 1
    block[191] = 0b1100_0000; // | 3 << 4
    let got = expand(GGUFTensorType::Q6_K, &block);
    assert_eq!((got[0], got[1], got[255], got[16]), (-15.0, 32.0, 34.0, 0.0));
}

#[test]
fn scales_that_are_no_numbers_pass_through() {
    let got = expand(GGUFTensorType::Q8_0, &[[0x00, 0x7c].as_slice(), &[1; 32]].concat());
    assert!(got.iter().all(|v| *v == f32::INFINITY));
    let got = expand(GGUFTensorType::Q8_0, &[[0x00, 0x7e].as_slice(), &[1; 32]].concat());
    assert!(got.iter().all(|v| v.is_nan()));
}
