//! Layers: a device adds those of the CPU to the same bits, the CPU adds a device's, and both refuse the same.

use tenfold::engine::{Cpu, Elements, Engine, Layered, Scratch};
use tenfold::prepare::{Axis, Delta, Hadamard, Transform, Weights};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{Buffer, Device, DeviceCodec, Memory, Stream};

use crate::Case;
use crate::common::{FLOATS, Kind, Sample, decode, forge, mse, parts, specials, to_reals};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("layers of the cpu".into(), of_the_cpu),
        ("layers of the device".into(), of_the_device),
        ("sums of extremes".into(), extremes),
        ("layers behind transforms".into(), prepared),
        ("layers in the caller's memory".into(), in_place),
        ("damaged layers".into(), damaged),
        ("rounding finds the range on the device".into(), ranges),
    ]
}

fn layered(goals: &[Goal]) -> EncodeOptions {
    let first = EncodeOptions::new(goals[0]).with_effort(Effort::Fast);
    goals[1..].iter().fold(first, |options, &goal| options.with_residual(goal))
}

/// A tensor with everything in it that is not finite.
fn odd(dtype: Dtype, shape: &[usize], seed: u64) -> Sample {
    let mut s = Sample::make(dtype, shape, Kind::Gaussian, seed);
    let size = dtype.size();
    for (i, special) in specials(dtype).iter().enumerate() {
        s.data[(7 * i + 3) * size..][..size].copy_from_slice(special);
    }
    s
}

const SEVERAL: [&[Goal]; 3] = [
    &[Goal::Bits(3.0), Goal::Bits(3.0)],
    &[Goal::Bits(2.0), Goal::Bits(2.0), Goal::MaxError(0.01)],
    &[Goal::Ratio(6.0), Goal::RoundToNearest { bits: 6 }],
];

/// Decodes on both, whole, coarse and by rows.
fn agree(subject: &Subject, blob: &[u8], what: &str) {
    for layers in [0, 1] {
        let options = DecodeOptions::default().with_layers(layers);
        let (wanted, found) = (Cpu.decode(blob, &options), subject.engine().decode(blob, &options));
        assert!(wanted.is_ok() && wanted == found, "{what}: {layers} layers");
        let rows = wanted.unwrap().shape.iter().rev().skip(1).product::<usize>();
        for range in [0..1, rows / 3..rows, 2..2] {
            let wanted = Cpu.decode_rows(blob, range.clone(), &options);
            let found = subject.engine().decode_rows(blob, range.clone(), &options);
            assert!(wanted.is_ok() && wanted == found, "{what}: {layers} layers, rows {range:?}");
        }
    }
}

fn of_the_cpu(subject: &Subject) {
    for dtype in FLOATS {
        for (i, goals) in SEVERAL.iter().enumerate() {
            let blob = Cpu.encode(&odd(dtype, &[37, 65], i as u64).view(), &layered(goals)).unwrap();
            agree(subject, &blob, &format!("{dtype} {goals:?}"));
        }
    }
}

fn of_the_device(subject: &Subject) {
    for dtype in FLOATS {
        for (i, goals) in SEVERAL.iter().enumerate() {
            let s = odd(dtype, &[64, 96], 10 + i as u64);
            let what = format!("{dtype} {goals:?}");
            let blob = subject.engine().encode(&s.view(), &layered(goals)).unwrap();
            let info = tenfold::inspect(&blob).unwrap();
            assert_eq!((info.dtype, info.layers.len()), (dtype, goals.len()), "{what}");
            agree(subject, &blob, &what);
            let (size, fine) = (dtype.size(), decode(&blob).data);
            for ((x, y), v) in s.data.chunks(size).zip(fine.chunks(size)).zip(s.reals()) {
                assert!(v.is_finite() || x == y, "{what}: {x:x?} became {y:x?}");
            }
            let coarse = tenfold::decode(&blob, &DecodeOptions::default().with_layers(1)).unwrap();
            let numbers = |data: &[u8]| -> Vec<f64> {
                to_reals(dtype, data)
                    .into_iter()
                    .zip(s.reals())
                    .map(|(y, x)| if x.abs() < 9.0 { y } else { 0.0 })
                    .collect()
            };
            let errors = [&coarse.data, &fine].map(|data| mse(&numbers(&s.data), &numbers(data)));
            assert!(errors[1] < errors[0] / 2.0, "{what}: {errors:?}");
        }
    }
    let ints = Sample::noise(Dtype::I32, &[300], 14);
    let (wanted, found) = (
        Cpu.encode(&ints.view(), &layered(SEVERAL[0])).unwrap_err(),
        subject.engine().encode(&ints.view(), &layered(SEVERAL[0])).unwrap_err(),
    );
    assert_eq!(found.kind(), wanted.kind(), "{found}");
}

