//! Pictures of a video engine to elements: the values and checksums that the CPU makes of their samples, to the bit.

use half::bf16;
use tenfold::{Dtype, Tensor};
use tenfold_cuda::{
    Buffer, DeviceSlice, Luma, PictureValues, Samples, Sharing, Specials, Stream, store_picture,
};

use crate::Case;
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("pictures: elements and checksums".into(), elements),
        ("pictures: elements that no sample holds".into(), specials),
        ("pictures: what is refused".into(), refused),
    ]
}

/// Numbers without a pattern.
fn numbers(count: usize, seed: u64) -> Vec<u64> {
    let mut x = seed;
    let next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x >> 33
    };
    std::iter::repeat_with(next).take(count).collect()
}

const COLUMNS: u64 = 37;

fn parts(sharing: Sharing, values: u64) -> Vec<(bf16, bf16)> {
    let count = match sharing {
        Sharing::Tensor | Sharing::Bytes => 0,
        Sharing::Rows(group) => values.div_ceil(COLUMNS).div_ceil(group),
        Sharing::Columns => COLUMNS,
    };
    let part = |n: u64| (bf16::from_f64(n as f64 / 1e9 - 1.0), bf16::from_f64(1e-3 + n as f64 / 1e10));
    numbers(count as usize, 5).into_iter().map(part).collect()
}

fn elements(subject: &Subject) {
    let device = subject.device();
    // A small picture, and one with several parts of a checksum.
    for (width, height, pitch) in [(16usize, 3usize, 48usize), (150, 90, 512)] {
        for depth in [8u32, 10, 12] {
            let size = if depth > 8 { 2 } else { 1 };
            let samples: Vec<u16> =
                numbers(width * height, 9).iter().map(|n| (n & ((1 << depth) - 1)) as u16).collect();
            // What is between lines belongs to no picture.
            let mut bytes = vec![0x5au8; pitch * height];
            for (line, row) in samples.chunks(width).enumerate() {
                for (i, &s) in row.iter().enumerate() {
                    let at = line * pitch + i * size;
                    if size == 1 {
                        bytes[at] = s as u8;
                    } else {
                        bytes[at..at + 2].copy_from_slice(&(s << (16 - depth)).to_le_bytes());
                    }
                }
            }
            let picture = Buffer::from_slice(device, &bytes).unwrap();
            let message: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
            let luma = Luma {
                address: picture.slice().address,
                pitch: pitch as u32,
                width: width as u32,
                height: height as u32,
                depth,
            };
            for sharing in [Sharing::Tensor, Sharing::Rows(4), Sharing::Columns, Sharing::Bytes] {
                let dtypes = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E4M3, Dtype::F64];
                let dtypes = if sharing == Sharing::Bytes { &[Dtype::U8][..] } else { &dtypes };
                for &dtype in dtypes {
                    // The second picture of a tensor, and some values at its end are not wanted.
                    let (first, skip) = (width * height, 5);
                    let count = width * height - 7;
                    let table = parts(sharing, (first + count) as u64);
                    let raw: Vec<u8> =
                        table.iter().flat_map(|(c, s)| [c.to_le_bytes(), s.to_le_bytes()].concat()).collect();
                    let on_device = Buffer::from_slice(device, &raw).unwrap();
                    let meaning = Samples {
                        sharing,
                        base: 0.37,
                        unit: 1.7e-3,
                        parts: on_device.slice(),
                        columns: COLUMNS,
                    };
                    let to = Buffer::from_slice(device, &vec![0xa5; count * dtype.size()]).unwrap();
                    let check = Buffer::from_slice(device, &[0; 4]).unwrap();
                    let values = PictureValues {
                        first: first as u64,
                        skip: skip as u32,
                        count: count as u32,
                        dtype,
                        to: to.slice(),
                    };
                    let stream = Stream::DEFAULT;
                    // SAFETY: all of it lives until the copies have waited for the stream.
                    unsafe {
                        store_picture(device, &luma, &meaning, &values, check.slice(), stream).unwrap()
                    };
                    let mut found = vec![0; count * dtype.size()];
                    to.read(&mut found, stream).unwrap();
                    let mut sum = [0; 4];
                    check.read(&mut sum, stream).unwrap();
                    let what = format!("{width} × {height}, {depth} bits, {sharing:?}, {dtype}");
                    assert_eq!(u32::from_le_bytes(sum), crc32fast::hash(&message), "{what}");
                    let wanted = &samples[skip..skip + count];
                    if sharing == Sharing::Bytes {
                        assert!(found.iter().zip(wanted).all(|(&a, &b)| a == b as u8), "{what}");
                        continue;
                    }
                    let middle = f64::from(1u32 << (depth - 1));
                    let value = |(i, &s): (usize, &u16)| {
                        let at = (first + i) as u64;
                        let part = match sharing {
                            Sharing::Rows(group) => at / COLUMNS / group,
                            _ => at % COLUMNS,
                        };
                        let (centre, step) = table
                            .get(part as usize)
                            .map_or((0.37, 1.7e-3), |(c, s)| (0.37 * c.to_f64(), 1.7e-3 * s.to_f64()));
                        centre + step * (f64::from(s) - middle)
                    };
                    let reals: Vec<f64> = wanted.iter().enumerate().map(value).collect();
                    assert!(found == Tensor::from_f64(dtype, &[count], &reals).unwrap().data, "{what}");
                }
            }
        }
    }
}

