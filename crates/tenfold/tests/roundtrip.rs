//! What goes in comes out: every bit without loss, the right shape and the same bytes every time with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::mem::MaybeUninit;

use common::{EFFORTS, FLOATS, Faults, KINDS, Kind, Sample, decode};
use proptest::prelude::*;
use tenfold::engine::{Cpu, Engine, ErrorKind};
use tenfold::format::{Codec, max_encoded_len};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};

const SHAPES: [&[usize]; 33] = [
    &[],
    &[0],
    &[0, 5],
    &[5, 0],
    &[3, 0, 7],
    &[0, 0],
    &[1],
    &[2],
    &[31],
    &[32],
    &[33],
    &[255],
    &[256],
    &[257],
    &[1023],
    &[4095],
    &[4096],
    &[4097],
    &[16385],
    &[65535],
    &[65536],
    &[65537],
    &[70000],
    &[7, 13],
    &[129, 33],
    &[1, 1000],
    &[1000, 1],
    &[64, 257],
    &[1, 1, 1, 1],
    &[2, 3, 5, 7],
    &[4, 8, 16, 32],
    &[2, 1, 3, 1, 5, 1, 7],
    &[3, 40001],
];

/// Encodes without loss, checks every promise about size, and compares every bit.
fn exact(sample: &Sample, options: &EncodeOptions, faults: &mut Faults) -> Vec<u8> {
    let blob = tenfold::encode(&sample.view(), options).unwrap();
    let info = tenfold::inspect(&blob).unwrap();
    let name = sample.name();
    assert_eq!((info.codec, info.dtype, &info.shape), (Codec::Planes, sample.dtype, &sample.shape), "{name}");
    assert_eq!(info.blob_bytes, blob.len() as u64, "{name}");
    let size = sample.dtype.size();
    let dims = sample.shape.len();
    // A directory entry, and for each plane a head and padding.
    let few = 40 + 10 * dims + info.tiles as usize * (8 + 7 * size);
    faults.check(blob.len() <= sample.data.len() + few, || {
        format!("{name}: {} > {} + {few}", blob.len(), sample.data.len())
    });
    let most = max_encoded_len(sample.dtype, &sample.shape).unwrap();
    faults.check(blob.len() <= most, || format!("{name}: {} > max_encoded_len = {most}", blob.len()));
    let back = decode(&blob);
    assert_eq!((back.dtype, &back.shape), (sample.dtype, &sample.shape), "{name}");
    assert!(back.data == sample.data, "{name}: bits differ");
    blob
}

#[test]
fn lossless_keeps_every_bit_of_every_dtype_and_shape() {
    let options = EncodeOptions::new(Goal::Lossless);
    let mut faults = Faults::default();
    for (i, dtype) in Dtype::ALL.into_iter().enumerate() {
        for (j, shape) in SHAPES.into_iter().enumerate() {
            let seed = (i * 100 + j) as u64;
            let kind = KINDS[(i + j) % KINDS.len()];
            exact(&Sample::noise(dtype, shape, seed), &options, &mut faults);
            exact(&Sample::make(dtype, shape, kind, seed), &options, &mut faults);
            exact(&Sample::make(dtype, shape, Kind::Gaussian, seed).sprinkle(9, seed), &options, &mut faults);
        }
    }
    faults.done();
}

#[test]
fn lossless_keeps_denormals_and_extremes() {
    let options = EncodeOptions::new(Goal::Lossless);
    let mut faults = Faults::default();
    // All elements whose top bits are zero are denormals; all whose top bits are one are the extremes.
    for dtype in FLOATS {
        for (and, or) in [(0x80u8, 0), (0xff, 0x7e), (0x81, 0)] {
            let mut s = Sample::noise(dtype, &[37, 101], and as u64);
            let size = dtype.size();
            s.data.iter_mut().skip(size - 1).step_by(size).for_each(|b| *b = *b & and | or);
            exact(&s, &options, &mut faults);
        }
    }
    faults.done();
}

