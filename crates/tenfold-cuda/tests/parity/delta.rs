//! Deltas applied in place: the same bytes as on the CPU, and a tensor that stays as it is wherever the CPU refuses.

use std::path::Path;

use serde_json::Value;
use tenfold::delta::{self, Applied, DeltaOptions, Verify};
use tenfold::engine::Limits;
use tenfold::{Dtype, TensorView};
use tenfold_cuda::{
    Buffer, DeltaApplier, DeltaPlan, DeltaRequest, DeviceSlice, Pinned, Status, Stream, apply_delta,
    delta_workspace_len,
};

use crate::Case;
use crate::common::{Random, seal};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("delta: every dtype at every density".into(), every_dtype),
        ("delta: weights of a training step".into(), trained_weights),
        ("delta: tiles and lanes of every size".into(), geometries),
        ("delta: golden deltas".into(), golden),
        ("delta: interrupted applications are completed".into(), interrupted),
        ("delta: another tensor stays as it is".into(), other_tensor),
        ("delta: flipped bits".into(), flips),
        ("delta: flipped bits behind fresh checksums".into(), sealed_flips),
        ("delta: truncations".into(), truncations),
        ("delta: many tensors in one call".into(), many),
        ("delta: more tables than shared memory has room for".into(), tables),
        ("delta: what is refused".into(), refused),
    ]
}