fn specials(subject: &Subject) {
    let device = subject.device();
    let kept = [(0, vec![0x80, 0x7f]), (3, vec![0xc0, 0xff]), (6, vec![1, 0x80])];
    let specials = Specials::new(device, Dtype::Bf16, &kept).unwrap();
    let to = Buffer::from_slice(device, &[0x11; 14]).unwrap();
    // SAFETY: the buffer lives until the copy has waited for the stream.
    unsafe { specials.put(to.slice(), Dtype::Bf16, Stream::DEFAULT).unwrap() };
    let mut found = [0; 14];
    to.read(&mut found, Stream::DEFAULT).unwrap();
    let mut wanted = [0x11; 14];
    kept.iter().for_each(|(at, e)| wanted[at * 2..at * 2 + 2].copy_from_slice(e));
    assert_eq!(found, wanted);
    // As f32 they are the same numbers.
    let wide = Buffer::from_slice(device, &[0; 28]).unwrap();
    // SAFETY: as above.
    unsafe { specials.put(wide.slice(), Dtype::F32, Stream::DEFAULT).unwrap() };
    let mut found = [0; 28];
    wide.read(&mut found, Stream::DEFAULT).unwrap();
    assert_eq!(f32::from_le_bytes([found[0], found[1], found[2], found[3]]), f32::INFINITY);
    // SAFETY: refused before anything is queued.
    unsafe {
        assert!(specials.put(to.slice().part(0, 12).unwrap(), Dtype::Bf16, Stream::DEFAULT).is_err());
        assert!(specials.put(to.slice(), Dtype::U16, Stream::DEFAULT).is_err());
    }
}

fn refused(subject: &Subject) {
    let device = subject.device();
    let memory = Buffer::from_slice(device, &[0; 4096]).unwrap();
    let luma = Luma { address: memory.slice().address, pitch: 32, width: 16, height: 8, depth: 8 };
    let meaning = Samples {
        sharing: Sharing::Columns,
        base: 0.0,
        unit: 1.0,
        parts: memory.slice().part(0, 64).unwrap(),
        columns: 16,
    };
    let to = memory.slice().part(1024, 256).unwrap();
    let values = PictureValues { first: 0, skip: 0, count: 128, dtype: Dtype::Bf16, to };
    let refuses = |luma: Luma, meaning: Samples, values: PictureValues| {
        let check = memory.slice().part(2048, 4).unwrap();
        // SAFETY: refused before anything is queued, or within the buffer.
        unsafe { store_picture(device, &luma, &meaning, &values, check, Stream::DEFAULT) }.is_err()
    };
    assert!(!refuses(luma, meaning, values));
    assert!(refuses(Luma { width: 15, ..luma }, meaning, values), "an odd width");
    assert!(refuses(Luma { pitch: 8, ..luma }, meaning, values), "lines that overlap");
    assert!(refuses(Luma { depth: 17, ..luma }, meaning, values), "a depth that is none");
    assert!(refuses(luma, Samples { columns: 17, ..meaning }, values), "too few parts");
    assert!(refuses(luma, Samples { sharing: Sharing::Rows(0), ..meaning }, values), "groups of nothing");
    assert!(refuses(luma, Samples { sharing: Sharing::Bytes, ..meaning }, values), "bytes in two bytes");
    assert!(refuses(luma, meaning, PictureValues { skip: 1, ..values }), "more samples than there are");
    let short = DeviceSlice { len: 254, ..to };
    assert!(refuses(luma, meaning, PictureValues { to: short, ..values }), "too little room");
}
