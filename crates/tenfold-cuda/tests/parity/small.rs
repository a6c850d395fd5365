//! Many small blobs at once, which have a kernel of their own: each decodes to the CPU's bits, and damage stays where it is.

use tenfold::{DecodeOptions, Dtype, Effort, EncodeOptions, Goal};
use tenfold_cuda::{
    Buffer, DecodeRequest, DecodeSettings, DeviceSlice, Status, Stream, decode, decode_workspace_len,
};

use crate::Case;
use crate::common::{Kind, Sample, seal};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("small blobs: every kind at once".into(), every_kind),
        ("small blobs: flipped bits".into(), flips),
        ("small blobs: flipped bits behind fresh checksums".into(), sealed_flips),
    ]
}

/// Blobs to what their statuses say and their bytes.
fn decode_all(
    subject: &Subject,
    blobs: &[Vec<u8>],
    dtype: Dtype,
    lens: &[usize],
) -> Vec<Result<Vec<u8>, tenfold::Error>> {
    let device = subject.device();
    let held: Vec<Buffer> = blobs.iter().map(|b| Buffer::from_slice(device, b).unwrap()).collect();
    let outs: Vec<Buffer> =
        lens.iter().map(|&len| Buffer::from_slice(device, &vec![0xa5; len]).unwrap()).collect();
    let slice = |b: &Buffer, len: usize| DeviceSlice::new(b.slice().address, len);
    let requests: Vec<DecodeRequest> = (0..blobs.len())
        .map(|i| DecodeRequest::new(slice(&held[i], blobs[i].len()), slice(&outs[i], lens[i]), dtype))
        .collect();
    let said = Buffer::new(device, 16 * blobs.len()).unwrap();
    let workspace = Buffer::new(device, decode_workspace_len(&requests)).unwrap();
    let settings = DecodeSettings::default();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe {
        decode(device, &requests, &settings, said.slice(), workspace.slice(), Stream::DEFAULT).unwrap()
    };
    let mut statuses = vec![0; 16 * blobs.len()];
    said.read(&mut statuses, Stream::DEFAULT).unwrap();
    let read = |(i, status): (usize, &[u8])| {
        Status::from_bytes(status.try_into().unwrap()).check()?;
        let mut data = vec![0; lens[i]];
        outs[i].read(&mut data, Stream::DEFAULT).unwrap();
        Ok(data)
    };
    statuses.chunks(16).enumerate().map(read).collect()
}

/// A blob of values whose columns differ, so that there are classes; some are far from all others, some are NaN.
fn blob(dtype: Dtype, shape: [usize; 2], bits: f64, effort: Effort, seed: u64) -> Vec<u8> {
    let plain = Sample::make(Dtype::F32, &shape, Kind::Gaussian, seed).reals();
    let column = |i: usize| {
        if seed.is_multiple_of(3) { 1.0 } else { 0.02 * 1.3f64.powi((i % shape[1] * 7919 % 17) as i32) }
    };
    let row = |i: usize| if seed % 4 == 1 { 1.2f64.powi((i / shape[1] % 5) as i32) } else { 1.0 };
    let mut values: Vec<f64> = plain.iter().enumerate().map(|(i, v)| v * column(i) * row(i)).collect();
    if seed.is_multiple_of(2) {
        (77..values.len()).step_by(4001).for_each(|i| values[i] *= 2000.0);
    }
    let sample = Sample::new(dtype, &shape, &values);
    let sample = if seed.is_multiple_of(5) { sample.sprinkle(997, seed) } else { sample };
    let lane = [0, 64, 512][seed as usize % 3];
    let options = EncodeOptions::new(Goal::Bits(bits)).with_effort(effort).with_lane_values(lane);
    tenfold::encode(&sample.view(), &options).unwrap()
}

fn kinds(dtype: Dtype) -> Vec<Vec<u8>> {
    let shapes = [[64, 512], [16, 128], [33, 160], [40, 384], [5, 130], [3, 7], [1, 1], [64, 1024]];
    let mut seed = 0;
    let mut blobs = Vec::new();
    for shape in shapes {
        for effort in [Effort::Fast, Effort::Balanced] {
            for bits in [0.4, 2.0, 5.0, 9.0] {
                seed += 1;
                blobs.push(blob(dtype, shape, bits, effort, seed));
            }
        }
    }
    // Nothing but zeros, what has no levels at all, and pairs.
    let zeros = Sample::new(dtype, &[64, 256], &vec![0.0; 64 * 256]);
    let some = Sample::make(dtype, &[64, 256], Kind::Laplace, 9);
    for (sample, goal) in [(&zeros, Goal::Bits(2.0)), (&some, Goal::Lossless), (&some, Goal::Bits(3.0))] {
        blobs.push(tenfold::encode(&sample.view(), &EncodeOptions::new(goal)).unwrap());
    }
    blobs
}

fn wanted(blobs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    blobs.iter().map(|b| tenfold::decode(b, &DecodeOptions::default()).unwrap().data).collect()
}

fn every_kind(subject: &Subject) {
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
        let blobs = kinds(dtype);
        let wanted = wanted(&blobs);
        let lens: Vec<usize> = wanted.iter().map(Vec::len).collect();
        for (i, found) in decode_all(subject, &blobs, dtype, &lens).into_iter().enumerate() {
            assert!(found.unwrap() == wanted[i], "{dtype}: blob {i}");
        }
    }
}

/// Compares a blob of 64 at a time that is damaged with what the CPU makes of it; all others are whole.
fn damaged(subject: &Subject, damage: impl Fn(&mut Vec<u8>, usize)) {
    let shapes = [[8, 128], [5, 160], [3, 130]];
    let whole: Vec<Vec<u8>> = (1..=6)
        .map(|i| blob(Dtype::Bf16, shapes[i % 3], 2.0, [Effort::Fast, Effort::Balanced][i % 2], i as u64))
        .collect();
    let wanted = wanted(&whole);
    for round in 0..48 {
        let mut blobs: Vec<Vec<u8>> = (0..48).map(|i| whole[i % 6].clone()).collect();
        for i in (round % 2..48).step_by(2) {
            let at = (round * 48 + i) * 7919 % blobs[i].len();
            damage(&mut blobs[i], at);
        }
        let lens: Vec<usize> = (0..48).map(|i| wanted[i % 6].len()).collect();
        for (i, found) in decode_all(subject, &blobs, Dtype::Bf16, &lens).into_iter().enumerate() {
            match tenfold::decode(&blobs[i], &DecodeOptions::default()) {
                Ok(w) if w.data.len() == lens[i] && w.dtype == Dtype::Bf16 => {
                    assert!(found.unwrap() == w.data, "round {round}, blob {i}: other bytes");
                }
                _ => assert!(found.is_err(), "round {round}, blob {i} was taken"),
            }
        }
    }
}

fn flips(subject: &Subject) {
    damaged(subject, |blob, at| blob[at] ^= 1 << (at % 8));
}

fn sealed_flips(subject: &Subject) {
    damaged(subject, |blob, at| {
        let tiles = tenfold::inspect(blob).unwrap().tiles as usize;
        let at = at.max(12);
        blob[at] ^= 1 << (at % 8);
        seal(blob, tiles);
    });
}
