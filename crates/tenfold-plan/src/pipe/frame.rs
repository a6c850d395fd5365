//! What goes over the connection: a greeting, frames, and an answer.
//!
//! | part | bytes |
//! |---|---|
//! | greeting | `tfplan1\n`, number of frames (u32), all little-endian |
//! | frame | kind (u8: 0 raw, 1 blob), length (u32), content |
//! | answer | `tfplan1\n`, number of frames (u32), bytes of the decoded tensors (u64) |

use std::io::{Read, Write};

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"tfplan1\n";
/// Longest content of a frame.
pub(super) const MAX_FRAME: u32 = 256 << 20;
/// Most frames of a connection.
pub(super) const MAX_FRAMES: u32 = 1 << 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Raw,
    Blob,
}

/// Starts a connection.
pub(super) fn write_greeting(out: &mut impl Write, frames: u32) -> Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(frames.to_le_bytes());
    out.write_all(&bytes).map_err(Error::io("sending"))
}

/// The number of frames to come.
pub(super) fn read_greeting(from: &mut impl Read) -> Result<u32> {
    let frames = u32::from_le_bytes(read_magic_and(from)?);
    if frames > MAX_FRAMES {
        return Err(Error::Protocol(format!("{frames} frames are more than {MAX_FRAMES}")));
    }
    Ok(frames)
}

pub(super) fn write_frame(out: &mut impl Write, kind: Kind, content: &[u8]) -> Result<()> {
    let len = u32::try_from(content.len()).ok().filter(|len| *len <= MAX_FRAME);
    let len = len.ok_or_else(|| {
        Error::InvalidArgument(format!("a chunk of {} bytes is too large; use smaller chunks", content.len()))
    })?;
    let mut head = [0; 5];
    head[0] = u8::from(kind == Kind::Blob);
    head[1..].copy_from_slice(&len.to_le_bytes());
    out.write_all(&head).and_then(|()| out.write_all(content)).map_err(Error::io("sending"))
}

/// Reads a frame into `content`, which grows as bytes arrive and not before.
pub(super) fn read_frame(from: &mut impl Read, content: &mut Vec<u8>) -> Result<Kind> {
    let mut head = [0; 5];
    from.read_exact(&mut head).map_err(Error::io("receiving"))?;
    let kind = match head[0] {
        0 => Kind::Raw,
        1 => Kind::Blob,
        kind => return Err(Error::Protocol(format!("a frame of unknown kind {kind}"))),
    };
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if len > MAX_FRAME {
        return Err(Error::Protocol(format!("a frame of {len} bytes is larger than {MAX_FRAME}")));
    }
    content.clear();
    let got = from.take(u64::from(len)).read_to_end(content).map_err(Error::io("receiving"))?;
    if got as u64 != u64::from(len) {
        return Err(Error::Protocol(format!("a frame of {len} bytes ends after {got}")));
    }
    Ok(kind)
}

pub(super) fn write_answer(out: &mut impl Write, frames: u32, bytes: u64) -> Result<()> {
    let mut answer = MAGIC.to_vec();
    answer.extend(frames.to_le_bytes());
    answer.extend(bytes.to_le_bytes());
    out.write_all(&answer).map_err(Error::io("answering"))
}

/// Number of frames and bytes of tensors that the other end has received.
pub(super) fn read_answer(from: &mut impl Read) -> Result<(u32, u64)> {
    let bytes: [u8; 12] = read_magic_and(from)?;
    let (frames, total) = bytes.split_at(4);
    let number = |part: &[u8]| part.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    // Four bytes.
    Ok((number(frames) as u32, number(total)))
}

fn read_magic_and<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut magic = [0; 8];
    let mut rest = [0; N];
    from.read_exact(&mut magic).map_err(Error::io("receiving"))?;
    if &magic != MAGIC {
        return Err(Error::Protocol(
            "it does not start as it should; is `tenfold plan listen` running there?".into(),
        ));
    }
    from.read_exact(&mut rest).map_err(Error::io("receiving"))?;
    Ok(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        write_greeting(&mut bytes, 2).unwrap();
        write_frame(&mut bytes, Kind::Raw, b"abc").unwrap();
        write_frame(&mut bytes, Kind::Blob, b"").unwrap();
        write_answer(&mut bytes, 2, 1 << 40).unwrap();
        let mut from = bytes.as_slice();
        let mut content = Vec::new();
        assert_eq!(read_greeting(&mut from).unwrap(), 2);
        assert_eq!(
            (read_frame(&mut from, &mut content).unwrap(), content.as_slice()),
            (Kind::Raw, &b"abc"[..])
        );
        assert_eq!(
            (read_frame(&mut from, &mut content).unwrap(), content.as_slice()),
            (Kind::Blob, &b""[..])
        );
        assert_eq!(read_answer(&mut from).unwrap(), (2, 1 << 40));
    }

    #[test]
    fn lies_are_refused_before_memory_is_taken() {
        let mut content = Vec::new();
        let wrong: [&[u8]; 4] =
            [b"\x02\x00\x00\x00\x00", b"\x00\xff\xff\xff\xff", b"\x00\x09\x00\x00\x00abc", b"\x00"];
        for bytes in wrong {
            assert!(read_frame(&mut &bytes[..], &mut content).is_err(), "{bytes:?}");
            assert!(content.capacity() < 1 << 20);
        }
        assert!(read_greeting(&mut &b"GET / HTTP/1.1\r\n"[..]).is_err());
        assert!(read_greeting(&mut &b"tfplan1\n\xff\xff\xff\xff"[..]).is_err());
    }
}
