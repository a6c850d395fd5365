//! A tensor of any dtype, shape and content, encoded for any goal: what comes back keeps every promise.

use tenfold::engine::ErrorKind;

use super::case::Case;
use super::draw::Draw;
use super::promise;

/// Most values of a tensor: enough for rates to be promised, few enough for a hundred tensors a second.
const VALUES: usize = 6 << 10;

pub fn run(input: &[u8]) {
    let mut draw = Draw::new(input);
    let ways = draw.byte();
    let (from, to) = (draw.word(), draw.word());
    let case = Case::draw(draw, VALUES);
    let view = case.tensor.view().expect("a case has as many bytes as its shape says");
    let blob = match tenfold::encode(&view, &case.options) {
        Ok(blob) => blob,
        Err(error) => {
            // Goals that make no sense and caps that are too small; a tensor is never at fault.
            assert!(matches!(error.kind(), ErrorKind::Caller | ErrorKind::Limit), "{error}");
            return;
        }
    };
    promise::check(&case, &blob);
    // Twice the work: on some inputs only.
    if ways % 4 == 1 {
        let rows = view.rows();
        let from = usize::from(from) % (rows + 1);
        let to = from + usize::from(to) % (rows - from + 1);
        promise::check_ways(&case, &blob, from..to);
    }
}
