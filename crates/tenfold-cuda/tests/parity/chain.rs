//! Chains of transforms through the engine: what the CPU writes behind them a device reads, and the other way round.

use std::sync::Arc;

use tenfold::engine::{Engine, ErrorKind};
use tenfold::format::Codec;
use tenfold::prepare::{
    Axis, Basis, Dct, Delta, Hadamard, Means, Pairing, Positions, Preparation, Rope, Rotation, Scaling,
    Transform, Weights,
};
use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Error, Goal, Tensor, TensorView};
use tenfold_cuda::{
    Buffer, Code, DecodeRequest, DecodeSettings, DeviceChain, EncodeRequest, Status, Stream, decode_prepared,
    decode_prepared_workspace_len, encode_prepared, encode_prepared_workspace_len,
};

use crate::Case;
use crate::common::{FLOATS, Kind, Random, Sample, to_reals};
use crate::decode::same;
use crate::device::Subject;
use crate::pages::basis;

pub fn cases() -> Vec<Case> {
    vec![
        ("chain: blobs of the CPU".into(), decoded),
        ("chain: some rows".into(), rows),
        ("chain: blobs of a device".into(), encoded),
        ("chain: goals".into(), goals),
        ("chain: what is not finite".into(), kept),
        ("chain: bases".into(), bases),
        ("chain: blocks of every size".into(), blocks),
        ("chain: on the device".into(), on_device),
        ("chain: transforms that nobody stated".into(), unstated),
        ("chain: what is refused".into(), refused),
    ]
}

fn weights(axis: Axis, len: usize, seed: u64) -> Transform {
    let mut r = Random::new(seed);
    Transform::Weights(Weights::new(axis, (0..len).map(|_| r.below(41) as i8 - 20).collect()))
}

fn means(cols: usize, seed: u64) -> Transform {
    let mut r = Random::new(seed);
    Transform::Means(Means::new(&(0..cols).map(|_| r.normal() as f32).collect::<Vec<_>>()))
}

fn rope(head: usize) -> Rope {
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
    Rope::new(head, 500_000.0).unwrap().with_scaling(llama3).unwrap()
}

/// Steps and chains of them, and whether a device gives the CPU's bits.
fn chains(rows: usize, cols: usize) -> Vec<(Vec<Transform>, bool)> {
    let listed = Positions::List(vec![5, 1 << 32, 77]);
    let neighbours = Rope::new(cols / 3, 1e4).unwrap().with_pairing(Pairing::Neighbours);
    let neighbours = neighbours.with_turned(cols / 3 / 4 * 2).unwrap().with_positions(listed).unwrap();
    let hadamard = Transform::Hadamard(Hadamard::new(5, 9).unwrap());
    let delta = Transform::Delta(Delta::new(4).unwrap());
    let turned = Transform::Rope(rope(cols / 3).with_positions(Positions::From(1000)).unwrap());
    vec![
        (vec![means(cols, 1)], true),
        (vec![weights(Axis::Columns, cols, 1), weights(Axis::Columns, cols, 2)], true),
        (vec![delta.clone()], true),
        (vec![means(cols, 2), weights(Axis::Rows, rows, 3), delta.clone()], true),
        (vec![hadamard.clone()], false),
        (vec![Transform::Dct(Dct::new(3).unwrap())], false),
        (vec![turned.clone()], false),
        (vec![Transform::Rope(neighbours)], false),
        (vec![turned, means(cols, 4), hadamard, delta, weights(Axis::Columns, cols, 5)], false),
    ]
}

/// The same for chains that a device undoes only.
fn transposed(rows: usize, cols: usize) -> Vec<(Vec<Transform>, bool)> {
    let behind = |rest: &[Transform]| [&[Transform::Transposed][..], rest].concat();
    vec![
        (behind(&[]), true),
        (behind(&[weights(Axis::Rows, cols, 6), weights(Axis::Columns, rows, 7)]), true),
        (behind(&[Transform::Delta(Delta::new(4).unwrap()), means(rows, 8)]), true),
        (behind(&[Transform::Hadamard(Hadamard::new(3, 2).unwrap())]), false),
    ]
}

