//! Any bytes, given to every function that takes a blob: an error or a tensor within the limits, and all of them
//! agree on which.

use tenfold::engine::{Cpu, Engine, ErrorKind, Limits};
use tenfold::{DecodeOptions, Error};

/// Bytes that a decoded tensor may take.
const BYTES: u64 = 1 << 20;

pub fn run(blob: &[u8]) {
    let options =
        DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(BYTES));
    let info = tenfold::inspect(blob);
    let decoded = tenfold::decode(blob, &options);
    assert_eq!(Cpu.verify(blob, &options).is_ok(), decoded.is_ok(), "verify and decode disagree");

    let tensor = match decoded {
        Ok(tensor) => tensor,
        Err(error) => {
            let kind = error.kind();
            let expected = matches!(kind, ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit);
            assert!(expected || error == Error::NeedsBase, "{error}");
            // Parts of a damaged blob may decode; they stay within the limits all the same.
            for rows in [0..0, 0..1, 1..3, usize::MAX - 1..usize::MAX] {
                if let Ok(part) = tenfold::decode_rows(blob, rows, &options) {
                    assert!(part.data.len() as u64 <= BYTES);
                }
            }
            return;
        }
    };
    assert!(tensor.data.len() as u64 <= BYTES, "{} bytes decoded", tensor.data.len());
    let info = info.expect("what decodes has a header");
    assert_eq!((info.dtype, &info.shape), (tensor.dtype, &tensor.shape));

    let mut room = vec![0; tensor.data.len()];
    Cpu.decode_into(blob, &options, &mut room).expect("the room is exact");
    assert!(room == tensor.data, "decode_into differs");

    let view = tensor.view().expect("a decoded tensor is sound");
    // The columns of an empty tensor may be too many to multiply.
    let width = if tensor.data.is_empty() { 0 } else { view.cols() * view.dtype().size() };
    let rows = view.rows();
    for range in [0..rows, rows / 3..rows / 2, rows..rows] {
        let part = tenfold::decode_rows(blob, range.clone(), &options).expect("the rows exist");
        assert!(part.data == tensor.data[range.start * width..range.end * width], "rows {range:?} differ");
    }
    assert!(tenfold::decode_rows(blob, 0..rows.saturating_add(1), &options).is_err() || rows == usize::MAX);
}
