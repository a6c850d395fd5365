//! Two versions of a tensor: their delta makes the one of the other. With bytes changed or cut it makes an error or, where nothing of
//! it is lost, the same; a base is never left half new.

use tenfold::delta::{self, DeltaOptions, Verify};
use tenfold::engine::Limits;
use tenfold::{Dtype, TensorView};

use super::draw::Draw;

/// Most values of a tensor.
const VALUES: usize = 4096;

pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let flips: Vec<(u16, u8)> = (0..draw.byte() % 9).map(|_| (draw.word(), draw.byte())).collect();
    let cut = draw.byte().checked_sub(192).map(|_| draw.word());
    let dtype = draw.pick(&Dtype::ALL);
    let tile_values = draw.pick(&[0, 0, 32, 256, 4096]);
    let verify = draw.pick(&[Verify::Whole, Verify::Touched]);
    let (values, share) = (draw.below(VALUES), draw.byte());
    let content = draw.rest();
    let byte = |i: usize| if content.is_empty() { 0 } else { content[i % content.len()] };
    let old: Vec<u8> =
        (0..values * dtype.size()).map(|i| byte(i).wrapping_mul(1 + (i / 251) as u8)).collect();
    let mut new = old.clone();
    for (i, value) in new.chunks_exact_mut(dtype.size()).enumerate() {
        // Now and then all bytes, mostly the lowest.
        let by = byte(7 * i + 3);
        if by < share {
            value[0] = value[0].wrapping_add(by % 4 + 1);
            value[dtype.size() - 1] ^= if by % 16 == 5 { by } else { 0 };
        }
    }
    let shape = [values];
    let view = |data| TensorView::new(dtype, &shape, data).expect("a sound tensor");
    let options = DeltaOptions::default()
        .with_threads(1)
        .with_tile_values(tile_values)
        .with_verify(verify)
        .with_limits(Limits::default().with_max_bytes(1 << 20));
    let whole = delta::make(&view(&old), &view(&new), &options).expect("two tensors of one kind");
    let mut blob = whole.clone();
    for (at, mask) in flips {
        let at = usize::from(at) % blob.len();
        blob[at] ^= mask;
    }
    if let Some(cut) = cut {
        blob.truncate(usize::from(cut) % (blob.len() + 1));
    }
    let mut data = old.clone();
    match delta::apply_in_place(&blob, dtype, &shape, &mut data, &options) {
        Ok(_) if blob == whole => assert!(data == new, "another result"),
        // What tells the same in other bits, or a delta whose sums were changed with its content.
        Ok(_) => assert!(verify == Verify::Touched || data == new || data == old, "another result"),
        Err(error) => assert!(blob != whole && data == old, "{error}"),
    }
    // Any other tensor.
    let mut other: Vec<u8> = old.iter().map(|b| !b).collect();
    let before = other.clone();
    if delta::apply_in_place(&blob, dtype, &shape, &mut other, &options).is_err() {
        assert!(other == before, "a refused base has changed");
    }
    let _ = delta::inspect(&blob);
}