/// Layers that were never made of a tensor: every pair of numbers that an addition could go wrong with.
fn extremes(subject: &Subject) {
    for dtype in FLOATS {
        let working = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        let size = working.size();
        let mut values = specials(working);
        for narrow in specials(dtype) {
            let wide = to_reals(dtype, &narrow)[0];
            let bytes = match working {
                Dtype::F64 => wide.to_le_bytes().to_vec(),
                _ => (wide as f32).to_le_bytes().to_vec(),
            };
            values.push(bytes);
        }
        let n = values.len();
        let layer = |at: &dyn Fn(usize) -> usize| {
            let data: Vec<u8> = (0..n * n).flat_map(|i| values[at(i)].clone()).collect();
            assert_eq!(data.len(), n * n * size);
            Sample { dtype: working, shape: vec![n, n], data }.encode(Goal::Lossless, Effort::Fast)
        };
        let (first, second) = (layer(&|i| i / n), layer(&|i| i % n));
        let shape = [n as u64, n as u64];
        agree(subject, &forge(dtype, &shape, 2, &[&first, &second]), &format!("{dtype}"));
        agree(subject, &forge(dtype, &shape, 3, &[&first, &second, &first]), &format!("{dtype} thrice"));
    }
}

fn prepared(subject: &Subject) {
    let delta = Transform::Delta(Delta::new(8).unwrap());
    let weights = Transform::Weights(Weights::new(Axis::Columns, (0..65).map(|j| j - 32).collect()));
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        let s = odd(dtype, &[37, 65], 20);
        for transforms in [vec![weights.clone()], vec![delta.clone()], vec![weights.clone(), delta.clone()]] {
            let options = layered(SEVERAL[0]).with_transforms(transforms.clone());
            agree(subject, &Cpu.encode(&s.view(), &options).unwrap(), &format!("{dtype} {transforms:?}"));
            let blob = subject.engine().encode(&s.view(), &options).unwrap();
            assert!(
                tenfold::inspect(parts(&blob)[0]).unwrap().transforms.len() > transforms.len(),
                "kept too"
            );
            agree(subject, &blob, &format!("{dtype} {transforms:?} of the device"));
        }
        // A rotation is not the same bits everywhere, but near.
        let rotated =
            layered(SEVERAL[0]).with_transforms(vec![Transform::Hadamard(Hadamard::new(5, 1).unwrap())]);
        let plain = Sample::make(dtype, &[37, 65], Kind::Gaussian, 21);
        let blob = Cpu.encode(&plain.view(), &rotated).unwrap();
        let found = subject.engine().decode(&blob, &DecodeOptions::default()).unwrap();
        crate::chain::hold(&found, &decode(&blob), false, "rotated layers");
    }
}

/// What a caller does who has tensor and blob on the device.
fn in_place(subject: &Subject) {
    struct OfDevice<'a>(&'a Device);

    // SAFETY: buffers are freed when the device is done with them.
    unsafe impl Memory for OfDevice<'_> {
        type Piece = Buffer;

        fn take(&self, len: usize) -> tenfold_cuda::Result<(Buffer, u64)> {
            let buffer = Buffer::new(self.0, len)?;
            let address = buffer.slice().address;
            Ok((buffer, address))
        }
    }

    let s = odd(Dtype::Bf16, &[37, 65], 30);
    let (device, stream) = (subject.device(), Stream::DEFAULT);
    let memory = OfDevice(device);
    let tensor = Buffer::from_slice(device, &s.data).unwrap();
    // SAFETY: all memory is of buffers that live to the end of this function.
    let engine = Layered(unsafe { DeviceCodec::new(device, &memory, stream) });
    let elements = Elements { dtype: s.dtype, shape: &s.shape, bytes: &tensor.slice() };
    let pieces = engine.encode(&elements, &layered(SEVERAL[1])).unwrap();
    let mut blob = pieces.header;
    for layer in pieces.layers {
        let mut bytes = vec![0; layer.slice().len];
        layer.piece.read(&mut bytes, stream).unwrap();
        blob.extend_from_slice(&bytes);
    }
    agree(subject, &blob, "made in place");
    // Layers start wherever they start: at any multiple of four.
    for shift in [0, 4, 8, 12] {
        let room = Buffer::from_slice(device, &[vec![0; shift], blob.clone()].concat()).unwrap();
        let at = tenfold_cuda::DeviceSlice::new(room.slice().address + shift as u64, blob.len());
        let opened = engine.open(&at, &DecodeOptions::default()).unwrap();
        let out = Buffer::new(device, s.data.len()).unwrap();
        let mut scratch = Scratch::default();
        engine.decode(&opened, &at, 0..opened.values, &mut out.slice(), &mut scratch).unwrap();
        let mut found = vec![0; s.data.len()];
        out.read(&mut found, stream).unwrap();
        assert!(found == decode(&blob).data, "shifted by {shift}");
    }
}

