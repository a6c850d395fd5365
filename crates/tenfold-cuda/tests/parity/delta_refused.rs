//! Deltas that must be refused: damaged ones, those of other tensors, and calls that make no sense. The tensor stays as it is.

use tenfold::delta::DeltaOptions;
use tenfold::engine::Limits;
use tenfold::{Dtype, TensorView};
use tenfold_cuda::{
    Buffer, DeltaApplier, DeltaPlan, DeltaRequest, DeviceSlice, Pinned, Stream, apply_delta,
    delta_workspace_len,
};

use crate::Case;
use crate::common::{Random, seal};
use crate::delta::{Pair, compare, noise, on_cpu, read, touched, trained};
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("delta: another tensor stays as it is".into(), other_tensor),
        ("delta: flipped bits".into(), flips),
        ("delta: flipped bits behind fresh checksums".into(), sealed_flips),
        ("delta: truncations".into(), truncations),
        ("delta: what is refused".into(), refused),
    ]
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
