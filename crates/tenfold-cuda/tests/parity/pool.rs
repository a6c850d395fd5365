//! Paged pools: tokens come out of their blocks and go back, whatever the layout, and nothing else is touched.

use half::{bf16, f16};
use tenfold::Dtype;
use tenfold_cuda::{Buffer, DevicePool, DeviceSlice, PoolLayout, Stream};

use crate::Case;
use crate::common::Random;
use crate::device::Subject;

pub fn cases() -> Vec<Case> {
    vec![
        ("pool: tokens out of blocks and back".into(), moved),
        ("pool: numbers that are no slots".into(), outside),
        ("pool: other floats as rows of bf16 and back".into(), converted),
        ("pool: what is refused".into(), refused),
    ]
}

/// Layers of a pool on the device, each a little larger than its layout, and what they hold.
struct Held {
    buffers: Vec<Buffer>,
    bytes: Vec<Vec<u8>>,
    pool: DevicePool,
    layout: PoolLayout,
}

impl Held {
    /// Layers that start at so many bytes behind an aligned address.
    fn new(subject: &Subject, layers: usize, layout: PoolLayout, shift: usize) -> Held {
        let len = shift + 64 + (layout.blocks * layout.block_stride).max(layout.heads * layout.head_stride);
        let mut random = Random::new(7);
        let bytes: Vec<Vec<u8>> = (0..layers).map(|_| random.bytes(len)).collect();
        let buffers: Vec<Buffer> =
            bytes.iter().map(|b| Buffer::from_slice(subject.device(), b).unwrap()).collect();
        let slices: Vec<DeviceSlice> = buffers.iter().map(|b| part(b, shift, len - shift)).collect();
        let pool = DevicePool::new(subject.device(), &slices, layout).unwrap();
        let bytes = bytes.into_iter().map(|b| b[shift..].to_vec()).collect();
        Held { buffers, bytes, pool, layout }
    }

    /// Where the heads of a slot are in a layer.
    fn heads(&self, slot: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let l = self.layout;
        let token = slot / l.block * l.block_stride + slot % l.block * l.token_stride;
        (0..l.heads).map(move |head| token + head * l.head_stride..token + head * l.head_stride + l.head)
    }

    /// Rows of tokens, as the host finds them.
    fn rows(&self, slots: &[i64]) -> Vec<u8> {
        let mut rows = Vec::new();
        for &slot in slots {
            for layer in &self.bytes {
                match usize::try_from(slot).ok().filter(|s| *s < self.layout.blocks * self.layout.block) {
                    Some(slot) => self.heads(slot).for_each(|head| rows.extend_from_slice(&layer[head])),
                    None => rows.resize(rows.len() + self.layout.heads * self.layout.head, 0),
                }
            }
        }
        rows
    }

    /// So many bytes of rows, as the device finds them.
    fn gathered(&self, subject: &Subject, slots: &Buffer, len: usize) -> Vec<u8> {
        let rows = Buffer::from_slice(subject.device(), &vec![0xa5; len]).unwrap();
        // SAFETY: all of it is ours and lives to the end of this function.
        unsafe { self.pool.gather(slots.slice(), rows.slice(), Stream::DEFAULT).unwrap() };
        let mut found = vec![0; len];
        rows.read(&mut found, Stream::DEFAULT).unwrap();
        found
    }

    /// What the layers hold on the device, from the pool's start on.
    fn now(&self) -> Vec<Vec<u8>> {
        let read = |(buffer, bytes): (&Buffer, &Vec<u8>)| {
            let mut all = vec![0; buffer.slice().len];
            buffer.read(&mut all, Stream::DEFAULT).unwrap();
            all.split_off(all.len() - bytes.len())
        };
        self.buffers.iter().zip(&self.bytes).map(read).collect()
    }
}

fn part(buffer: &Buffer, at: usize, len: usize) -> DeviceSlice {
    DeviceSlice::new(buffer.slice().address + at as u64, len)
}

fn upload_slots(subject: &Subject, slots: &[i64]) -> Buffer {
    let bytes: Vec<u8> = slots.iter().flat_map(|s| s.to_le_bytes()).collect();
    Buffer::from_slice(subject.device(), &bytes).unwrap()
}

