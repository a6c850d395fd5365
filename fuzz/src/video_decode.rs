//! Any bytes as a blob of pictures, all the way into the codec libraries: an error or a tensor within the limits.

use tenfold::DecodeOptions;
use tenfold::engine::{Engine, ErrorKind, Limits};

/// Bytes that a decoded tensor may take.
const BYTES: u64 = 1 << 20;

pub fn run(blob: &[u8]) {
    let options =
        DecodeOptions::default().with_threads(1).with_limits(Limits::default().with_max_bytes(BYTES));
    let engine = tenfold_video::Video::reader();
    match engine.decode(blob, &options) {
        Err(error) => {
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::Data | ErrorKind::Unsupported | ErrorKind::Limit), "{error}");
        }
        Ok(tensor) => {
            assert!(tensor.data.len() as u64 <= BYTES, "{} bytes decoded", tensor.data.len());
            let view = tensor.view().expect("a decoded tensor is sound");
            let width = if tensor.data.is_empty() { 0 } else { view.cols() * view.dtype().size() };
            let rows = view.rows() / 2..view.rows();
            let part = engine.decode_rows(blob, rows.clone(), &options).expect("the rows exist");
            assert!(part.data == tensor.data[rows.start * width..rows.end * width], "rows differ");
        }
    }
}