fn all_chains(rows: usize, cols: usize) -> Vec<(Vec<Transform>, bool)> {
    [chains(rows, cols), transposed(rows, cols)].concat()
}

const SHAPE: [usize; 2] = [45, 84];

fn on_cpu(sample: &Sample, transforms: &[Transform], goal: Goal) -> Vec<u8> {
    let options = EncodeOptions::new(goal).with_effort(Effort::Fast).with_transforms(transforms.to_vec());
    let blob = tenfold::encode(&sample.view(), &options).unwrap();
    assert_eq!(tenfold::inspect(&blob).unwrap().codec, Codec::Levels, "{goal:?}");
    blob
}

fn names(transforms: &[Transform]) -> String {
    transforms.iter().map(Transform::name).collect::<Vec<_>>().join(" + ")
}

/// The tensor's elements, or what a device makes of it, within the bound: an element more or less in its last place, where
/// it is not small among its neighbours.
pub fn hold(found: &Tensor, wanted: &Tensor, exactly: bool, what: &str) {
    assert_eq!((found.dtype, &found.shape), (wanted.dtype, &wanted.shape), "{what}");
    if exactly {
        assert!(found.data == wanted.data, "{what}: other bits");
        return;
    }
    let (f, w) = (to_reals(found.dtype, &found.data), to_reals(wanted.dtype, &wanted.data));
    let most = w.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let (transforms, digits) = match found.dtype {
        Dtype::F64 => (-40, -52),
        Dtype::F32 => (-16, -23),
        Dtype::F16 => (-16, -10),
        Dtype::Bf16 => (-16, -7),
        Dtype::F8E4M3 => (-16, -3),
        _ => (-16, -2),
    };
    for (i, (f, w)) in f.iter().zip(&w).enumerate() {
        let same = f == w || (f.is_nan() && w.is_nan());
        let bound = most * 2f64.powi(transforms) + w.abs() * 2f64.powi(digits);
        assert!(same || (f - w).abs() <= bound, "{what}: value {i} is {f}, not {w}");
    }
}

fn decoded(subject: &Subject) {
    let options = DecodeOptions::default();
    for (i, (transforms, exactly)) in all_chains(SHAPE[0], SHAPE[1]).into_iter().enumerate() {
        for dtype in FLOATS {
            let sample = Sample::make(dtype, &SHAPE, Kind::Gaussian, i as u64);
            let sample = if i % 2 == 0 { sample.sprinkle(97, 3) } else { sample };
            let blob = on_cpu(&sample, &transforms, Goal::Bits(3.0));
            let wanted = tenfold::decode(&blob, &options).unwrap();
            let found = subject.engine().decode(&blob, &options).unwrap();
            hold(&found, &wanted, exactly, &format!("{dtype} {}", names(&transforms)));
        }
    }
}

fn rows(subject: &Subject) {
    let options = DecodeOptions::default();
    for (i, (transforms, exactly)) in all_chains(SHAPE[0], SHAPE[1]).into_iter().enumerate() {
        for dtype in [Dtype::Bf16, Dtype::F64] {
            let sample = Sample::make(dtype, &SHAPE, Kind::Outliers, i as u64).sprinkle(211, 3);
            let blob = on_cpu(&sample, &transforms, Goal::Bits(4.0));
            for range in [0..1, 7..8, 3..45, 44..45, 6..19, 45..45, 2..2] {
                let wanted = tenfold::decode_rows(&blob, range.clone(), &options).unwrap();
                let found = subject.engine().decode_rows(&blob, range.clone(), &options).unwrap();
                hold(&found, &wanted, exactly, &format!("{} rows {range:?}", names(&transforms)));
            }
        }
    }
}