/// A tensor before and after.
struct Pair {
    dtype: Dtype,
    shape: Vec<usize>,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Pair {
    fn make(&self, options: &DeltaOptions) -> Vec<u8> {
        let view = |data| TensorView::new(self.dtype, &self.shape, data).unwrap();
        delta::make(&view(&self.old), &view(&self.new), options).unwrap()
    }

    fn blob(&self) -> Vec<u8> {
        self.make(&DeltaOptions::default())
    }
}

/// Bytes of anything, of which a share of the values changes to anything.
fn noise(dtype: Dtype, values: usize, share: f64, seed: u64) -> Pair {
    let (size, mut r) = (dtype.size(), Random::new(seed));
    let old: Vec<u8> = (0..values * size).map(|_| r.bits() as u8).collect();
    let mut new = old.clone();
    for value in new.chunks_exact_mut(size) {
        if r.uniform() < share {
            value.iter_mut().for_each(|b| *b = r.bits() as u8);
        }
    }
    Pair { dtype, shape: vec![values], old, new }
}

/// Weights, of which a share moves a little.
fn trained(dtype: Dtype, values: usize, share: f64, seed: u64) -> Pair {
    let mut r = Random::new(seed);
    let base: Vec<f64> = (0..values).map(|_| 0.02 * r.normal()).collect();
    let moved: Vec<f64> =
        base.iter().map(|v| if r.uniform() < share { v + 0.0005 * r.normal() } else { *v }).collect();
    let bytes = |values: &[f64]| crate::common::to_bytes(dtype, values);
    Pair { dtype, shape: vec![values], old: bytes(&base), new: bytes(&moved) }
}

type Outcome = (tenfold::engine::Result<Applied>, Vec<u8>);

fn touched() -> DeltaOptions {
    DeltaOptions::default().with_threads(1).with_verify(Verify::Touched)
}

fn on_cpu(blob: &[u8], dtype: Dtype, shape: &[usize], base: &[u8]) -> Outcome {
    let mut data = base.to_vec();
    let applied = delta::apply_in_place(blob, dtype, shape, &mut data, &touched());
    (applied, data)
}

fn read(buffer: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.read(&mut bytes, Stream::DEFAULT).unwrap();
    bytes
}

fn plain(error: tenfold_cuda::Error) -> tenfold::Error {
    error.into()
}

/// On the device alone, with memory of exactly the sizes that are asked for; by copies from the host; and decoded on the host.
fn on_device(subject: &Subject, blob: &[u8], dtype: Dtype, shape: &[usize], base: &[u8]) -> [Outcome; 3] {
    let device = subject.device();
    let tensor = || Buffer::from_slice(device, base).unwrap();
    let limits = Limits::default();
    let alone = || {
        let to = tensor();
        let plan = match DeltaPlan::new(blob, &limits) {
            Ok(plan) => plan,
            Err(error) => return (Err(error.into()), base.to_vec()),
        };
        if (plan.dtype(), plan.shape()) != (dtype, shape) {
            // Without an applier that is the caller's to see.
            return (Err(tenfold::Error::InvalidArgument("another tensor".into())), base.to_vec());
        }
        let (blob, setup) =
            (Buffer::from_slice(device, blob).unwrap(), Buffer::from_slice(device, plan.setup()).unwrap());
        let request = [DeltaRequest::new(&plan, blob.slice(), setup.slice(), to.slice())];
        let workspace = Buffer::new(device, delta_workspace_len(&request)).unwrap();
        let status = Buffer::new(device, 16).unwrap();
        // SAFETY: all of it lives until the status has been waited for.
        unsafe { apply_delta(device, &request, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
        let said = read(&status, 16).try_into().unwrap();
        (plan.check(Status::from_bytes(said)), read(&to, base.len()))
    };
    let mut applier = DeltaApplier::new(device).unwrap();
    let (first, second) = (tensor(), tensor());
    // SAFETY: all of it lives until the calls have waited.
    unsafe {
        let copied = applier.apply(blob, (first.slice(), dtype, shape), &limits, Stream::DEFAULT);
        let decoded =
            applier.apply_decoded(blob, base, (second.slice(), dtype, shape), &touched(), Stream::DEFAULT);
        [
            alone(),
            (copied.map_err(plain), read(&first, base.len())),
            (decoded.map_err(plain), read(&second, base.len())),
        ]
    }
}

/// Compares what the CPU and the device make of a delta and a tensor.
fn compare(subject: &Subject, name: &str, blob: &[u8], pair: &Pair, base: &[u8]) {
    let (wanted, data) = on_cpu(blob, pair.dtype, &pair.shape, base);
    for (way, (found, bytes)) in
        ["alone", "copied", "decoded"].iter().zip(on_device(subject, blob, pair.dtype, &pair.shape, base))
    {
        assert!(bytes == data, "{name}, {way}: other bytes; {found:?}, not {wanted:?}");
        match (&wanted, &found) {
            (Ok(w), Ok(f)) => assert_eq!(w, f, "{name}, {way}"),
            (Err(w), Err(f)) => assert_eq!(w.kind(), f.kind(), "{name}, {way}: {f}, not {w}"),
            (w, f) => panic!("{name}, {way}: {f:?}, not {w:?}"),
        }
    }
}

fn holds(subject: &Subject, name: &str, pair: &Pair, blob: &[u8]) {
    compare(subject, name, blob, pair, &pair.old);
    // And once more: nothing is left to do.
    compare(subject, &format!("{name}, again"), blob, pair, &pair.new);
}

fn every_dtype(subject: &Subject) {
    for dtype in Dtype::ALL {
        for (values, share) in
            [(0, 0.0), (1, 1.0), (33, 0.5), (5000, 0.0), (5000, 0.01), (9001, 0.2), (3000, 1.0)]
        {
            let pair = noise(dtype, values, share, 7);
            holds(subject, &format!("{dtype}, {share} of {values}"), &pair, &pair.blob());
        }
    }
}

fn trained_weights(subject: &Subject) {
    let values = if subject.is_real() { 1 << 22 } else { 100_000 };
    for (dtype, share) in [(Dtype::F32, 0.1), (Dtype::Bf16, 0.03), (Dtype::F16, 0.5), (Dtype::F64, 0.2)] {
        let pair = trained(dtype, values, share, 5);
        holds(subject, &format!("{dtype}, {share}"), &pair, &pair.blob());
    }
}

fn geometries(subject: &Subject) {
    let pair = trained(Dtype::Bf16, 40_000, 0.4, 3);
    for tile in [32, 256, 1024, 4096, 1 << 15, 1 << 17] {
        let blob = pair.make(&DeltaOptions::default().with_tile_values(tile));
        holds(subject, &format!("tiles of {tile}"), &pair, &blob);
    }
    // Dense and sparse parts: several tables of gaps, and ways of their own.
    let mut mixed = trained(Dtype::F32, 60_000, 0.02, 4);
    let other = noise(Dtype::F32, 10_000, 1.0, 9);
    mixed.new[..40_000].copy_from_slice(&other.new);
    let blob = mixed.make(&DeltaOptions::default().with_tile_values(4096));
    holds(subject, "mixed", &mixed, &blob);
}

fn golden(subject: &Subject) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/v1/deltas");
    let entries: Vec<Value> =
        serde_json::from_slice(&std::fs::read(root.join("deltas.json")).unwrap()).unwrap();
    assert!(entries.len() > 30);
    for entry in entries {
        let file = |key: &str| std::fs::read(root.join(entry[key].as_str().unwrap())).unwrap();
        let (name, blob, base) = (entry["name"].as_str().unwrap(), file("file"), file("base"));
        let dtype = Dtype::ALL.into_iter().find(|d| d.name() == entry["dtype"]).unwrap();
        let shape: Vec<usize> = serde_json::from_value(entry["shape"].clone()).unwrap();
        // Some bases are wrong where nothing changes: a device does not look there.
        let (wanted, data) = on_cpu(&blob, dtype, &shape, &base);
        if entry["kind"].is_null() {
            assert!(data == file("expected"), "{name}");
        }
        for (found, bytes) in on_device(subject, &blob, dtype, &shape, &base) {
            assert!(bytes == data, "{name}: other bytes");
            match (&wanted, &found) {
                (Ok(w), Ok(f)) => assert_eq!(w, f, "{name}"),
                (Err(w), Err(f)) => assert_eq!(w.kind(), f.kind(), "{name}: {f}, not {w}"),
                (w, f) => panic!("{name}: {f:?}, not {w:?}"),
            }
        }
    }
}

fn interrupted(subject: &Subject) {
    let pair = trained(Dtype::Bf16, 30_000, 0.3, 9);
    let blob = pair.make(&DeltaOptions::default().with_tile_values(4096));
    let pending = delta::prepare(&blob, pair.dtype, &pair.shape, &pair.old, &touched()).unwrap();
    assert!(pending.tiles() > 5);
    for tiles in 0..=pending.tiles() {
        let mut data = pair.old.clone();
        pending.write(0..tiles, &mut data).unwrap();
        // The host's copy may be old or new where the device's tensor is not.
        for copy in [&pair.old, &pair.new] {
            let device = subject.device();
            let tensor = Buffer::from_slice(device, &data).unwrap();
            let mut applier = DeltaApplier::new(device).unwrap();
            let to = (tensor.slice(), pair.dtype, &pair.shape[..]);
            // SAFETY: all of it lives until the call has waited.
            let applied =
                unsafe { applier.apply_decoded(&blob, copy, to, &touched(), Stream::DEFAULT).unwrap() };
            assert_eq!(applied.before == 0, tiles == 0);
            assert!(read(&tensor, data.len()) == pair.new);
        }
        compare(subject, &format!("{tiles} tiles done"), &blob, &pair, &data);
    }
}

fn other_tensor(subject: &Subject) {
    let pair = trained(Dtype::F32, 20_000, 0.2, 8);
    let blob = pair.make(&DeltaOptions::default().with_tile_values(4096));
    for seed in 0..4 {
        let mut base = pair.old.clone();
        let mut r = Random::new(seed);
        base.iter_mut().for_each(|b| *b ^= u8::from(r.uniform() < 0.3));
        assert!(on_cpu(&blob, pair.dtype, &pair.shape, &base).0.is_err());
        compare(subject, "another base", &blob, &pair, &base);
    }
    // One value that changes is another, in a tile that is new or old.
    let at = (0..20_000).rev().find(|&i| pair.old[4 * i..][..4] != pair.new[4 * i..][..4]).unwrap();
    for base in [&pair.old, &pair.new] {
        let mut base = base.clone();
        base[4 * at] ^= 1;
        compare(subject, "one value", &blob, &pair, &base);
    }
}

/// Small deltas of both kinds.
fn small() -> Vec<(&'static str, Pair, Vec<u8>)> {
    let trained = trained(Dtype::Bf16, 3000, 0.1, 11);
    let wide = noise(Dtype::F64, 500, 0.2, 12);
    let (first, second) = (trained.make(&DeltaOptions::default().with_tile_values(1024)), wide.blob());
    vec![("trained", trained, first), ("noise", wide, second)]
}

fn flips(subject: &Subject) {
    for (name, pair, blob) in small() {
        for at in (0..blob.len()).step_by((blob.len() / 200).max(1)) {
            let mut bytes = blob.clone();
            bytes[at] ^= 1 << (at % 8);
            compare(subject, &format!("{name}: bit of byte {at}"), &bytes, &pair, &pair.old);
        }
    }
}

fn sealed_flips(subject: &Subject) {
    for (name, pair, blob) in small() {
        let info = tenfold::inspect(&blob).unwrap();
        let header = info.header_bytes as usize;
        for at in (5..header).step_by(3).chain((header..blob.len()).step_by((blob.len() / 400).max(1))) {
            let mut bytes = blob.clone();
            bytes[at] ^= 1 << (at * 5 % 8);
            seal(&mut bytes, info.tiles as usize);
            compare(subject, &format!("{name}: bit of byte {at}, sealed"), &bytes, &pair, &pair.old);
        }
    }
}

fn truncations(subject: &Subject) {
    for (name, pair, blob) in small() {
        for len in (0..blob.len()).step_by((blob.len() / 40).max(1)) {
            compare(subject, &format!("{name}: {len} bytes"), &blob[..len], &pair, &pair.old);
        }
        compare(subject, &format!("{name}: more bytes"), &[&blob[..], &[0; 4]].concat(), &pair, &pair.old);
    }
}

fn many(subject: &Subject) {
    let device = subject.device();
    let dtypes = [Dtype::Bf16, Dtype::F32, Dtype::U8, Dtype::F64];
    let pairs: Vec<Pair> = (0..70)
        .map(|i| match i % 9 {
            8 => noise(dtypes[i % 4], 100, 0.0, i as u64),
            _ => noise(dtypes[i % 4], 50 + 97 * i, 0.1, i as u64),
        })
        .collect();
    let blobs: Vec<Vec<u8>> =
        pairs.iter().map(|pair| pair.make(&DeltaOptions::default().with_tile_values(1024))).collect();
    let plans: Vec<DeltaPlan> =
        blobs.iter().map(|blob| DeltaPlan::new(blob, &Limits::default()).unwrap()).collect();
    let on_device = |bytes: &[u8]| Buffer::from_slice(device, bytes).unwrap();
    // One of them is not what its delta belongs to.
    let bad = 33;
    let base = |i: usize| {
        let mut data = pairs[i].old.clone();
        data.iter_mut().for_each(|b| *b ^= u8::from(i == bad));
        data
    };
    let (on, setups): (Vec<_>, Vec<_>) =
        blobs.iter().zip(&plans).map(|(b, p)| (on_device(b), on_device(p.setup()))).unzip();
    let tensors: Vec<Buffer> = (0..pairs.len()).map(|i| on_device(&base(i))).collect();
    let requests: Vec<DeltaRequest<'_>> = (0..pairs.len())
        .map(|i| DeltaRequest::new(&plans[i], on[i].slice(), setups[i].slice(), tensors[i].slice()))
        .collect();
    let workspace = Buffer::new(device, delta_workspace_len(&requests)).unwrap();
    let status = Buffer::new(device, 16 * pairs.len()).unwrap();
    // SAFETY: all of it lives until the statuses have been waited for.
    unsafe { apply_delta(device, &requests, status.slice(), workspace.slice(), Stream::DEFAULT).unwrap() };
    let said = read(&status, 16 * pairs.len());
    for (i, said) in said.as_chunks().0.iter().enumerate() {
        let applied = plans[i].check(Status::from_bytes(*said));
        let found = read(&tensors[i], pairs[i].old.len());
        if i == bad {
            assert!(matches!(applied, Err(tenfold::Error::WrongBase { .. })), "{applied:?}");
            assert!(found == base(i));
        } else {
            assert_eq!(applied.unwrap().written, plans[i].changed());
            assert!(found == pairs[i].new, "tensor {i}");
        }
    }
}

/// Values of all sizes, of which tiles tell some by difference, some by bits and some by themselves, each with 16 classes.
fn tables(subject: &Subject) {
    let (mut r, values) = (Random::new(21), 80_000);
    let old: Vec<f32> =
        (0..values).map(|_| (r.normal() * 2f64.powi((r.bits() % 60) as i32 - 30)) as f32).collect();
    let new: Vec<f32> = old
        .iter()
        .enumerate()
        .map(|(i, v)| {
            let bits = v.to_bits();
            match i / 8192 % 3 {
                0 => f32::from_bits(bits.wrapping_add((r.bits() % 3) as u32 + (bits >> 23) % 40)),
                1 => f32::from_bits(bits ^ 1 << (r.bits() % 4 * 5) ^ (bits >> 25 & 1) << 11),
                _ => f32::from_bits(r.bits() as u32),
            }
        })
        .collect();
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let pair = Pair { dtype: Dtype::F32, shape: vec![values], old: bytes(&old), new: bytes(&new) };
    let blob = pair.make(&DeltaOptions::default().with_tile_values(4096));
    let plan = DeltaPlan::new(&blob, &Limits::default()).unwrap();
    assert!(plan.setup().len() > 230 << 10, "{} bytes of tables", plan.setup().len());
    holds(subject, "all tables", &pair, &blob);
}

fn refused(subject: &Subject) {
    let device = subject.device();
    let pair = trained(Dtype::Bf16, 3000, 0.1, 2);
    let blob = pair.blob();
    let plan = DeltaPlan::new(&blob, &Limits::default()).unwrap();
    let memory = Buffer::from_slice(device, &vec![0; 1 << 20]).unwrap();
    let at = |from: usize, len: usize| DeviceSlice::new(memory.slice().address + from as u64, len);
    let (setup, tensor) = (at(1 << 16, plan.setup().len()), at(1 << 18, plan.tensor_len()));
    let good = DeltaRequest::new(&plan, at(0, blob.len()), setup, tensor);
    let mut bad = [good; 6];
    bad[0].blob = at(4, blob.len());
    bad[1].blob = at(0, blob.len() - 4);
    bad[2].setup = at(8, setup.len);
    bad[3].setup = at(0, setup.len + 16);
    bad[4].tensor = at(1, tensor.len);
    bad[5].tensor = at(0, tensor.len + 2);
    for request in bad {
        // SAFETY: refused before anything is queued.
        let said =
            unsafe { apply_delta(device, &[request], at(0, 16), at(1 << 19, 1 << 19), Stream::DEFAULT) };
        assert!(matches!(said, Err(tenfold_cuda::Error::InvalidArgument(_))), "{request:?}");
    }
    let short = delta_workspace_len(&[good]) - 1;
    for (status, workspace) in [(at(0, 15), at(1 << 19, 1 << 19)), (at(0, 16), at(1 << 19, short))] {
        // SAFETY: as above.
        assert!(unsafe { apply_delta(device, &[good], status, workspace, Stream::DEFAULT) }.is_err());
    }
    // Another dtype or shape, and a blob that is no delta.
    let tensor = Buffer::from_slice(device, &pair.old).unwrap();
    let mut applier = DeltaApplier::new(device).unwrap();
    let limits = Limits::default();
    let encoded = tenfold::encode(
        &TensorView::new(pair.dtype, &pair.shape, &pair.old).unwrap(),
        &tenfold::EncodeOptions::new(tenfold::Goal::Lossless),
    )
    .unwrap();
    for (blob, dtype, shape) in [
        (&blob, Dtype::F16, &[3000][..]),
        (&blob, Dtype::Bf16, &[30, 100]),
        (&blob, Dtype::Bf16, &[1500]),
        (&encoded, Dtype::Bf16, &[3000]),
    ] {
        let to = (tensor.slice(), dtype, shape);
        // SAFETY: refused before anything is written.
        unsafe {
            applier.apply(blob, to, &limits, Stream::DEFAULT).unwrap_err();
            applier.apply_decoded(blob, &pair.old, to, &touched(), Stream::DEFAULT).unwrap_err();
        }
    }
    assert!(read(&tensor, pair.old.len()) == pair.old);
    // From pinned memory, and from the device's own.
    let mut pinned = Pinned::new(device, blob.len()).unwrap();
    pinned.copy_from_slice(&blob);
    let to = (tensor.slice(), pair.dtype, &pair.shape[..]);
    let there = Buffer::from_slice(device, &blob).unwrap();
    // SAFETY: all of it lives until the check has waited.
    unsafe {
        assert!(applier.queue(&pinned, blob.len() + 1, to, &limits, Stream::DEFAULT).is_err());
        applier.queue(&pinned, blob.len(), to, &limits, Stream::DEFAULT).unwrap();
        let same = DeltaPlan::from_device(device, there.slice(), &limits, Stream::DEFAULT).unwrap();
        assert_eq!(same.setup(), plan.setup());
    }
    assert_eq!(applier.check(Stream::DEFAULT).unwrap().written, plan.changed());
    assert!(read(&tensor, pair.old.len()) == pair.new);
}