/// Some slots in no order, none twice.
fn some_slots(layout: &PoolLayout, count: usize, seed: u64) -> Vec<i64> {
    let mut slots: Vec<i64> = (0..(layout.blocks * layout.block) as i64).collect();
    let mut random = Random::new(seed);
    for i in (1..slots.len()).rev() {
        slots.swap(i, random.below(i + 1));
    }
    slots.truncate(count);
    slots
}

fn layouts(subject: &Subject) -> Vec<(PoolLayout, usize, usize)> {
    let (blocks, layers) = if subject.is_real() { (200, 9) } else { (5, 3) };
    vec![
        // As vLLM and SGLang have them, of bf16 and of eight bits, heads behind tokens and before.
        (PoolLayout::new(blocks, 16, 8, 256), layers, 0),
        (PoolLayout::new(16 * blocks, 1, 4, 128), layers, 0),
        (PoolLayout::heads_first(blocks, 16, 8, 128), layers, 0),
        // One latent and its rotary part.
        (PoolLayout::new(blocks, 8, 1, 1152), layers, 0),
        // Keys beside values, padding, and what is aligned to nothing much.
        (PoolLayout::new(blocks, 16, 4, 64).with_strides(16 * 512 + 32, 512, 64), layers, 0),
        (PoolLayout::heads_first(blocks, 4, 3, 6).with_strides(140, 6, 30), 1, 2),
        (PoolLayout::new(blocks, 4, 3, 20).with_strides(300, 72, 24), layers, 4),
        (PoolLayout::new(blocks, 3, 5, 7).with_strides(131, 41, 8), layers, 1),
    ]
}

fn moved(subject: &Subject) {
    for (i, (layout, layers, shift)) in layouts(subject).into_iter().enumerate() {
        let mut held = Held::new(subject, layers, layout, shift);
        let slots = some_slots(&layout, 7 * layout.blocks * layout.block / 10, i as u64);
        let on_device = upload_slots(subject, &slots);
        let wanted = held.rows(&slots);
        assert!(held.gathered(subject, &on_device, wanted.len()) == wanted, "{layout:?}: gathered");

        // Other rows go back, and what lies between and elsewhere stays.
        let new: Vec<u8> = wanted.iter().map(|b| b ^ 0x5a).collect();
        let rows = Buffer::from_slice(subject.device(), &new).unwrap();
        // SAFETY: all of it is ours and lives to the end of this function.
        unsafe { held.pool.scatter(rows.slice(), on_device.slice(), Stream::DEFAULT).unwrap() };
        for &slot in &slots {
            let heads: Vec<_> = held.heads(slot as usize).collect();
            for layer in &mut held.bytes {
                heads.iter().for_each(|head| layer[head.clone()].iter_mut().for_each(|b| *b ^= 0x5a));
            }
        }
        assert!(held.now() == held.bytes, "{layout:?}: scattered");
    }
}

fn outside(subject: &Subject) {
    let layout = PoolLayout::new(4, 16, 2, 32);
    let mut held = Held::new(subject, 2, layout, 0);
    let slots = [3, -1, 64, 63, i64::MIN, 1 << 40, 0, i64::MAX];
    let on_device = upload_slots(subject, &slots);
    let wanted = held.rows(&slots);
    assert!(held.gathered(subject, &on_device, wanted.len()) == wanted);
    let ones = Buffer::from_slice(subject.device(), &vec![1; wanted.len()]).unwrap();
    // SAFETY: all of it is ours and lives to the end of this function.
    unsafe { held.pool.scatter(ones.slice(), on_device.slice(), Stream::DEFAULT).unwrap() };
    for slot in [3, 63, 0] {
        let heads: Vec<_> = held.heads(slot).collect();
        held.bytes.iter_mut().for_each(|layer| heads.iter().for_each(|head| layer[head.clone()].fill(1)));
    }
    assert!(held.now() == held.bytes);
}

