//! Batches: every blob is the one that its tensor alone becomes, whatever its neighbours are.

use tenfold::{Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{
    Buffer, DeviceSlice, EncodeBatch, EncodeRequest, Status, Stream, encode, encode_batch,
    encode_batch_workspace_len, encode_workspace_len,
};

use crate::Case;
use crate::common::{Kind, Sample, decode};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("batch: the blobs of single tensors".into(), same),
        ("batch: one part after the other".into(), parts),
        ("batch: caps are kept to, or refused".into(), caps),
        ("batch: strides and slots".into(), strides),
        ("batch: many pages".into(), many),
        ("batch: arguments that make no sense".into(), arguments),
    ]
}

/// A blob or what was said instead.
type Made = Result<Vec<u8>, String>;

fn status(bytes: &[u8]) -> tenfold::engine::Result<u64> {
    let status = Status::from_bytes(bytes.try_into().unwrap());
    status.check().map(|()| status.size)
}

/// Each tensor alone.
fn alone(subject: &Subject, sample: &Sample, slot: usize, options: &EncodeOptions) -> Made {
    let device = subject.device();
    let tensor = Buffer::from_slice(device, &sample.data).unwrap();
    let (out, said) = (Buffer::new(device, slot).unwrap(), Buffer::new(device, 16).unwrap());
    let request =
        EncodeRequest::new(tensor.slice(), sample.dtype, &sample.shape, out.slice(), options.clone());
    let workspace = Buffer::new(device, encode_workspace_len(device, &request).unwrap()).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe { encode(device, &request, said.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
    let mut bytes = [0; 16];
    said.read(&mut bytes, Stream::DEFAULT).unwrap();
    let len = status(&bytes).map_err(|e| e.to_string())? as usize;
    let mut blob = vec![0; slot];
    out.read(&mut blob, Stream::DEFAULT).unwrap();
    blob.truncate(len);
    Ok(blob)
}

/// All of them at once, with gaps between tensors; `share` is the part of the whole workspace that is given.
fn together(
    subject: &Subject,
    samples: &[Sample],
    gap: usize,
    slot: usize,
    options: &EncodeOptions,
    share: f64,
) -> Vec<Made> {
    let device = subject.device();
    let stride = samples[0].data.len().next_multiple_of(16) + gap;
    let mut data = vec![0x5a; stride * samples.len()];
    for (i, s) in samples.iter().enumerate() {
        data[i * stride..i * stride + s.data.len()].copy_from_slice(&s.data);
    }
    let tensors = Buffer::from_slice(device, &data).unwrap();
    let blobs = Buffer::from_slice(device, &vec![0xa5; slot * samples.len()]).unwrap();
    let said = Buffer::new(device, 16 * samples.len()).unwrap();
    let (dtype, shape) = (samples[0].dtype, &samples[0].shape);
    let batch =
        EncodeBatch::new(samples.len(), tensors.slice(), dtype, shape, blobs.slice(), options.clone())
            .with_tensor_stride(stride)
            .with_slot(slot);
    let one = EncodeRequest::new(
        DeviceSlice::new(tensors.slice().address, samples[0].data.len()),
        dtype,
        shape,
        DeviceSlice::new(blobs.slice().address, slot),
        options.clone(),
    );
    let least = encode_workspace_len(device, &one).unwrap().next_multiple_of(256);
    let len = (encode_batch_workspace_len(device, &batch).unwrap() as f64 * share) as usize;
    let workspace = Buffer::new(device, len.max(least)).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe { encode_batch(device, &batch, said.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
    let mut bytes = vec![0; 16 * samples.len()];
    said.read(&mut bytes, Stream::DEFAULT).unwrap();
    let mut out = vec![0; slot * samples.len()];
    blobs.read(&mut out, Stream::DEFAULT).unwrap();
    let blob = |(i, s): (usize, &[u8])| match status(s) {
        Ok(len) => {
            let room = &out[i * slot..(i + 1) * slot];
            Ok(room[..len as usize].to_vec())
        }
        Err(e) => Err(e.to_string()),
    };
    bytes.chunks(16).enumerate().map(blob).collect()
}

/// Zeros, constants, what is not finite, and noise of all kinds, in one batch.
fn mixed(dtype: Dtype, shape: &[usize], count: usize) -> Vec<Sample> {
    let kinds = [
        Kind::Gaussian,
        Kind::Sparse,
        Kind::Rows,
        Kind::Outliers,
        Kind::Constant,
        Kind::HeavyTails,
        Kind::Laplace,
    ];
    let sample = |i: usize| {
        let s = Sample::make(dtype, shape, kinds[i % kinds.len()], i as u64);
        match i % 5 {
            1 => Sample { data: vec![0; s.data.len()], ..s },
            2 => s.sprinkle(97, 2),
            4 => s.sprinkle(3, 2),
            _ => s,
        }
    };
    (0..count).map(sample).collect()
}

fn compare(subject: &Subject, samples: &[Sample], slot: usize, options: &EncodeOptions, share: f64) {
    let made = together(subject, samples, 48, slot, options, share);
    for (i, (sample, made)) in samples.iter().zip(made).enumerate() {
        let what = format!("{i} of {}, {} {:?}", samples.len(), sample.name(), options.goal);
        let wanted = alone(subject, sample, slot, options);
        assert_eq!(made.is_ok(), wanted.is_ok(), "{what}: {made:?}, {wanted:?}");
        assert!(made == wanted, "{what}: another blob than alone");
        let Ok(blob) = made else { continue };
        let found = decode(&blob).data;
        match options.goal {
            Goal::Lossless => assert!(found == sample.data, "{what}: other bits"),
            _ => assert_eq!(found.len(), sample.data.len()),
        }
        if let Goal::MaxBytes(cap) = options.goal {
            assert!(blob.len() <= cap, "{what}: {} bytes, {cap} at most", blob.len());
        }
    }
}

fn options(goal: Goal, effort: Effort) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(effort)
}

fn same(subject: &Subject) {
    let shape = [24, 128];
    let bytes = shape.iter().product::<usize>();
    let cases = [
        (Dtype::Bf16, Goal::MaxBytes(bytes / 4), Effort::Balanced),
        (Dtype::Bf16, Goal::Bits(3.0), Effort::Fast),
        (Dtype::F32, Goal::Step(0.05), Effort::Balanced),
        (Dtype::F32, Goal::MaxBytes(bytes / 2), Effort::Fast),
        (Dtype::F16, Goal::MaxBytes(bytes / 3), Effort::Best),
        (Dtype::F64, Goal::Bits(2.0), Effort::Balanced),
        (Dtype::Bf16, Goal::Lossless, Effort::Fast),
        (Dtype::F32, Goal::Lossless, Effort::Balanced),
    ];
    for (dtype, goal, effort) in cases {
        compare(subject, &mixed(dtype, &shape, 7), bytes * 16, &options(goal, effort), 1.0);
    }
    // So small that they are lossless.
    compare(subject, &mixed(Dtype::F32, &[8, 4], 4), 1024, &options(Goal::Bits(2.0), Effort::Fast), 1.0);
}

fn parts(subject: &Subject) {
    let samples = mixed(Dtype::Bf16, &[16, 64], 9);
    for share in [0.0, 0.3, 0.7] {
        compare(subject, &samples, 8192, &options(Goal::MaxBytes(600), Effort::Balanced), share);
    }
}

fn caps(subject: &Subject) {
    let shape = [64, 96];
    let samples = mixed(Dtype::Bf16, &shape, 10);
    for cap in [120, 400, 1500, 4000] {
        // A slot that is the cap itself: what does not fit is noticed before it is written.
        for slot in [cap / 16 * 16, 1 << 15] {
            compare(subject, &samples, slot, &options(Goal::MaxBytes(cap), Effort::Fast), 1.0);
        }
    }
}

fn strides(subject: &Subject) {
    let samples = mixed(Dtype::F32, &[20, 40], 3);
    for gap in [0, 16, 4096] {
        let made = together(subject, &samples, gap, 1 << 14, &options(Goal::Bits(3.0), Effort::Fast), 1.0);
        for (sample, made) in samples.iter().zip(made) {
            assert_eq!(made, alone(subject, sample, 1 << 14, &options(Goal::Bits(3.0), Effort::Fast)));
        }
    }
}

/// Pages as a cache has them, thousands on a real device.
fn many(subject: &Subject) {
    let (shape, count) = if subject.is_real() { ([64, 1024], 300) } else { ([64, 128], 4) };
    let samples = mixed(Dtype::Bf16, &shape, count);
    let values = shape[0] * shape[1];
    for effort in [Effort::Fast, Effort::Balanced] {
        compare(subject, &samples, values, &options(Goal::MaxBytes(values / 4), effort), 1.0);
    }
}

fn arguments(subject: &Subject) {
    let device = subject.device();
    let memory = Buffer::new(device, 1 << 16).unwrap();
    let (slice, said) = (memory.slice(), Buffer::new(device, 16 * 4).unwrap());
    let at = |from: usize, len: usize| DeviceSlice::new(slice.address + from as u64, len);
    let batch = |goal| {
        EncodeBatch::new(4, at(0, 16384), Dtype::F32, &[32, 32], at(16384, 16384), EncodeOptions::new(goal))
    };
    let good = batch(Goal::Bits(2.0));
    encode_batch_workspace_len(device, &good).unwrap();
    let workspace = Buffer::new(device, encode_batch_workspace_len(device, &good).unwrap()).unwrap();
    let fails = |b: &EncodeBatch, said: DeviceSlice, workspace: DeviceSlice| {
        // SAFETY: all of it is ours; nothing is queued that would use it.
        unsafe { encode_batch(device, b, said, workspace, Stream::DEFAULT).unwrap_err() };
    };
    fails(&good.clone().with_tensor_stride(4095), said.slice(), workspace.slice());
    fails(&good.clone().with_tensor_stride(1024), said.slice(), workspace.slice());
    fails(&good.clone().with_tensor_stride(8192), said.slice(), workspace.slice());
    fails(&good.clone().with_slot(1000), said.slice(), workspace.slice());
    fails(&good.clone().with_slot(8192), said.slice(), workspace.slice());
    fails(&good, DeviceSlice::new(said.slice().address, 48), workspace.slice());
    fails(&good, said.slice(), DeviceSlice::new(workspace.slice().address, 4096));
    let mut none = good.clone();
    none.count = 0;
    // SAFETY: as above.
    unsafe { encode_batch(device, &none, said.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
}
