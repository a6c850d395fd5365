//! Levels in pairs: decoded alike, whole and in part, damaged or not; and encoded.

use tenfold::engine::Engine;
use tenfold::prepare::{Means, Preparation, Transform};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{DecodeSettings, DeviceSlice};

use crate::Case;
use crate::common::{FLOATS, Kind, Sample, max_error, seal};
use crate::corruption::compare;
use crate::device::Subject;
use crate::fixed::{Plan, encode_by};

/// Where a header has the codec, and that of pairs.
const CODEC: usize = 5;
const PAIRS: u8 = 5;

pub fn cases() -> Vec<Case> {
    vec![
        ("pairs: every dtype, behind columns too".into(), dtypes),
        ("pairs: some of the values".into(), windows),
        ("pairs: flipped bits".into(), flips),
        ("pairs: taken for single levels".into(), mistaken),
        ("pairs: to where no two elements are aligned".into(), unaligned),
        ("pairs: of a device".into(), encoded),
        ("pairs: where hardly any has a symbol".into(), escapes),
    ]
}

/// Outputs need only be aligned to an element.
fn unaligned(subject: &Subject) {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let sample = Sample::make(dtype, &[70, 256], Kind::Gaussian, 13);
        let blob = paired(&sample, &plain(2.5, Effort::Balanced, 128));
        let (wanted, by) = (tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data, dtype.size());
        let settings = DecodeSettings::default();
        let found = subject.decode_by(&blob, dtype, wanted.len() + by, &settings, |mut request| {
            request.out = DeviceSlice::new(request.out.address + by as u64, wanted.len());
            request
        });
        assert!(found.unwrap()[by..] == wanted, "{dtype}");
    }
}

/// What a caller says of a blob saves launches; where it is wrong, nothing is decoded, and the status says so.
fn mistaken(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[70, 256], Kind::Gaussian, 12);
    let options = plain(2.5, Effort::Balanced, 128);
    let pairs = paired(&sample, &options);
    let single = tenfold::encode(&sample.view(), &options.clone().with_minor(0)).unwrap();
    let infos = [&pairs, &single].map(|blob| tenfold::inspect(blob).unwrap());
    assert_eq!(infos.clone().map(|info| info.paired), [Some(true), Some(false)]);
    let decode = |blob: &[u8], info| {
        let settings = DecodeSettings::default();
        subject.decode_by(blob, Dtype::Bf16, sample.data.len(), &settings, |request| request.with_info(info))
    };
    for (blob, known, other) in [(&pairs, &infos[0], &infos[1]), (&single, &infos[1], &infos[0])] {
        let whole = tenfold::decode(blob, &DecodeOptions::default()).unwrap().data;
        assert!(decode(blob, known).unwrap() == whole);
        let error = decode(blob, other).unwrap_err();
        assert!(error.to_string().contains("codec"), "{error}");
    }
}

fn plain(bits: f64, effort: Effort, lane: u32) -> EncodeOptions {
    let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_lane_values(lane);
    options.with_prepare(Preparation::None)
}

/// Encodes on the CPU, which must choose pairs.
fn paired(sample: &Sample, options: &EncodeOptions) -> Vec<u8> {
    let blob = tenfold::encode(&sample.view(), options).unwrap();
    assert_eq!(blob[CODEC], PAIRS, "{} {:?}", sample.name(), options.goal);
    blob
}

/// Decodes as every other float of at most 32 bits.
fn convert(subject: &Subject, sample: &Sample, blob: &[u8]) {
    let wide = subject.decode_raw(blob, Dtype::F32, 0, None, sample.len() * 4).unwrap();
    let reals = Sample { data: wide, dtype: Dtype::F32, ..sample.clone() }.reals();
    for dtype in FLOATS.into_iter().filter(|d| d.size() <= 4) {
        let found = subject.decode_raw(blob, dtype, 0, None, sample.len() * dtype.size()).unwrap();
        assert!(found == Sample::new(dtype, &sample.shape, &reals).data, "{} as {dtype}", sample.name());
    }
}