/// Mean squared error over that of a tensor of zeros.
fn error(sample: &Sample, decoded: &Tensor) -> f64 {
    let (a, b) = (to_reals(sample.dtype, &sample.data), to_reals(decoded.dtype, &decoded.data));
    let finite = || a.iter().zip(&b).filter(|(a, _)| a.is_finite());
    finite().map(|(a, b)| (a - b).powi(2)).sum::<f64>() / finite().map(|(a, _)| a * a).sum::<f64>()
}

/// A blob of the engine, which the CPU reads and whose transforms are those asked for.
fn by_engine(
    subject: &Subject,
    sample: &Sample,
    transforms: &[Transform],
    options: &EncodeOptions,
) -> (Vec<u8>, Tensor) {
    let options = options.clone().with_transforms(transforms.to_vec());
    let blob = subject.engine().encode(&sample.view(), &options).unwrap();
    let info = tenfold::inspect(&blob).unwrap();
    assert_eq!((info.codec, info.dtype, &info.shape[..]), (Codec::Levels, sample.dtype, &sample.shape[..]));
    assert_eq!(names(&info.transforms[info.transforms.len() - transforms.len()..]), names(transforms));
    let decoded = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
    (blob, decoded)
}

/// A step with which a lossy blob is the smaller one.
fn step_for(dtype: Dtype) -> f64 {
    if dtype.size() == 1 { 0.6 } else { 0.05 }
}

fn encoded(subject: &Subject) {
    for (i, (transforms, exactly)) in chains(SHAPE[0], SHAPE[1]).into_iter().enumerate() {
        for dtype in FLOATS {
            let sample = Sample::make(dtype, &SHAPE, Kind::Gaussian, i as u64);
            let effort = [Effort::Fast, Effort::Balanced][i % 2];
            let options = EncodeOptions::new(Goal::Step(step_for(dtype))).with_effort(effort);
            let (blob, found) = by_engine(subject, &sample, &transforms, &options);
            let ours = tenfold::encode(&sample.view(), &options.with_transforms(transforms.clone())).unwrap();
            let wanted = tenfold::decode(&ours, &DecodeOptions::default()).unwrap();
            let (found_error, wanted_error) = (error(&sample, &found), error(&sample, &wanted));
            let what = format!("{dtype} {}, {effort:?}", names(&transforms));
            assert!(
                found_error <= wanted_error * 1.3 + 1e-7,
                "{what}: {found_error:e}, not {wanted_error:e}"
            );
            assert!(blob.len() as f64 <= ours.len() as f64 * 1.1 + 60.0, "{what}: {} bytes", blob.len());
            hold(&subject.engine().decode(&blob, &DecodeOptions::default()).unwrap(), &found, exactly, &what);
        }
    }
}

fn goals(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[120, 96], Kind::Rows, 5);
    let values = sample.len() as f64;
    let power = to_reals(sample.dtype, &sample.data).iter().map(|v| v * v).sum::<f64>() / values;
    for (transforms, _) in chains(120, 96) {
        let what = names(&transforms);
        let weighted = transforms.iter().any(|s| matches!(s, Transform::Weights(_)));
        for goal in [Goal::Bits(3.0), Goal::MaxBytes(4000), Goal::Nmse(0.01), Goal::Mse(0.01 * power)] {
            let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
            let (blob, decoded) = by_engine(subject, &sample, &transforms, &options);
            let bits = blob.len() as f64 * 8.0 / values;
            match goal {
                Goal::Bits(b) => assert!((bits / b - 1.0).abs() < 0.03, "{what}: {bits:.3} bits"),
                Goal::MaxBytes(cap) => {
                    assert!(blob.len() <= cap && blob.len() * 100 > cap * 90, "{what}: {} bytes", blob.len());
                }
                // Errors behind weights are weighted ones.
                _ if !weighted => {
                    let found = error(&sample, &decoded);
                    assert!(found < 0.0115 && found > 0.004, "{what}: {goal:?} came to {found:.5}");
                }
                _ => {}
            }
        }
    }
    // Small tensors and sizes near that of the elements are lossless, whatever the transforms; so is what is asked to be.
    for (shape, goal) in
        [([3, 4], Goal::Bits(2.0)), ([64, 64], Goal::Ratio(1.05)), ([64, 64], Goal::Lossless)]
    {
        let sample = Sample::make(Dtype::Bf16, &shape, Kind::Gaussian, 1);
        let options = EncodeOptions::new(goal).with_transforms(vec![means(shape[1], 1)]);
        let blob = subject.engine().encode(&sample.view(), &options).unwrap();
        assert_eq!(tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data, sample.data);
    }
}

