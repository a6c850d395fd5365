//! Small blobs of every kind, and new checksums for damaged ones.

use super::{Kind, Sample, to_bytes};
use tenfold::prepare::{Axis, Transform, Weights};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

/// Recomputes the checksums of a blob whose header or tiles were changed: of every tile that the
/// directory reaches, and of the header. `tiles` is the number of tiles before the change.
pub fn seal(blob: &mut [u8], tiles: usize) {
    let Some(len) = blob.get(8..12) else { return };
    let header = u32::from_le_bytes(len.try_into().unwrap()) as usize;
    if header > blob.len() || header < 16 + tiles * 8 {
        return;
    }
    let mut at = header;
    for entry in (header - 4 - tiles * 8..header - 4).step_by(8) {
        let len = u32::from_le_bytes(blob[entry..entry + 4].try_into().unwrap()) as usize;
        let Some(tile) = blob.get(at..at.saturating_add(len)) else {
            break;
        };
        let sum = crc32fast::hash(tile);
        blob[entry + 4..entry + 8].copy_from_slice(&sum.to_le_bytes());
        at += len;
    }
    let sum = crc32fast::hash(&blob[..header - 4]);
    blob[header - 4..header].copy_from_slice(&sum.to_le_bytes());
}

/// Small blobs that between them use every part of the format, with names.
pub fn small_blobs() -> Vec<(&'static str, Vec<u8>)> {
    let lossy = |s: &Sample, bits: f64, effort: Effort, lane: u32| {
        let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_lane_values(lane);
        let blob = tenfold::encode(&s.view(), &options).unwrap();
        assert_eq!(tenfold::inspect(&blob).unwrap().codec, tenfold::format::Codec::Levels);
        blob
    };
    let gauss = Sample::make(Dtype::F32, &[19, 23], Kind::Gaussian, 1);
    let mut far = gauss.clone();
    far.data = to_bytes(
        Dtype::F32,
        &Kind::Gaussian
            .reals(437, 23, 2)
            .iter()
            .enumerate()
            .map(|(i, v)| if i % 100 == 50 { v * 700.0 } else { *v })
            .collect::<Vec<_>>(),
    );
    let wide: Vec<f64> = Kind::Gaussian
        .reals(2048, 64, 3)
        .iter()
        .enumerate()
        .map(|(i, v)| v * if i / 64 % 2 == 0 { 1.0 } else { 200.0 })
        .collect();
    let rows = Sample::new(Dtype::Bf16, &[32, 64], &wide);
    let classes = lossy(&rows, 1.2, Effort::Balanced, 0);
    assert!(tenfold::inspect(&classes).unwrap().classes > Some(1));
    let low = lossy(&gauss, 11.0, Effort::Fast, 0);
    assert!(tenfold::inspect(&low).unwrap().low_bits > Some(0));
    let tiles = lossy(&Sample::make(Dtype::F16, &[60, 11], Kind::Laplace, 4), 2.0, Effort::Best, 32);
    assert!(tenfold::inspect(&tiles).unwrap().tiles > 1);
    let exact = Sample::make(Dtype::F32, &[300], Kind::Gaussian, 5).sprinkle(20, 6);
    let weights = Weights::new(Axis::Columns, (0..20).map(|j| j * 3 - 20).collect());
    let weighted = EncodeOptions::new(Goal::Bits(4.0)).with_transforms(vec![Transform::Weights(weights)]);
    let weighted = {
        let s = Sample::make(Dtype::Bf16, &[15, 20], Kind::Gaussian, 16).sprinkle(40, 6);
        tenfold::encode(&s.view(), &weighted).unwrap()
    };
    assert_eq!(tenfold::inspect(&weighted).unwrap().transforms.len(), 2);
    let layered = |s: &Sample| {
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_residual(Goal::RoundToNearest { bits: 6 });
        let blob = tenfold::encode(&s.view(), &options).unwrap();
        assert_eq!(tenfold::inspect(&blob).unwrap().layers.len(), 2);
        blob
    };
    let transposed = {
        let s = Sample::make(Dtype::Bf16, &[17, 22], Kind::Gaussian, 19).sprinkle(60, 4);
        let weights = Transform::Weights(Weights::new(Axis::Rows, (0..22).map(|j| j - 11).collect()));
        let options =
            EncodeOptions::new(Goal::Bits(3.0)).with_transforms(vec![Transform::Transposed, weights]);
        tenfold::encode(&s.view(), &options).unwrap()
    };
    let lossless = |s: Sample| s.encode(Goal::Lossless, Effort::Fast);
    let planes = EncodeOptions::new(Goal::Lossless).with_lane_values(32);
    let many = Sample::make(Dtype::Bf16, &[9, 41], Kind::Gaussian, 7);
    vec![
        ("lossless f32", lossless(Sample::make(Dtype::F32, &[3, 17], Kind::Gaussian, 8))),
        ("lossless bf16, coded planes", lossless(Sample::make(Dtype::Bf16, &[700], Kind::Gaussian, 9))),
        ("lossless bf16, several tiles", tenfold::encode(&many.view(), &planes).unwrap()),
        ("lossless i8", lossless(Sample::make(Dtype::I8, &[2, 2, 30], Kind::Gaussian, 10))),
        ("lossless, constant", lossless(Sample::make(Dtype::F64, &[64], Kind::Constant, 11))),
        ("scalar", lossless(Sample::make(Dtype::F32, &[], Kind::Gaussian, 12))),
        ("empty", lossless(Sample::make(Dtype::F32, &[4, 0], Kind::Gaussian, 13))),
        ("fast", lossy(&gauss, 3.0, Effort::Fast, 0)),
        ("balanced", lossy(&gauss, 2.0, Effort::Balanced, 0)),
        ("escapes", lossy(&far, 5.0, Effort::Balanced, 0)),
        ("low bits", low),
        ("classes", classes),
        ("several tiles", tiles),
        ("exact values", lossy(&exact, 6.0, Effort::Balanced, 0)),
        ("weights and kept elements", weighted),
        ("transposed, with kept elements", transposed),
        ("layered", layered(&Sample::make(Dtype::Bf16, &[15, 20], Kind::Gaussian, 17).sprinkle(40, 6))),
        ("layered, empty", layered(&Sample::make(Dtype::F64, &[4, 0], Kind::Gaussian, 18))),
        ("f64", lossy(&Sample::make(Dtype::F64, &[300], Kind::Laplace, 14), 4.0, Effort::Fast, 0)),
        ("f8", lossy(&Sample::make(Dtype::F8E4M3, &[400], Kind::Gaussian, 15), 2.0, Effort::Balanced, 0)),
    ]
}

/// The layers of a blob, each a blob.
pub fn parts(blob: &[u8]) -> Vec<&[u8]> {
    let starts = tenfold::format::tile_starts(blob, &tenfold::engine::Limits::default()).unwrap();
    starts.windows(2).map(|w| &blob[w[0]..w[1]]).collect()
}

/// A blob put together by hand from layers and the start of a header.
pub fn forge(dtype: Dtype, shape: &[u64], count: u8, layers: &[&[u8]]) -> Vec<u8> {
    let mut out = b"TNFD\x01".to_vec();
    out.extend([4, dtype.id(), shape.len() as u8, 0, 0, 0, 0]);
    shape.iter().for_each(|&d| tenfold::format::carry::put_varint(&mut out, d));
    out.extend([0, count]);
    out.resize(out.len().next_multiple_of(4), 0);
    layers.iter().for_each(|l| out.extend([(l.len() as u32).to_le_bytes(), [0; 4]].concat()));
    out.extend([0; 4]);
    let header = out.len() as u32;
    out[8..12].copy_from_slice(&header.to_le_bytes());
    layers.iter().for_each(|l| out.extend_from_slice(l));
    seal(&mut out, layers.len());
    out
}
