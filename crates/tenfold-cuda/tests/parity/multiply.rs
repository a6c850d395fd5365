//! Products of a matrix and a vector: near those of f64, always the same, and refused where they make no sense.

use tenfold::Dtype;
use tenfold_cuda::{Buffer, Device, DeviceSlice, MultiplyRequest, Stream, multiply};

use crate::Case;
use crate::common::{Kind, Sample, to_reals};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("multiply: sums of products".into(), products),
        ("multiply: what is not finite".into(), specials),
        ("multiply: what is refused".into(), refused),
    ]
}

fn run(device: &Device, dtype: Dtype, matrix: &[u8], vector: &[u8], bias: Option<&[u8]>) -> Vec<u8> {
    let on_device = |bytes: &[u8]| Buffer::from_slice(device, bytes).unwrap();
    let (matrix, vector, bias) = (on_device(matrix), on_device(vector), bias.map(on_device));
    let to = on_device(&vec![0xa5; matrix.slice().len / vector.slice().len * 2]);
    let request = MultiplyRequest {
        matrix: matrix.slice(),
        vector: vector.slice(),
        bias: bias.as_ref().map(Buffer::slice),
        to: to.slice(),
        dtype,
    };
    // SAFETY: all of it lives until the copy has waited for the stream.
    unsafe { multiply(device, &request, Stream::DEFAULT).unwrap() };
    let mut bytes = vec![0; to.slice().len];
    to.read(&mut bytes, Stream::DEFAULT).unwrap();
    bytes
}

fn products(subject: &Subject) {
    for (dtype, rows, columns) in [
        (Dtype::Bf16, 1, 8),
        (Dtype::Bf16, 37, 1000),
        (Dtype::F16, 64, 1032),
        (Dtype::F16, 3, 4096),
        (Dtype::Bf16, if subject.is_real() { 5000 } else { 40 }, 2048),
    ] {
        let matrix = Sample::make(dtype, &[rows, columns], Kind::Gaussian, 3);
        let vector = Sample::make(dtype, &[columns], Kind::Gaussian, 4);
        let bias = Sample::make(dtype, &[rows], Kind::Gaussian, 5);
        let reals = |s: &Sample| to_reals(dtype, &s.data);
        let (m, v, b) = (reals(&matrix), reals(&vector), reals(&bias));
        for bias in [None, Some(&bias)] {
            let bytes = bias.map(|s| &s.data[..]);
            let found = run(subject.device(), dtype, &matrix.data, &vector.data, bytes);
            assert_eq!(found, run(subject.device(), dtype, &matrix.data, &vector.data, bytes));
            for (row, found) in to_reals(dtype, &found).into_iter().enumerate() {
                let terms = m[row * columns..][..columns].iter().zip(&v).map(|(a, b)| a * b);
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let wanted = sum + if bias.is_some() { b[row] } else { 0.0 };
                let rounding = wanted.abs() / if dtype == Dtype::Bf16 { 256.0 } else { 2048.0 };
                let off = (found - wanted).abs();
                assert!(off <= rounding + 1e-6 * size, "{dtype} {rows} × {columns}, row {row}: off by {off}");
            }
        }
    }
}

/// Infinities and numbers beyond the largest stay infinite, with their sign; NaN is NaN.
fn specials(subject: &Subject) {
    let one = |v: u16| v.to_le_bytes();
    for (dtype, unit, large, infinity) in
        [(Dtype::Bf16, 0x3f80u16, 0x7f00u16, 0x7f80u16), (Dtype::F16, 0x3c00, 0x7bff, 0x7c00)]
    {
        let vector: Vec<u8> = [unit; 8].iter().flat_map(|&v| one(v)).collect();
        let row = |first: [u16; 2]| [first[0], first[1], 0, 0, 0, 0, 0, 0].into_iter().flat_map(one);
        let minus = 0x8000;
        let matrix: Vec<u8> = row([infinity, unit])
            .chain(row([infinity | minus, unit]))
            .chain(row([infinity, infinity | minus]))
            .chain(row([large, large]))
            .chain(row([large | minus, large | minus]))
            .chain(row([minus, minus]))
            .collect();
        let found = run(subject.device(), dtype, &matrix, &vector, None);
        let found: Vec<u16> = found.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let nan = |v: u16| v & 0x7fff > infinity;
        assert_eq!(&found[..2], [infinity, infinity | minus], "{dtype}");
        assert!(nan(found[2]), "{dtype}");
        assert_eq!(&found[3..5], [infinity, infinity | minus], "{dtype}");
        assert_eq!(found[5] & 0x7fff, 0, "{dtype}");
    }
}

fn refused(subject: &Subject) {
    let memory = Buffer::from_slice(subject.device(), &[0; 4096]).unwrap();
    let at = |from: usize, len: usize| DeviceSlice::new(memory.slice().address + from as u64, len);
    let good = MultiplyRequest {
        matrix: at(0, 1024),
        vector: at(1024, 64),
        bias: None,
        to: at(2048, 32),
        dtype: Dtype::Bf16,
    };
    let bad = [
        MultiplyRequest { matrix: at(8, 1024), ..good },
        MultiplyRequest { matrix: at(0, 1022), ..good },
        MultiplyRequest { vector: at(1026, 64), ..good },
        MultiplyRequest { vector: at(1024, 60), ..good },
        MultiplyRequest { bias: Some(at(3072, 30)), ..good },
        MultiplyRequest { to: at(2048, 0), matrix: at(0, 0), ..good },
        MultiplyRequest { vector: at(1024, 1 << 30), ..good },
        MultiplyRequest { dtype: Dtype::F32, ..good },
    ];
    for request in bad {
        // SAFETY: refused before anything is queued.
        let refused = unsafe { multiply(subject.device(), &request, Stream::DEFAULT) };
        assert!(matches!(refused, Err(tenfold_cuda::Error::InvalidArgument(_))), "{request:?}");
    }
    // SAFETY: all of it lies within the buffer.
    unsafe { multiply(subject.device(), &good, Stream::DEFAULT).unwrap() };
    subject.device().synchronize(Stream::DEFAULT).unwrap();
}
