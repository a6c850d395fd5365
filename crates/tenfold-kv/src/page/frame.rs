//! The stored form of a page. Normative: docs/format.md, 'Pages'.

use std::ops::Range;

use tenfold::Error;
use tenfold::format::carry::{Reader, put_varint};

use crate::error::Result;

/// First bytes of a page.
pub const MAGIC: [u8; 4] = *b"TNFP";
/// Version of the stored form.
const VERSION: u8 = 1;
/// Magic, version, length of the header.
const FIXED: usize = 8;
/// Most layers of a page.
const MOST_LAYERS: usize = 1 << 16;
/// Most tokens of a page.
const MOST_TOKENS: u64 = 1 << 24;

/// Blobs of a group, in the order in which they are stored: exact keys, keys, exact values, values. Those that have no rows are
/// empty.
pub(crate) type Blobs<T> = [T; 4];

/// Where in [`Blobs`] something is.
pub(crate) const EXACT_KEYS: usize = 0;
pub(crate) const KEYS: usize = 1;
pub(crate) const EXACT_VALUES: usize = 2;
pub(crate) const VALUES: usize = 3;

/// The header of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub tokens: usize,
    /// Tokens at the start and at the end that are exact.
    pub exact: (usize, usize),
    /// Layers of each group, and where its blobs are.
    pub groups: Vec<(usize, Blobs<Range<usize>>)>,
}

impl Frame {
    /// Where the last blob ends.
    pub fn end(&self) -> usize {
        self.groups.last().map_or(0, |group| group.1[VALUES].end)
    }

    /// Tokens that are quantised.
    pub fn lossy(&self) -> usize {
        self.tokens - self.exact.0 - self.exact.1
    }

    /// Largest header of a page of at most `cap` bytes.
    pub fn header_room(tokens: usize, layers: &[usize], cap: usize) -> usize {
        let digits = |n: usize| (usize::BITS - n.leading_zeros()).div_ceil(7).max(1) as usize;
        let group = |&layers: &usize| digits(layers) + 4 * digits(cap / 4);
        let body =
            FIXED + 3 * digits(tokens) + digits(layers.len()) + layers.iter().map(group).sum::<usize>();
        body.next_multiple_of(4) + 4
    }
}

/// Puts a page together. Blobs are multiples of four bytes.
pub(crate) fn write<B: AsRef<[u8]>>(
    tokens: usize,
    exact: (usize, usize),
    groups: &[(usize, Blobs<B>)],
) -> Vec<u8> {
    let lengths = |(layers, blobs): &(usize, Blobs<B>)| (*layers, blobs.each_ref().map(|b| b.as_ref().len()));
    let mut out = header(tokens, exact, groups.iter().map(lengths));
    groups.iter().flat_map(|g| &g.1).for_each(|b| out.extend_from_slice(b.as_ref()));
    out
}