/// The default: means, found on a few rows of the tensor and undone where levels are decoded.
fn unstated(subject: &Subject) {
    let (rows, cols) = (620, 130);
    let reals = |i: usize, v: f64| v + (i % cols * 37 % cols) as f64 * 0.2;
    let reals: Vec<f64> = Kind::Gaussian
        .reals(rows * cols, cols, 5)
        .into_iter()
        .enumerate()
        .map(|(i, v)| reals(i, v))
        .collect();
    let encode = |sample: &Sample, options: &EncodeOptions| {
        let blob = subject.engine().encode(&sample.view(), options).unwrap();
        same(subject, &blob, &sample.name());
        let decoded = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
        (tenfold::inspect(&blob).unwrap().transforms, error(sample, &decoded))
    };
    for dtype in FLOATS {
        let sample = Sample::new(dtype, &[rows, cols], &reals);
        let options = EncodeOptions::new(Goal::Bits(2.5));
        let (transforms, found) = encode(&sample, &options);
        assert!(matches!(transforms[..], [Transform::Means(_)]), "{dtype}: {} transforms", transforms.len());
        let (transforms, plain) = encode(&sample, &options.clone().with_prepare(Preparation::None));
        // Rounding to a grid as coarse as that of f8_e5m2 takes most errors back, with means and without.
        let most = if dtype == Dtype::F8E5M2 { 1e-4 } else { plain / 2.0 };
        assert!(transforms.is_empty() && found < most, "{dtype}: {found:.5}, {plain:.5} without means");
        let (transforms, _) = encode(&sample, &options.clone().with_effort(Effort::Fast));
        assert!(transforms.is_empty());
        // What is not finite is not worth a chain that nobody asked for.
        let (transforms, _) = encode(&sample.sprinkle(5000, 4), &options);
        assert!(transforms.is_empty());
    }
    // So many columns that their means leave little room, or none, for tables.
    for cols in [12_000, 40_000, 65_000, 70_000] {
        let sample = Sample::make(Dtype::Bf16, &[4, cols], Kind::Rows, 3);
        let options = EncodeOptions::new(Goal::Bits(2.5)).with_transforms(vec![means(cols, 1)]);
        same(subject, &tenfold::encode(&sample.view(), &options).unwrap(), &sample.name());
    }
    let sample = Sample::new(Dtype::Bf16, &[rows, cols], &reals);
    let (transforms, found) = encode(&sample, &EncodeOptions::new(Goal::Nmse(1e-3)));
    assert!(matches!(transforms[..], [Transform::Means(_)]) && found <= 1e-3, "{found:.6}");
}

