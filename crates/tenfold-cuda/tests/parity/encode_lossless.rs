//! Lossless blobs made on a device: the CPU reads them back to the same bytes, and they are as small as its own.

use tenfold::engine::{Engine, ErrorKind};
use tenfold::{DecodeOptions, Dtype, EncodeOptions, Error, Goal};
use tenfold_cuda::{Buffer, DeviceSlice, EncodeRequest, Status, Stream, encode, encode_workspace_len};

use crate::Case;
use crate::common::{KINDS, Kind, Random, Sample};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("lossless: every dtype".into(), dtypes),
        ("lossless: every shape".into(), shapes),
        ("lossless: every kind of values".into(), kinds),
        ("lossless: tiles that differ".into(), mixed),
        ("lossless: more tiles than a block adds up at once".into(), many_tiles),
        ("lossless: tensors large enough to be sampled".into(), large),
        ("lossless: real tensors".into(), real),
        ("lossless: buffers that are too small".into(), too_small),
        ("lossless: arguments that make no sense".into(), refused),
    ]
}

fn options(lane: u32) -> EncodeOptions {
    EncodeOptions::new(Goal::Lossless).with_lane_values(lane)
}

/// Encodes on the device and on the CPU; the device's blob decodes to the input and is about as small.
fn same(subject: &Subject, sample: &Sample, lane: u32, what: &str) -> Vec<u8> {
    let what = format!("{} {what}, lanes of {lane}", sample.name());
    let blob = subject.engine().encode(&sample.view(), &options(lane));
    let blob = blob.unwrap_or_else(|e| panic!("{what}: {e}"));
    let back = tenfold::decode(&blob, &DecodeOptions::default());
    let back = back.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!((back.dtype, &back.shape), (sample.dtype, &sample.shape), "{what}");
    if back.data != sample.data {
        let at = back.data.iter().zip(&sample.data).position(|(a, b)| a != b);
        panic!("{what}: byte {at:?} differs");
    }
    let wanted = tenfold::encode(&sample.view(), &options(lane)).unwrap().len();
    let most = wanted as f64 * 1.003 + 64.0;
    assert!(blob.len() as f64 <= most, "{what}: {} bytes, {wanted} on the CPU", blob.len());
    blob
}

fn dtypes(subject: &Subject) {
    for (seed, dtype) in Dtype::ALL.into_iter().enumerate() {
        for (shape, lane) in [(&[9usize][..], 0), (&[64, 100], 32), (&[10_003], 0), (&[10_003], 64)] {
            let noise = Sample::noise(dtype, shape, seed as u64);
            same(subject, &noise, lane, "noise");
            let sample = match dtype.is_float() {
                true => Sample::make(dtype, shape, Kind::Gaussian, seed as u64).sprinkle(50, 1),
                // Small numbers: the upper planes are zero, the lowest is worth coding.
                false => {
                    let mut sample = noise;
                    let most = if dtype == Dtype::Bool { 1 } else { 15 };
                    for element in sample.data.chunks_exact_mut(dtype.size()) {
                        element[0] &= most;
                        element[1..].fill(0);
                    }
                    sample
                }
            };
            same(subject, &sample, lane, "values");
        }
    }
}

fn shapes(subject: &Subject) {
    let deep = [1, 2, 1, 3, 1, 1, 1, 5, 1, 1, 7, 1, 1, 2, 1, 1];
    let shapes: &[&[usize]] = &[
        &[],
        &[0],
        &[3, 0, 5],
        &[1],
        &[3],
        &[31, 1],
        &[255],
        &[256],
        &[257],
        &[511],
        &[17, 61],
        &[8191],
        &deep,
    ];
    for shape in shapes {
        for dtype in [Dtype::U8, Dtype::Bf16, Dtype::F64] {
            for lane in [0, 32, 65_536] {
                let kind = if dtype.is_float() { Kind::Laplace } else { Kind::Ramp };
                let sample = match dtype {
                    Dtype::U8 => Sample::noise(dtype, shape, 3),
                    _ => Sample::make(dtype, shape, kind, 3),
                };
                same(subject, &sample, lane, "");
            }
        }
    }
    // Too many bytes if the zero were not there.
    let huge = Sample { dtype: Dtype::F32, shape: vec![usize::MAX, 0, usize::MAX], data: Vec::new() };
    same(subject, &huge, 0, "");
}