/// The header of a page whose groups have so many layers, and blobs of so many bytes.
pub(crate) fn header(
    tokens: usize,
    exact: (usize, usize),
    groups: impl ExactSizeIterator<Item = (usize, Blobs<usize>)>,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    [tokens, exact.0, exact.1, groups.len()].iter().for_each(|&n| put_varint(&mut out, n as u64));
    for (layers, blobs) in groups {
        put_varint(&mut out, layers as u64);
        blobs.iter().for_each(|&len| put_varint(&mut out, len as u64 / 4));
    }
    out.resize(out.len().next_multiple_of(4), 0);
    let len = out.len() as u32 + 4;
    out[5..8].copy_from_slice(&len.to_le_bytes()[..3]);
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Reads a page's header. The rest of the page may still be missing.
pub(crate) fn parse(bytes: &[u8]) -> Result<Frame> {
    let truncated = |need: usize| Error::Truncated { need: need as u64, have: bytes.len() as u64 };
    let known = bytes.len().min(MAGIC.len());
    if bytes.is_empty() || bytes[..known] != MAGIC[..known] {
        return Err(Error::NotABlob.into());
    }
    let fixed = bytes.get(..FIXED).ok_or_else(|| truncated(FIXED))?;
    if fixed[4] != VERSION {
        return Err(Error::UnsupportedVersion { found: fixed[4], supported: VERSION }.into());
    }
    let len = u32::from_le_bytes([fixed[5], fixed[6], fixed[7], 0]) as usize;
    if len < FIXED + 4 {
        return Err(Error::Corrupt("header length of a page").into());
    }
    let (body, sum) = bytes.get(..len).ok_or_else(|| truncated(len))?.split_at(len - 4);
    if !cfg!(fuzzing) && crc32fast::hash(body).to_le_bytes() != *sum {
        return Err(Error::Corrupt("header checksum of a page").into());
    }
    Ok(read(&mut Reader::new(&body[FIXED..]), len)?)
}

fn read(r: &mut Reader<'_>, header_len: usize) -> tenfold::engine::Result<Frame> {
    let corrupt = |what| Err(Error::Corrupt(what));
    let (tokens, first, last, count) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
    if !(1..=MOST_TOKENS).contains(&tokens) || first.saturating_add(last) > tokens {
        return corrupt("tokens of a page");
    }
    // A group takes at least five bytes, so memory is proportional to the input.
    if count == 0 || count > r.rest().len() as u64 / 5 {
        return corrupt("groups of a page");
    }
    let mut groups = Vec::with_capacity(count as usize);
    let (mut at, mut all) = (header_len, 0usize);
    for _ in 0..count {
        let layers = r.varint()?;
        all = all.saturating_add(usize::try_from(layers).unwrap_or(usize::MAX));
        if layers == 0 || all > MOST_LAYERS {
            return corrupt("layers of a page");
        }
        let mut blobs = Blobs::<Range<usize>>::default();
        for (i, blob) in blobs.iter_mut().enumerate() {
            let words = r.varint()?;
            let rows = if i % 2 == 0 { first + last } else { tokens - first - last };
            if (words == 0) != (rows == 0) {
                return corrupt("a blob of a page is missing, or one too many");
            }
            let end =
                usize::try_from(words).ok().and_then(|w| w.checked_mul(4)).and_then(|n| at.checked_add(n));
            *blob = at..end.ok_or(Error::Corrupt("lengths of a page overflow"))?;
            at = blob.end;
        }
        groups.push((layers as usize, blobs));
    }
    if r.rest().len() > 3 || r.rest().iter().any(|&b| b != 0) {
        return corrupt("bytes behind the header of a page");
    }
    Ok(Frame { tokens: tokens as usize, exact: (first as usize, last as usize), groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        let blobs = |n: usize| [vec![1u8; 4 * n], vec![2; 8], vec![3; 4 * n], vec![4; 400]];
        write(64, (4, 1), &[(3, blobs(1)), (1, blobs(70))])
    }

    #[test]
    fn pages_come_back() {
        let bytes = page();
        let frame = parse(&bytes).unwrap();
        assert_eq!((frame.tokens, frame.exact, frame.lossy()), (64, (4, 1), 59));
        assert_eq!(frame.groups.iter().map(|g| g.0).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(frame.groups[1].1[3].end, bytes.len());
        assert!(
            frame
                .groups
                .iter()
                .flat_map(|g| &g.1)
                .all(|r| bytes[r.clone()].iter().all(|b| *b == bytes[r.start]))
        );
        assert!(frame.groups[0].1[0].start <= Frame::header_room(64, &[3, 1], bytes.len()));
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        let bytes = page();
        let header = parse(&bytes).unwrap().groups[0].1[0].start;
        for n in 0..header {
            assert!(parse(&bytes[..n]).is_err(), "{n} bytes");
            let mut bad = bytes.clone();
            bad[n] ^= 4;
            assert!(parse(&bad).is_err(), "byte {n}");
        }
        assert!(parse(&bytes[..header]).is_ok());
        // Sound checksums around nonsense.
        let none = || Blobs::<Vec<u8>>::default();
        let some = || [vec![], vec![0u8; 4], vec![], vec![0; 4]];
        for bad in [
            write(0, (0, 0), &[(1, none())]),
            write(8, (5, 4), &[(1, some())]),
            write::<Vec<u8>>(8, (0, 0), &[]),
            write(8, (0, 0), &[(0, some())]),
            write(8, (0, 0), &[(1 << 17, some())]),
            write(8, (0, 0), &[(1, none())]),
            write(8, (8, 0), &[(1, some())]),
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
    }
}