fn kept(subject: &Subject) {
    for dtype in FLOATS {
        let sample = Sample::make(dtype, &SHAPE, Kind::Gaussian, 3).sprinkle(50, 4);
        let reals = to_reals(dtype, &sample.data);
        for (transforms, _) in chains(SHAPE[0], SHAPE[1]) {
            let options = EncodeOptions::new(Goal::Step(step_for(dtype))).with_effort(Effort::Fast);
            let (_, decoded) = by_engine(subject, &sample, &transforms, &options);
            for (a, b) in reals.iter().zip(to_reals(dtype, &decoded.data)) {
                let same = (a.is_nan() && b.is_nan()) || (a.is_infinite() && *a == b);
                assert!(same || (a.is_finite() && b.is_finite()), "{dtype}: {b} for {a}");
            }
        }
    }
    // Weights that throw a value out of range leave no more than a lossless blob.
    let sample = Sample::new(Dtype::F32, &[16, 32], &[1e38; 512]);
    let transforms = vec![Transform::Weights(Weights::new(Axis::Columns, vec![120; 32]))];
    let options = EncodeOptions::new(Goal::Step(1.0)).with_transforms(transforms);
    let blob = subject.engine().encode(&sample.view(), &options).unwrap();
    assert_eq!(tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data, sample.data);
}

fn bases(subject: &Subject) {
    let (rows, cols) = (64, 48);
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        for (rank, scaled) in [(48, true), (20, false), (20, true)] {
            let basis = basis(cols, rank, scaled, 1);
            let mut r = Random::new(3);
            let mut reals = Vec::new();
            for _ in 0..rows {
                let mut row: Vec<f64> = basis.means().iter().map(|&m| f64::from(m)).collect();
                for k in 0..rank {
                    let c = r.normal() * (-4.0 * k as f64 / rank as f64).exp2();
                    row.iter_mut().zip(basis.vector(k)).for_each(|(v, &b)| *v += c * f64::from(b));
                }
                row.iter_mut().for_each(|v| *v += 0.01 * r.normal());
                reals.extend(row);
            }
            let sample = Sample::new(dtype, &[rows, cols], &reals);
            let turned = Transform::Rope(rope(16));
            for (transforms, goal) in [
                (vec![Transform::Basis(Rotation::named(&basis))], Goal::Step(0.05)),
                (vec![Transform::Basis(Rotation::embedded(&basis))], Goal::Step(0.05)),
                (vec![turned, Transform::Basis(Rotation::named(&basis)), means(rank, 7)], Goal::Step(0.05)),
                (vec![Transform::Basis(Rotation::named(&basis))], Goal::Nmse(0.01)),
            ] {
                let known = DecodeOptions::default().with_bases(vec![basis.clone()]);
                let options =
                    EncodeOptions::new(goal).with_effort(Effort::Fast).with_transforms(transforms.clone());
                let ours = tenfold::encode(&sample.view(), &options).unwrap();
                let what = format!("{dtype}, {rank} vectors, {}, {goal:?}", names(&transforms));
                if tenfold::inspect(&ours).unwrap().codec != Codec::Levels {
                    continue;
                }
                let wanted = tenfold::decode(&ours, &known).unwrap();
                hold(&subject.engine().decode(&ours, &known).unwrap(), &wanted, false, &what);
                let blob = subject.engine().encode(&sample.view(), &options).unwrap();
                assert_eq!(tenfold::inspect(&blob).unwrap().transforms.len(), transforms.len(), "{what}");
                let found = tenfold::decode(&blob, &known).unwrap();
                let (found_error, wanted_error) = (error(&sample, &found), error(&sample, &wanted));
                assert!(
                    found_error <= wanted_error * 1.3 + 1e-6,
                    "{what}: {found_error:e}, not {wanted_error:e}"
                );
                if matches!(transforms[..], [Transform::Basis(ref b)] if !b.is_embedded()) {
                    for engine in [true, false] {
                        let options = DecodeOptions::default();
                        let found = match engine {
                            true => subject.engine().decode(&blob, &options),
                            false => tenfold::decode(&blob, &options),
                        };
                        assert!(matches!(found, Err(Error::MissingBasis { .. })));
                    }
                }
            }
        }
    }
}