fn refused(subject: &Subject) {
    let device = subject.device();
    let layer = Buffer::new(device, 4096).unwrap();
    let make = |layers: &[DeviceSlice], layout| DevicePool::new(device, layers, layout).map(|_| ());
    for layout in [
        PoolLayout::new(5, 16, 2, 32),
        PoolLayout::new(0, 16, 2, 32),
        PoolLayout::new(4, 0, 2, 32),
        PoolLayout::new(4, 16, 0, 32),
        PoolLayout::new(4, 16, 2, 0),
        PoolLayout::new(4, 16, 2, 32).with_strides(usize::MAX, 64, 32),
        PoolLayout::new(usize::MAX, 16, 2, 32),
        PoolLayout::new(1, 1 << 33, 1, 1).with_strides(0, 0, 0),
    ] {
        assert!(make(&[layer.slice()], layout).is_err(), "{layout:?}");
    }
    let layout = PoolLayout::new(4, 16, 2, 32);
    assert!(make(&[], layout).is_err() && make(&[layer.slice(); 257], layout).is_err());
    let pool = DevicePool::new(device, &[layer.slice()], layout).unwrap();
    assert_eq!(pool.row(), 64);
    let slots = upload_slots(subject, &[1, 2]);
    let rows = Buffer::new(device, 256).unwrap();
    // SAFETY: what is refused is not touched.
    unsafe {
        assert!(pool.gather(slots.slice(), rows.slice(), Stream::DEFAULT).is_err());
        assert!(pool.scatter(rows.slice(), part(&slots, 0, 12), Stream::DEFAULT).is_err());
        let none = part(&slots, 0, 0);
        pool.gather(none, part(&rows, 0, 0), Stream::DEFAULT).unwrap();
    }
}

/// The number that a pattern of a float of at most 16 bits stands for.
fn number(dtype: Dtype, bits: u16) -> f64 {
    let (sign, exponents, mantissa) = match dtype {
        Dtype::F8E4M3 => (bits >> 7, 4, 3),
        Dtype::F8E5M2 => (bits >> 7, 5, 2),
        Dtype::F16 => return f16::from_bits(bits).to_f64(),
        _ => return bf16::from_bits(bits).to_f64(),
    };
    let (top, bias) = ((1u16 << exponents) - 1, (1 << (exponents - 1)) - 1);
    let (e, m) = (bits >> mantissa & top, bits & ((1 << mantissa) - 1));
    let size = match (dtype, e == top, m) {
        (Dtype::F8E4M3, true, 7) => f64::NAN,
        (Dtype::F8E5M2, true, 0) => f64::INFINITY,
        (Dtype::F8E5M2, true, _) => f64::NAN,
        _ => {
            let whole = f64::from(m) + if e == 0 { 0.0 } else { f64::from(1 << mantissa) };
            whole * 2f64.powi(i32::from(e.max(1)) - bias - mantissa)
        }
    };
    if sign == 1 { -size } else { size }
}

/// Finite numbers of a dtype that are not negative, in the order of their patterns.
fn finite(dtype: Dtype) -> Vec<f64> {
    (0..1u16 << (8 * dtype.size() - 1)).map(|b| number(dtype, b)).take_while(|v| v.is_finite()).collect()
}

/// The pattern next to a number that is not NaN, ties to even; what is too large becomes the largest finite one.
fn nearest(dtype: Dtype, finite: &[f64], v: f64) -> u16 {
    let sign = if v.is_sign_negative() { 1u16 << (8 * dtype.size() - 1) } else { 0 };
    let high = finite.partition_point(|f| *f <= v.abs()).clamp(1, finite.len() - 1);
    let (low, above) = (high - 1, finite[high] - v.abs());
    let below = v.abs() - finite[low];
    sign | if below < above || below == above && low % 2 == 0 { low } else { high } as u16
}