fn kinds(subject: &Subject) {
    for (seed, kind) in KINDS.into_iter().enumerate() {
        for dtype in [Dtype::Bf16, Dtype::F32] {
            let sample = Sample::make(dtype, &[41, 200], kind, seed as u64);
            same(subject, &sample, 0, &format!("{kind:?}"));
            same(subject, &sample, 32, &format!("{kind:?}"));
        }
    }
}

/// A table that suits most tiles and does not suit others at all: those are stored.
fn mixed(subject: &Subject) {
    let mut r = Random::new(5);
    for odd in [1usize, 3, 4] {
        let tile = |t: usize, r: &mut Random| match t {
            t if t == odd => r.bytes(2048),
            // Few values, but not one alone.
            t if t % 3 == 0 => (0..2048).map(|i| 200 + (r.below(40 + i % 2) == 0) as u8).collect(),
            t => vec![t as u8; 2048],
        };
        let mut data: Vec<u8> = (0..8).flat_map(|t| tile(t, &mut r)).collect();
        let sample = |dtype, data: Vec<u8>, size| Sample { dtype, shape: vec![data.len() / size], data };
        same(subject, &sample(Dtype::U8, data.clone(), 1), 64, "mixed");
        same(subject, &sample(Dtype::F16, data.clone(), 2), 32, "mixed");
        data.truncate(8 * 2048 - 16);
        same(subject, &sample(Dtype::F8E4M3, data.clone(), 1), 64, "mixed");
        same(subject, &sample(Dtype::I64, data, 8), 32, "mixed");
    }
}

fn many_tiles(subject: &Subject) {
    let mut r = Random::new(6);
    let mut data = Vec::new();
    for t in 0..8300usize {
        // No byte is frequent on the whole, so that nothing is coded and this is quick.
        match t % 3 {
            0 => data.extend(r.bytes(1024)),
            _ => data.extend(std::iter::repeat_n(t as u8, 1024)),
        }
    }
    data.truncate(data.len() - 77);
    let sample = Sample { dtype: Dtype::U8, shape: vec![data.len()], data };
    same(subject, &sample, 32, "many tiles");
}

fn large(subject: &Subject) {
    let n = (64 << 20) / 2 + 1001;
    // Values repeat, or making them would take longer than the test.
    let few = Sample::make(Dtype::Bf16, &[100_003], Kind::Gaussian, 7);
    let data: Vec<u8> = few.data.iter().copied().cycle().take(n * 2).collect();
    let mut sample = Sample { dtype: Dtype::Bf16, shape: vec![n], data };
    same(subject, &sample, 0, "large");
    // A byte that is in no sample.
    sample.data[2 * 40 * 256 + 600..][..2].copy_from_slice(&[0xff, 0x7f]);
    same(subject, &sample, 0, "large, with a rare byte");
    // One that is so in a plane that is otherwise one byte throughout.
    for element in sample.data.chunks_exact_mut(2) {
        element[1] = 3;
    }
    sample.data[2 * 40 * 256 + 601] = 4;
    same(subject, &sample, 0, "large, one plane almost constant");
}

fn real(subject: &Subject) {
    for (name, sample) in crate::common::real_tensors() {
        // A part is enough for an emulator.
        let rows = if subject.is_real() { usize::MAX } else { 1 << 16 } / sample.dtype.size();
        let keep = sample.len().min(rows);
        let data = sample.data[..keep * sample.dtype.size()].to_vec();
        let sample = Sample { dtype: sample.dtype, shape: vec![keep], data };
        let blob = same(subject, &sample, 0, &name);
        let back = subject.engine().decode(&blob, &DecodeOptions::default()).unwrap();
        assert!(back.data == sample.data, "{name}: decoded on the device");
    }
}