fn blocks(subject: &Subject) {
    let widths: &[usize] = if subject.is_real() {
        &[1, 2, 3, 31, 33, 100, 4096, 16_384, 20_001]
    } else {
        &[1, 2, 3, 31, 33, 100, 2500]
    };
    for &cols in widths {
        let rows = (4000 / cols).max(2);
        for dtype in [Dtype::F32, Dtype::F64] {
            let sample = Sample::make(dtype, &[rows, cols], Kind::Gaussian, cols as u64);
            let mut transforms: Vec<Transform> =
                [1, 2, 5, 7, 11, 14].map(|log| Transform::Hadamard(Hadamard::new(log, 3).unwrap())).to_vec();
            transforms.extend([2, 3, 4, 5].map(|log| Transform::Dct(Dct::new(log).unwrap())));
            for step in transforms {
                let transforms = vec![step];
                let blob = on_cpu(&sample, &transforms, Goal::Step(0.2));
                let wanted = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
                let found = subject.engine().decode(&blob, &DecodeOptions::default()).unwrap();
                hold(&found, &wanted, false, &format!("{dtype}, {cols} columns, {:?}", transforms[0]));
                if dtype == Dtype::F64 {
                    continue;
                }
                let options = EncodeOptions::new(Goal::Step(0.2)).with_effort(Effort::Fast);
                let (_, found) = by_engine(subject, &sample, &transforms, &options);
                let off = error(&sample, &found);
                assert!(off < 0.02, "{dtype}, {cols} columns, {:?}: {off}", transforms[0]);
            }
        }
    }
}