#[test]
fn lossless_shrinks_what_has_structure() {
    for (dtype, shape, kind, most) in [
        (Dtype::Bf16, [256, 256], Kind::Gaussian, 0.72),
        (Dtype::F32, [256, 256], Kind::Gaussian, 0.89),
        (Dtype::F32, [256, 256], Kind::Constant, 0.01),
        (Dtype::F64, [256, 256], Kind::Sparse, 0.25),
        (Dtype::I32, [256, 256], Kind::Gaussian, 0.35),
        (Dtype::Bool, [256, 256], Kind::Sparse, 0.60),
    ] {
        let s = Sample::make(dtype, &shape, kind, 3);
        let blob = exact(&s, &EncodeOptions::new(Goal::Lossless), &mut Faults::default());
        let share = blob.len() as f64 / s.data.len() as f64;
        assert!(share <= most, "{dtype} {kind:?}: {share} of the input");
    }
}

#[test]
fn the_worst_case_size_holds_for_every_lane_length() {
    let mut faults = Faults::default();
    for lane_values in [0, 32, 33, 100, 512, 65536] {
        for dtype in [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64] {
            for n in [1, 300, 5000, 70_000, 300_000] {
                let s = Sample::noise(dtype, &[n], n as u64);
                let options = EncodeOptions::new(Goal::Lossless).with_lane_values(lane_values);
                let blob = tenfold::encode(&s.view(), &options).unwrap();
                assert!(decode(&blob).data == s.data);
                let most = max_encoded_len(dtype, &s.shape).unwrap();
                faults.check(blob.len() <= most, || {
                    format!("{dtype} [{n}], lane_values {lane_values}: {} > {most}", blob.len())
                });
            }
        }
    }
    faults.done();
}

#[test]
fn the_worst_case_size_holds_for_every_goal() {
    let mut faults = Faults::default();
    for dtype in FLOATS {
        let full = dtype.size() as f64 * 8.0;
        for n in [257, 4096, 20_000] {
            for s in
                [Sample::noise(dtype, &[n], 5), Sample::make(dtype, &[n], Kind::HeavyTails, 6).sprinkle(3, 7)]
            {
                for goal in [
                    Goal::Bits(full),
                    Goal::Bits(full * 0.97),
                    Goal::Bits(full * 0.7),
                    Goal::Ratio(1.0),
                    Goal::Mse(1e-30),
                    Goal::Nmse(1e-12),
                    Goal::MaxError(1e-12),
                    Goal::Step(1e-6),
                    Goal::Step(1e9),
                ] {
                    let blob = s.encode(goal, Effort::Fast);
                    let most = max_encoded_len(dtype, &s.shape).unwrap();
                    faults.check(blob.len() <= most, || {
                        format!("{} {goal:?}: {} > {most} ({} in)", s.name(), blob.len(), s.data.len())
                    });
                    decode(&blob);
                }
            }
        }
    }
    faults.done();
}

/// One of each goal, fit for values of deviation one.
fn goals(values: usize) -> [Goal; 8] {
    [
        Goal::Bits(2.5),
        Goal::Bits(7.3),
        Goal::Ratio(6.0),
        Goal::Mse(0.01),
        Goal::Nmse(0.03),
        Goal::MaxError(0.05),
        Goal::MaxBytes(values / 2 + 100),
        Goal::Step(0.2),
    ]
}

#[test]
fn lossy_keeps_dtype_and_shape_and_all_calls_agree() {
    for (i, dtype) in FLOATS.into_iter().enumerate() {
        for (j, shape) in [&[5003][..], &[67, 31], &[3, 5, 7, 11]].into_iter().enumerate() {
            let s = Sample::make(dtype, shape, KINDS[(i * 3 + j) % 5], (i * 10 + j) as u64).sprinkle(301, 2);
            for effort in EFFORTS {
                for goal in goals(s.len()) {
                    let name = format!("{} {goal:?} {effort:?}", s.name());
                    let options = EncodeOptions::new(goal).with_effort(effort);
                    let blob = tenfold::encode(&s.view(), &options).unwrap();

                    let mut room = vec![0xa5; max_encoded_len(dtype, shape).unwrap()];
                    let n = Cpu.encode_into(&s.view(), &options, &mut room).unwrap();
                    assert!(room[..n] == blob[..], "{name}: encode_into differs");

                    let back = decode(&blob);
                    assert_eq!((back.dtype, &back.shape[..]), (dtype, shape), "{name}");
                    assert_eq!(back.data.len(), s.data.len(), "{name}");
                    assert!(decode(&blob).data == back.data, "{name}: decoded differently");
                    let mut out = vec![0xa5; s.data.len()];
                    Cpu.decode_into(&blob, &DecodeOptions::default(), &mut out).unwrap();
                    assert!(out == back.data, "{name}: decode_into differs");
                    Cpu.verify(&blob, &DecodeOptions::default()).unwrap();
                }
            }
        }
    }
}

