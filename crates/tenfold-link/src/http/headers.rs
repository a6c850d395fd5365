//! Headers of answers.

use http::HeaderMap;
use http::header::CONTENT_RANGE;

/// `Content-Range: bytes 0-99/1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Bytes of the whole file.
    pub len: u64,
}

impl ContentRange {
    /// Reads the header; `None` if it is missing, malformed or impossible.
    pub fn read(headers: &HeaderMap) -> Option<ContentRange> {
        let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
        let (range, len) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        let (start, last, len): (u64, u64, u64) = (number(first)?, number(last)?, number(len)?);
        // The length bounds the last byte, so the sum cannot overflow; before the check it could.
        (start <= last && last < len).then(|| ContentRange { start, end: last + 1, len })
    }
}

/// The BLAKE3 digest in an entity tag of `tenfold serve`: `"b3-<64 hexadecimal digits>"`.
pub(crate) fn hash_of_tag(tag: &str) -> Option<blake3::Hash> {
    blake3::Hash::from_hex(tag.strip_prefix("\"b3-")?.strip_suffix('"')?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_ranges_are_none() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, text.parse().unwrap());
            ContentRange::read(&headers)
        };
        assert_eq!(read("bytes 0-0/1"), Some(ContentRange { start: 0, end: 1, len: 1 }));
        for text in
            ["bytes 1-0/5", "bytes 0-5/5", "bytes */5", "bytes 0-1/*", "bytes +0-1/5", "0-1/5", "bytes 0-1"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("bytes 0-18446744073709551615/18446744073709551615"), None);
    }
}