/// Every pattern of a dtype as bf16, and every bf16 as that dtype, by eights and one by one.
fn converted(subject: &Subject) {
    for dtype in [Dtype::F8E4M3, Dtype::F8E5M2, Dtype::F16] {
        let size = dtype.size();
        let patterns: Vec<u16> = (0..=if size == 1 { 0xff } else { 0xffff }).collect();
        // Tokens of 64 columns in two heads, which lie apart or start at odd places.
        for (apart, shift) in [(32 * size, 0), (48 * size, 0), (33 * size, size)] {
            let tokens = patterns.len() / 64;
            let layout = PoolLayout::new(tokens, 1, 2, 32 * size).with_strides(128 * size, 0, apart);
            let mut held = Held::new(subject, 1, layout, shift);
            held.pool = held.pool.with_dtype(dtype).unwrap();
            assert_eq!(held.pool.columns(), Some(64));
            let slots: Vec<i64> = (0..tokens as i64).rev().collect();
            let on_device = upload_slots(subject, &slots);
            let bytes: Vec<u8> = patterns.iter().flat_map(|p| p.to_le_bytes()[..size].to_vec()).collect();
            let own = Buffer::from_slice(subject.device(), &bytes).unwrap();
            let rows = Buffer::new(subject.device(), 2 * patterns.len()).unwrap();
            // SAFETY: all of it is ours and lives to the end of this block.
            unsafe {
                held.pool.scatter(own.slice(), on_device.slice(), Stream::DEFAULT).unwrap();
                held.pool.gather_halves(on_device.slice(), rows.slice(), Stream::DEFAULT).unwrap();
            }
            let mut found = vec![0; 2 * patterns.len()];
            rows.read(&mut found, Stream::DEFAULT).unwrap();
            for (&pattern, half) in patterns.iter().zip(found.as_chunks().0) {
                let (v, half) = (number(dtype, pattern), bf16::from_le_bytes(*half));
                // Infinities stay; of NaN no more is promised.
                let expected = bf16::from_f64(v);
                let alike = if v.is_nan() { half.is_nan() } else { half.to_bits() == expected.to_bits() };
                assert!(alike, "{dtype} {pattern:#x} = {v}: {half}");
            }
        }
        let finite = finite(dtype);
        // All bf16, in as many tokens as it takes.
        let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for (head, heads) in [(64 * size, 1), (32 * size, 2)] {
            let layout =
                PoolLayout::new(64, 16, heads, head).with_strides(16 * 80 * size, 80 * size, 40 * size);
            let layout =
                if heads == 1 { layout.with_strides(16 * 65 * size, 65 * size, head) } else { layout };
            let held = Held::new(subject, 1, layout, 0);
            let pool = held.pool.clone().with_dtype(dtype).unwrap();
            let slots: Vec<i64> = (0..1024).collect();
            let on_device = upload_slots(subject, &slots);
            let rows = Buffer::from_slice(subject.device(), &halves).unwrap();
            // SAFETY: all of it is ours and lives to the end of this block.
            unsafe { pool.scatter_halves(rows.slice(), on_device.slice(), Stream::DEFAULT).unwrap() };
            let layer = held.now().remove(0);
            for slot in 0..1024 {
                let stored: Vec<u8> = held.heads(slot).flat_map(|head| layer[head].to_vec()).collect();
                for (column, b) in stored.chunks(size).enumerate() {
                    let found = u16::from_le_bytes([b[0], b.get(1).copied().unwrap_or(0)]);
                    let half = bf16::from_bits((slot * 64 + column) as u16);
                    if half.is_nan() {
                        assert!(number(dtype, found).is_nan(), "{dtype}: {half} to {found:#x}");
                    } else {
                        assert_eq!(found, nearest(dtype, &finite, half.to_f64()), "{dtype}: {half}");
                    }
                }
            }
        }
    }
    // What is refused: other dtypes, and elements that do not lie at multiples of their size.
    let held = Held::new(subject, 1, PoolLayout::new(4, 1, 1, 7).with_strides(7, 7, 7), 0);
    assert!(
        held.pool.clone().with_dtype(Dtype::F32).is_err() && held.pool.clone().with_dtype(Dtype::I8).is_err()
    );
    let odd = held.pool.clone().with_dtype(Dtype::F16).unwrap();
    assert_eq!((odd.columns(), held.pool.columns()), (None, None));
    let (slots, rows) = (upload_slots(subject, &[0]), Buffer::new(subject.device(), 16).unwrap());
    // SAFETY: what is refused is not touched.
    unsafe { assert!(odd.gather_halves(slots.slice(), part(&rows, 0, 6), Stream::DEFAULT).is_err()) };
}