#[test]
fn bytes_and_values_do_not_depend_on_threads() {
    // Several tiles each, so that there is something to share out.
    let samples = [
        Sample::make(Dtype::F32, &[301, 1001], Kind::Rows, 1),
        Sample::make(Dtype::Bf16, &[150_001], Kind::HeavyTails, 2).sprinkle(1000, 3),
    ];
    let ladder = [
        (Goal::Bits(2.2), Effort::Fast),
        (Goal::Bits(2.2), Effort::Balanced),
        (Goal::Nmse(0.01), Effort::Balanced),
        (Goal::MaxBytes(70_000), Effort::Fast),
        (Goal::MaxError(0.1), Effort::Fast),
        (Goal::Lossless, Effort::Fast),
    ];
    for s in &samples {
        for (goal, effort) in ladder {
            let options = EncodeOptions::new(goal).with_effort(effort);
            let one = tenfold::encode(&s.view(), &options.clone().with_threads(1)).unwrap();
            assert!(tenfold::inspect(&one).unwrap().tiles > 1);
            let plain = tenfold::decode(&one, &DecodeOptions::default().with_threads(1)).unwrap();
            for threads in [0, 2, 3, 8] {
                let many = tenfold::encode(&s.view(), &options.clone().with_threads(threads)).unwrap();
                assert!(many == one, "{} {goal:?}: {threads} threads change the blob", s.name());
                let back = tenfold::decode(&one, &DecodeOptions::default().with_threads(threads)).unwrap();
                assert!(back == plain, "{} {goal:?}: {threads} threads change the values", s.name());
            }
        }
    }
    let small = Sample::make(Dtype::F16, &[70, 1001], Kind::Gaussian, 4);
    let options = EncodeOptions::new(Goal::Bits(3.0)).with_effort(Effort::Best);
    let one = tenfold::encode(&small.view(), &options.clone().with_threads(1)).unwrap();
    assert!(tenfold::encode(&small.view(), &options.with_threads(3)).unwrap() == one);
}

#[test]
fn parts_make_the_same_blob_in_any_memory() {
    // The second is long enough for several threads to copy it.
    for rows in [7, 601] {
        let s = Sample::make(Dtype::F32, &[rows, 1001], Kind::Rows, rows as u64);
        for (goal, effort) in [(Goal::Lossless, Effort::Fast), (Goal::Bits(20.0), Effort::Fast)] {
            let options = EncodeOptions::new(goal).with_effort(effort);
            let blob = tenfold::encode(&s.view(), &options).unwrap();
            assert_eq!(blob.len() > 1 << 20, rows > 7);
            for threads in 0..4 {
                let name = format!("{} {goal:?}, {threads} threads", s.name());
                let options = options.clone().with_threads(threads);
                let parts = || Cpu.encode_parts(&s.view(), &options).unwrap();
                assert_eq!(parts().blob_len(), blob.len(), "{name}");

                let mut room = vec![0xa5; blob.len() + 5];
                assert_eq!(parts().write(&mut room).unwrap(), blob.len(), "{name}");
                assert!(room[..blob.len()] == blob && room[blob.len()..] == [0xa5; 5], "{name}");

                let mut room = vec![MaybeUninit::new(0xa5); blob.len() + 5];
                assert_eq!(parts().write_uninit(&mut room).unwrap(), blob.len(), "{name}");
                // SAFETY: all were set when the vector was made.
                let room: Vec<u8> = room.into_iter().map(|b| unsafe { b.assume_init() }).collect();
                assert!(room[..blob.len()] == blob && room[blob.len()..] == [0xa5; 5], "{name}");

                let short = parts().write(&mut vec![0; blob.len() - 1]).unwrap_err();
                assert_eq!(short.kind(), ErrorKind::Caller, "{name}");
            }
        }
    }
}

