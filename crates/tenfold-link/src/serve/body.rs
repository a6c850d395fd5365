//! Bodies of answers: texts, and ranges of files read as the peer takes them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full, combinators::BoxBody};

/// What answers carry.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// Bytes that are read at once. A few such pieces are the memory of an answer.
const PIECE: u64 = 256 << 10;

/// A text.
pub(super) fn text(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// A range of an open file. A file that becomes shorter meanwhile breaks the connection: the peer must not take it for whole.
pub(super) fn range(file: File, mut range: Range<u64>) -> Body {
    let (mut sender, body) = Channel::<Bytes, io::Error>::new(2);
    let file = Arc::new(file);
    tokio::spawn(async move {
        while range.start < range.end {
            let (file, take, at) = (file.clone(), PIECE.min(range.end - range.start), range.start);
            let read = move || {
                let mut piece = vec![0; take as usize];
                file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
            };
            let piece = tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(io::Error::other(e)));
            match piece {
                Ok(piece) => match sender.send_data(piece).await {
                    Ok(()) => range.start += take,
                    // The peer has gone.
                    Err(_) => return,
                },
                Err(error) => return sender.abort(error),
            }
        }
    });
    body.boxed()
}
