//! A real blob with a few bytes changed or its end cut off: past the checksums of random bytes, into the parts
//! that trust their input most. An untouched blob keeps its promises.

use super::case::Case;
use super::draw::Draw;
use super::{blob_decode, promise};

/// Most values of a tensor.
const VALUES: usize = 4096;

pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let flips: Vec<(u16, u8)> = (0..draw.byte() % 9).map(|_| (draw.word(), draw.byte())).collect();
    let cut = draw.byte().checked_sub(192).map(|_| draw.word());
    let case = Case::draw(draw, VALUES);
    let Ok(view) = case.tensor.view() else { return };
    let Ok(mut blob) = tenfold::encode(&view, &case.options) else {
        return;
    };

    let whole = blob.clone();
    for (at, mask) in flips {
        let at = usize::from(at) % blob.len();
        blob[at] ^= mask;
    }
    if let Some(cut) = cut {
        blob.truncate(usize::from(cut) % (blob.len() + 1));
    }
    match blob == whole {
        true => promise::check(&case, &blob),
        false => blob_decode::run(&blob),
    }
}