#[test]
fn buffers_of_the_wrong_size_are_the_callers_fault() {
    let s = Sample::make(Dtype::F32, &[40, 40], Kind::Gaussian, 1);
    let options = EncodeOptions::new(Goal::Lossless);
    let blob = tenfold::encode(&s.view(), &options).unwrap();
    let mut room = vec![0; blob.len()];
    assert_eq!(Cpu.encode_into(&s.view(), &options, &mut room).unwrap(), blob.len());
    let short = Cpu.encode_into(&s.view(), &options, &mut room[..blob.len() - 1]).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Caller);
    for n in [0, s.data.len() - 1, s.data.len() + 1] {
        let e = Cpu.decode_into(&blob, &DecodeOptions::default(), &mut vec![0; n]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Caller, "{n} bytes");
    }
    assert_eq!(
        tenfold::TensorView::new(Dtype::F32, &[2, 3], &[0; 23]).unwrap_err().kind(),
        ErrorKind::Caller
    );
    let huge = [usize::MAX, 2];
    assert_eq!(tenfold::TensorView::new(Dtype::F32, &huge, &[]).unwrap_err().kind(), ErrorKind::Caller);
    assert_eq!(max_encoded_len(Dtype::F32, &huge).unwrap_err().kind(), ErrorKind::Caller);
    assert_eq!(decode(&blob).to_vec::<u32>().unwrap_err().kind(), ErrorKind::Caller);
}

#[test]
fn lane_lengths_that_make_no_sense_are_the_callers_fault() {
    let s = Sample::make(Dtype::F32, &[40, 40], Kind::Gaussian, 1);
    for lane_values in [1, 31, 65537, u32::MAX] {
        let options = EncodeOptions::new(Goal::Lossless).with_lane_values(lane_values);
        assert_eq!(tenfold::encode(&s.view(), &options).unwrap_err().kind(), ErrorKind::Caller);
    }
}

fn any_shape() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0usize..9, 0..5),
        (0usize..70, 0usize..70).prop_map(|(r, c)| vec![r, c]),
        (0usize..6000).prop_map(|n| vec![n]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_back(
        dtype in prop::sample::select(&Dtype::ALL[..]),
        shape in any_shape(),
        lane_values in prop::sample::select(&[0u32, 32, 77, 4096][..]),
        mask in any::<u8>(),
        seed in any::<u64>(),
    ) {
        let mut s = Sample::noise(dtype, &shape, seed);
        // A mask makes some planes compressible.
        s.data.iter_mut().step_by(dtype.size()).for_each(|b| *b &= mask);
        let mut faults = Faults::default();
        exact(&s, &EncodeOptions::new(Goal::Lossless).with_lane_values(lane_values), &mut faults);
        faults.done();
    }

    #[test]
    fn any_float_bytes_survive_any_goal(
        dtype in prop::sample::select(&FLOATS[..]),
        shape in any_shape(),
        noise in any::<bool>(),
        which in 0usize..8,
        seed in any::<u64>(),
    ) {
        let s = if noise {
            Sample::noise(dtype, &shape, seed)
        } else {
            Sample::make(dtype, &shape, KINDS[seed as usize % KINDS.len()], seed).sprinkle(50, seed)
        };
        let options = EncodeOptions::new(goals(s.len())[which]).with_effort(EFFORTS[seed as usize % 2]);
        let blob = match tenfold::encode(&s.view(), &options) {
            Err(e) if matches!(options.goal, Goal::MaxBytes(_)) => {
                prop_assert_eq!(e.kind(), ErrorKind::Limit);
                return Ok(());
            }
            result => result.unwrap(),
        };
        let back = decode(&blob);
        prop_assert_eq!((back.dtype, back.shape), (dtype, shape));
        for (a, b) in s.data.chunks_exact(dtype.size()).zip(back.data.chunks_exact(dtype.size())) {
            let (x, y) = (common::to_reals(dtype, a)[0], common::to_reals(dtype, b)[0]);
            prop_assert!(if x.is_finite() { y.is_finite() } else { a == b }, "{} became {}", x, y);
        }
    }
}