fn damaged(subject: &Subject) {
    let s = Sample::make(Dtype::F16, &[20, 15], Kind::Gaussian, 40);
    let blob = Cpu.encode(&s.view(), &layered(&[Goal::Bits(4.0), Goal::MaxError(0.01)])).unwrap();
    let same = |bytes: &[u8], what: &str| {
        let options = DecodeOptions::default();
        let (wanted, found) = (Cpu.decode(bytes, &options), subject.engine().decode(bytes, &options));
        match (&wanted, &found) {
            (Err(w), Err(f)) => assert_eq!(w.kind(), f.kind(), "{what}: {f}, not {w}"),
            _ => assert!(wanted == found, "{what}: {found:?}, not {wanted:?}"),
        }
    };
    let stride = (blob.len() / 200).max(1);
    for at in (0..blob.len()).step_by(stride) {
        let mut bytes = blob.clone();
        bytes[at] ^= 1 << (at % 8);
        same(&bytes, &format!("bit of byte {at}"));
        same(&blob[..at], &format!("{at} bytes"));
    }
    same(&[&blob[..], &[0; 4]].concat(), "bytes behind");
    let layer = |dtype, shape: &[usize]| {
        Sample::make(dtype, shape, Kind::Gaussian, 41).encode(Goal::Bits(4.0), Effort::Fast)
    };
    let good = layer(Dtype::F32, &[20, 15]);
    for (bad, what) in [
        (layer(Dtype::F32, &[15, 20]), "shape"),
        (layer(Dtype::F64, &[20, 15]), "dtype"),
        (blob.clone(), "layers of layers"),
        ([&good[..], &[0; 4]].concat(), "a layer that goes on"),
        (good[..good.len() - 4].to_vec(), "a layer that ends"),
        (vec![1; 40], "no blob"),
        (Vec::new(), "nothing"),
    ] {
        same(&forge(Dtype::F16, &[20, 15], 2, &[&good, &bad]), what);
        same(&forge(Dtype::F16, &[20, 15], 2, &[&bad, &good]), what);
    }
    // Layers that are sound, and not those of the directory.
    let mut sum = forge(Dtype::F16, &[20, 15], 2, &[&good, &good]);
    let header = u32::from_le_bytes(sum[8..12].try_into().unwrap()) as usize;
    sum[header - 8] ^= 1;
    let crc = crc32fast::hash(&sum[..header - 4]);
    sum[header - 4..header].copy_from_slice(&crc.to_le_bytes());
    same(&sum, "a checksum in the directory");
}

fn ranges(subject: &Subject) {
    for dtype in FLOATS {
        for (i, s) in [odd(dtype, &[300], 50), Sample::new(dtype, &[400], &[0.0; 400])].iter().enumerate() {
            let goal = EncodeOptions::new(Goal::RoundToNearest { bits: 6 }).with_effort(Effort::Fast);
            let (wanted, found) =
                (Cpu.encode(&s.view(), &goal).unwrap(), subject.engine().encode(&s.view(), &goal).unwrap());
            let codec = |blob: &[u8]| tenfold::inspect(blob).unwrap().codec;
            assert_eq!(codec(&found), codec(&wanted), "{dtype} {i}");
            let (reals, back) = (s.reals(), to_reals(dtype, &decode(&found).data));
            let finite = || reals.iter().zip(&back).filter(|(x, _)| x.is_finite());
            let bound = finite().fold(0.0, |m: f64, (x, _)| m.max(x.abs())) / 62.0;
            let off = finite().fold(0.0, |m: f64, (x, y)| m.max((x - y).abs()));
            assert!(off <= bound * (1.0 + 1e-12), "{dtype} {i}: {off} > {bound}");
        }
    }
}