/// Encodes into `room` bytes of a longer buffer with `work` bytes of workspace; returns what the device said and the
/// whole buffer.
fn into(
    subject: &Subject,
    sample: &Sample,
    room: usize,
    work: usize,
) -> (tenfold_cuda::Result<Status>, Vec<u8>) {
    let device = subject.device();
    let tensor = Buffer::from_slice(device, &sample.data).unwrap();
    let out = Buffer::from_slice(device, &vec![0xa5; room + 4096]).unwrap();
    let status = Buffer::new(device, 16).unwrap();
    let part = DeviceSlice::new(out.slice().address, room);
    let request = EncodeRequest::new(tensor.slice(), sample.dtype, &sample.shape, part, options(32));
    let need = encode_workspace_len(device, &request).unwrap();
    let workspace = Buffer::new(device, need.min(work)).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    let queued = unsafe { encode(device, &request, status.slice(), workspace.slice(), Stream::DEFAULT) };
    let mut said = [0; 16];
    status.read(&mut said, Stream::DEFAULT).unwrap();
    let mut bytes = vec![0; room + 4096];
    out.read(&mut bytes, Stream::DEFAULT).unwrap();
    (queued.map(|()| Status::from_bytes(said)), bytes)
}

fn too_small(subject: &Subject) {
    let sample = Sample::make(Dtype::Bf16, &[50, 100], Kind::Gaussian, 1);
    let most = tenfold::format::max_encoded_len(sample.dtype, &sample.shape).unwrap();
    let (said, whole) = into(subject, &sample, most, usize::MAX);
    let said = said.unwrap();
    said.check().unwrap();
    let need = said.size as usize;
    for room in [0, 1, 11, 16, 300, need - 16, need - 1] {
        let (said, bytes) = into(subject, &sample, room, usize::MAX);
        let error = said.unwrap().check().unwrap_err();
        assert!(
            matches!(error, Error::BufferTooSmall { need: n, .. } if n == need as u64),
            "{room}: {error}"
        );
        assert!(bytes[room..].iter().all(|&b| b == 0xa5), "{room} bytes of room: written past them");
    }
    let (said, bytes) = into(subject, &sample, need, usize::MAX);
    said.unwrap().check().unwrap();
    assert!(bytes[..need] == whole[..need] && bytes[need..].iter().all(|&b| b == 0xa5));
    let (said, bytes) = into(subject, &sample, most, 1000);
    assert_eq!(said.unwrap_err().kind(), ErrorKind::Caller);
    assert!(bytes.iter().all(|&b| b == 0xa5));
}

fn refused(subject: &Subject) {
    let device = subject.device();
    let memory = Buffer::new(device, 4096).unwrap();
    let (at, bytes) = (memory.slice().address, 1024);
    let request = |address, len, shape: &[usize], out| {
        let tensor = DeviceSlice::new(address, len);
        EncodeRequest::new(tensor, Dtype::F32, shape, DeviceSlice::new(out, bytes), options(0))
    };
    for (request, why) in [
        (request(at, 1020, &[256], at + 2048), "fewer bytes than the shape has"),
        (request(at, 1028, &[256], at + 2048), "more bytes than the shape has"),
        (request(at, 0, &[usize::MAX, 2], at + 2048), "a shape that overflows"),
        (request(at, 4, &[1; 17], at + 2048), "too many dimensions"),
        (request(at + 4, 1024, &[256], at + 2048), "a tensor off its alignment"),
        (request(at, 1024, &[256], at + 2052), "a blob off its alignment"),
    ] {
        let error = encode_workspace_len(device, &request).expect_err(why);
        assert_eq!(error.kind(), ErrorKind::Caller, "{why}");
    }
    let mut bad = request(at, 1024, &[256], at + 2048);
    bad.options = options(31);
    assert_eq!(encode_workspace_len(device, &bad).unwrap_err().kind(), ErrorKind::Caller);
    for (asked, why) in [
        (options(0).with_residual(Goal::Bits(3.0)), "layers"),
        (EncodeOptions::new(Goal::RoundToNearest { bits: 8 }), "nearest"),
    ] {
        bad.options = asked;
        let error = encode_workspace_len(device, &bad).unwrap_err();
        assert!(error.kind() == ErrorKind::Caller && error.to_string().contains(why), "{error}");
    }
}