/// Without the engine: memory of the device, a chain, one call each.
fn on_device(subject: &Subject) {
    let device = subject.device();
    let sample = Sample::make(Dtype::Bf16, &SHAPE, Kind::Gaussian, 8);
    let transforms = chains(SHAPE[0], SHAPE[1]).pop().unwrap().0;
    let chain = DeviceChain::new(device, sample.dtype, &sample.shape, &transforms).unwrap();
    let tensor = Buffer::from_slice(device, &sample.data).unwrap();
    let blob =
        Buffer::new(device, tenfold::format::max_encoded_len(sample.dtype, &sample.shape).unwrap()).unwrap();
    let status = Buffer::new(device, 16).unwrap();
    let said = |buffer: &Buffer| {
        let mut bytes = [0; 16];
        buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
        Status::from_bytes(bytes)
    };
    let request = |goal: Goal| {
        let options = EncodeOptions::new(goal).with_effort(Effort::Fast);
        EncodeRequest::new(tensor.slice(), sample.dtype, &sample.shape, blob.slice(), options)
    };
    let good = request(Goal::Bits(4.0));
    let workspace = Buffer::new(device, encode_prepared_workspace_len(&chain, &good).unwrap()).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe {
        encode_prepared(&chain, &good, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap();
    }
    said(&status).check().unwrap();
    let mut bytes = vec![0; said(&status).size as usize];
    blob.read(&mut bytes, Stream::DEFAULT).unwrap();
    let wanted = tenfold::decode(&bytes, &DecodeOptions::default()).unwrap();

    // To another dtype, and some values alone.
    let held = Buffer::from_slice(device, &bytes).unwrap();
    let decode = |chain: &DeviceChain, dtype: Dtype, first: u64, count: u64| {
        let out = Buffer::new(device, count as usize * dtype.size()).unwrap();
        let request = DecodeRequest::new(held.slice(), out.slice(), dtype).with_values(first, count);
        let workspace = Buffer::new(device, decode_prepared_workspace_len(chain, &request).unwrap()).unwrap();
        let settings = DecodeSettings::default();
        // SAFETY: as above.
        unsafe {
            let (status, workspace) = (status.slice(), workspace.slice());
            decode_prepared(chain, &request, &settings, status, workspace, Stream::DEFAULT).unwrap();
        }
        let mut data = vec![0; count as usize * dtype.size()];
        out.read(&mut data, Stream::DEFAULT).unwrap();
        (said(&status), to_reals(dtype, &data))
    };
    let reals = to_reals(Dtype::Bf16, &wanted.data);
    for (first, count) in [(0, reals.len()), (100, 333), (reals.len() - 1, 1), (84, 84), (0, 0)] {
        let (said, found) = decode(&chain, Dtype::F32, first as u64, count as u64);
        said.check().unwrap();
        for (f, w) in found.iter().zip(&reals[first..first + count]) {
            assert!((f - w).abs() <= w.abs() / 128.0 + 1e-3, "{f}, not {w}");
        }
    }
    // A chain with other numbers, and one with fewer transforms.
    let mut other = transforms.clone();
    other[1] = means(SHAPE[1], 99);
    for transforms in [&other[..], &transforms[..1], &[]] {
        let chain = DeviceChain::new(device, sample.dtype, &sample.shape, transforms).unwrap();
        let (said, _) = decode(&chain, Dtype::F32, 0, reals.len() as u64);
        assert_eq!(said.code, Code::OtherSteps as u32);
        assert_eq!(said.check().unwrap_err().kind(), ErrorKind::Caller);
    }
    // What only a look at the tensor tells.
    let orthonormal = basis(SHAPE[1], 20, false, 1);
    let short = [Transform::Basis(Rotation::named(&orthonormal))];
    let short = DeviceChain::new(device, sample.dtype, &sample.shape, &short).unwrap();
    let plain = DeviceChain::new(device, sample.dtype, &sample.shape, &transforms[..1]).unwrap();
    let room = workspace.slice();
    for (chain, goal) in [(&plain, Goal::Nmse(0.01)), (&short, Goal::Mse(0.01))] {
        // SAFETY: as above.
        let made = unsafe { encode_prepared(chain, &request(goal), status.slice(), room, Stream::DEFAULT) };
        assert_eq!(made.unwrap_err().kind(), ErrorKind::Caller);
    }
}

fn refused(subject: &Subject) {
    let sample = Sample::make(Dtype::F32, &[16, 24], Kind::Gaussian, 1);
    let foreign: Arc<Basis> = basis(20, 5, false, 1);
    for transforms in [
        vec![means(20, 1)],
        vec![weights(Axis::Rows, 24, 1)],
        vec![Transform::Rope(rope(10))],
        vec![Transform::Basis(Rotation::named(&foreign))],
        vec![Transform::Delta(Delta::new(2).unwrap()), Transform::Delta(Delta::new(2).unwrap())],
    ] {
        let options = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(transforms.clone());
        let wanted = tenfold::encode(&sample.view(), &options).unwrap_err();
        assert_eq!(subject.engine().encode(&sample.view(), &options).unwrap_err(), wanted);
        let error = DeviceChain::new(subject.device(), sample.dtype, &sample.shape, &transforms).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
    }
    // A transposition is undone only.
    let turned = EncodeOptions::new(Goal::Bits(3.0)).with_transforms(vec![Transform::Transposed]);
    let error = subject.engine().encode(&sample.view(), &turned).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(subject.engine().can_encode(sample.dtype, &turned).is_err());
    // Damage behind the transforms is found as it is elsewhere.
    let transforms = vec![means(24, 1), Transform::Hadamard(Hadamard::new(3, 1).unwrap())];
    let good = on_cpu(&sample, &transforms, Goal::Bits(3.0));
    let view: TensorView<'_> = sample.view();
    assert_eq!(subject.engine().decode(&good, &DecodeOptions::default()).unwrap().shape, view.shape());
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let options = DecodeOptions::default();
        let (found, wanted) = (subject.engine().decode(&bad, &options), tenfold::decode(&bad, &options));
        assert_eq!(found.is_err(), wanted.is_err(), "byte {at}");
    }
    for len in (0..good.len()).step_by(11) {
        assert!(subject.engine().decode(&good[..len], &DecodeOptions::default()).is_err(), "{len} bytes");
    }
}