fn dtypes(subject: &Subject) {
    for (seed, dtype) in FLOATS.into_iter().enumerate() {
        for (effort, bits, lane) in
            [(Effort::Fast, 2.5, 128), (Effort::Balanced, 1.5, 0), (Effort::Best, 2.0, 256)]
        {
            let sample = Sample::make(dtype, &[70, 256], Kind::Gaussian, seed as u64).sprinkle(700, 3);
            compare(subject, &sample.name(), &paired(&sample, &plain(bits, effort, lane)));
        }
    }
    let sample = Sample::make(Dtype::F32, &[70, 256], Kind::Gaussian, 8);
    convert(subject, &sample, &paired(&sample, &plain(2.5, Effort::Balanced, 128)));
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::F64] {
        let sample = Sample::make(dtype, &[70, 258], Kind::Gaussian, 9);
        let means = Transform::Means(Means::measure(&vec![0.01f32; 258 * 2], 258));
        let options = plain(2.0, Effort::Balanced, 128).with_transforms(vec![means]);
        compare(subject, &sample.name(), &paired(&sample, &options));
    }
    // Classes of rows, and of pairs of columns.
    for by_row in [true, false] {
        let line = |i: usize| if by_row { i / 320 } else { i % 320 / 2 * 3 };
        let scale = |i: usize| if line(i).is_multiple_of(5) { 5.0 } else { 1.0 };
        let gauss = Kind::Gaussian.reals(96 * 320, 1, 10);
        let reals: Vec<f64> = gauss.into_iter().enumerate().map(|(i, v)| v * scale(i)).collect();
        let sample = Sample::new(Dtype::Bf16, &[96, 320], &reals);
        for lane in [128, 1024] {
            let blob = paired(&sample, &plain(2.0, Effort::Balanced, lane));
            assert!(tenfold::inspect(&blob).unwrap().classes > Some(1));
            compare(subject, &format!("{} by row: {by_row}", sample.name()), &blob);
        }
    }
}

fn windows(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[20_001], Kind::Gaussian, 11);
    let blob = paired(&sample, &plain(2.2, Effort::Balanced, 64));
    let all = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
    for (first, count) in
        [(0, 20_001), (1, 20_000), (2, 4096), (2047, 4099), (4096, 2048), (19_999, 2), (20_000, 1), (7, 0)]
    {
        let found =
            subject.decode_raw(&blob, Dtype::Bf16, first as u64, Some(count as u64), count * 2).unwrap();
        assert!(found == all[first * 2..(first + count) * 2], "{count} from {first}");
    }
}

fn flips(subject: &Subject) {
    let far = Sample::make(Dtype::F32, &[17_001], Kind::Outliers, 12);
    let blobs = [
        paired(
            &Sample::make(Dtype::Bf16, &[70, 256], Kind::Gaussian, 13).sprinkle(900, 3),
            &plain(2.5, Effort::Balanced, 128),
        ),
        paired(
            &far,
            &EncodeOptions::new(Goal::Step(0.6)).with_effort(Effort::Fast).with_prepare(Preparation::None),
        ),
    ];
    for (n, blob) in blobs.iter().enumerate() {
        let info = tenfold::inspect(blob).unwrap();
        let (tiles, header) = (info.tiles as usize, info.header_bytes as usize);
        for at in (12..header)
            .chain((header..header + 140).step_by(3))
            .chain((header..blob.len()).step_by(blob.len() / 60))
        {
            let mut bytes = blob.clone();
            bytes[at] ^= 1 << (at % 8);
            compare(subject, &format!("{n}: byte {at}"), &bytes);
            seal(&mut bytes, tiles);
            compare(subject, &format!("{n}: byte {at}, sealed"), &bytes);
        }
    }
}

/// What a device makes of tensors that suit pairs, the CPU reads, and it is about as small.
fn encoded(subject: &Subject) {
    for (effort, shape, dtype) in [
        (Effort::Fast, [200, 300], Dtype::Bf16),
        (Effort::Balanced, [260, 256], Dtype::F32),
        (Effort::Best, [66, 258], Dtype::F16),
    ] {
        let sample = Sample::make(dtype, &shape, Kind::Gaussian, 14);
        for bits in [1.2, 2.5, 3.2] {
            let options = plain(bits, effort, 256);
            let blob = subject.engine().encode(&sample.view(), &options).unwrap();
            assert_eq!(blob[CODEC], PAIRS, "{} at {bits} bits", sample.name());
            let off = blob.len() as f64 * 8.0 / sample.len() as f64 / bits - 1.0;
            assert!(off.abs() < 0.02, "{} at {bits} bits: off by {off}", sample.name());
            compare(subject, &sample.name(), &blob);
            let older = subject.engine().encode(&sample.view(), &options.with_minor(0)).unwrap();
            assert_ne!(older[CODEC], PAIRS);
        }
    }
}

fn escapes(subject: &Subject) {
    for (nu, step) in [(0, 0.02), (3, 0.02), (8, 0.05), (3, 1e-4)] {
        let sample = Sample::make(Dtype::F32, &[34, 512], Kind::Gaussian, 15);
        let plan = Plan { paired: true, ..Plan::simple(nu, step) };
        let room = sample.data.len() * 2 + sample.len() * 4 + 4096;
        let blob = encode_by(subject, &sample, &plan, 256, 1, room).unwrap();
        assert_eq!(blob[CODEC], PAIRS);
        let found = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
        let reals = Sample { data: found.data, ..sample.clone() }.reals();
        let worst = max_error(&sample.reals(), &reals);
        assert!(worst < step * 4.0, "nu {nu}, step {step}: {worst}");
        compare(subject, &format!("nu {nu}, step {step}"), &blob);
    }
}
