//! Fingerprints: those of the CPU, whatever a tensor's size, shape and address.

use tenfold::delta::{Fingerprint, fingerprint};
use tenfold::{Dtype, TensorView};
use tenfold_cuda::{Buffer, DeviceSlice, Error, Stream, fingerprints};

use crate::Case;
use crate::common::Random;
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("fingerprints: of every size".into(), sizes),
        ("fingerprints: of every shape, dtype and address".into(), shapes),
        ("fingerprints: a bit that differs anywhere".into(), bits),
        ("fingerprints: what is refused".into(), refused),
    ]
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.bits() as u8).collect()
}

fn of_device(subject: &Subject, tensors: &[(DeviceSlice, Dtype, &[usize])]) -> Vec<Fingerprint> {
    // SAFETY: each test's own memory, which it leaves alone meanwhile.
    unsafe { fingerprints(subject.device(), tensors, Stream::DEFAULT) }.unwrap()
}

fn of_host(dtype: Dtype, shape: &[usize], data: &[u8]) -> Fingerprint {
    fingerprint(&TensorView::new(dtype, shape, data).unwrap())
}

/// Around whole blocks, chunks, and what a thread block takes: all in one call.
fn sizes(subject: &Subject) {
    const BEFORE: usize = 10;
    let mut lens = vec![0, 1, 53, 54, 55, 63, 64, 1000, 70 << 10];
    for chunks in [1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 129, 255, 256, 257, 300, 511, 512, 513, 1030] {
        lens.extend([0, 1, 2, 9].map(|more| chunks * 1024 - BEFORE + more - 1));
    }
    // More nodes than the host merges: a second kernel, and more than one block of it on a real device.
    lens.push(if subject.is_real() { 80 << 20 } else { 17 << 20 } | 12345);
    let data = bytes(lens.iter().copied().max().unwrap(), 1);
    let memory = Buffer::from_slice(subject.device(), &data).unwrap();
    let shapes: Vec<[usize; 1]> = lens.iter().map(|&len| [len]).collect();
    let tensors: Vec<(DeviceSlice, Dtype, &[usize])> =
        shapes.iter().map(|s| (memory.slice().part(0, s[0]).unwrap(), Dtype::U8, &s[..])).collect();
    for (found, shape) in of_device(subject, &tensors).into_iter().zip(&shapes) {
        assert_eq!(found, of_host(Dtype::U8, shape, &data[..shape[0]]), "{shape:?}");
    }
    assert!(of_device(subject, &[]).is_empty());
}

fn shapes(subject: &Subject) {
    let data = bytes(1 << 16, 2);
    let memory = Buffer::from_slice(subject.device(), &data).unwrap();
    for shape in
        [&[][..], &[5], &[40, 33], &[3, 5, 7, 11], &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 900]]
    {
        for dtype in [Dtype::U8, Dtype::Bf16, Dtype::F32, Dtype::F64, Dtype::Bool] {
            for elements in 0..9 {
                let (at, len) = (elements * dtype.size(), shape.iter().product::<usize>() * dtype.size());
                let tensor = memory.slice().part(at, len).unwrap();
                let expected = of_host(dtype, shape, &data[at..at + len]);
                assert_eq!(
                    of_device(subject, &[(tensor, dtype, shape)]),
                    [expected],
                    "{dtype} {shape:?} at {at}"
                );
            }
        }
    }
}

fn bits(subject: &Subject) {
    let shape = [300, 500];
    let mut data = bytes(300_000, 3);
    let memory = Buffer::from_slice(subject.device(), &data).unwrap();
    for at in [0, 1, 1005, 1006, 65_537, 262_144, 299_999] {
        data[at] ^= 1 << (at & 7);
        memory.write(&data, Stream::DEFAULT).unwrap();
        let found = of_device(subject, &[(memory.slice(), Dtype::F16, &shape)]);
        assert_eq!(found, [of_host(Dtype::F16, &shape, &data)], "byte {at}");
    }
}

fn refused(subject: &Subject) {
    let memory = Buffer::from_slice(subject.device(), &[0; 64]).unwrap();
    let many = [1; 17];
    for (dtype, shape) in
        [(Dtype::F32, &[15][..]), (Dtype::F32, &[usize::MAX, 4]), (Dtype::F64, &[16]), (Dtype::U8, &many)]
    {
        let tensors = [(memory.slice(), dtype, shape)];
        // SAFETY: refused before anything is read.
        let found = unsafe { fingerprints(subject.device(), &tensors, Stream::DEFAULT) };
        assert!(matches!(found, Err(Error::InvalidArgument(_))), "{dtype} {shape:?}: {found:?}");
    }
}
