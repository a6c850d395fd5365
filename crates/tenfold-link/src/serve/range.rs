//! `Range` of a request.

use std::ops::Range;

/// What a request wants of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it: it names no range, or one in a form that may be ignored.
    All,
    Part(Range<u64>),
    /// A range that the file does not have.
    Nothing,
}

/// Reads a `Range` header for a file of `len` bytes.
pub(super) fn wanted(header: Option<&str>, len: u64) -> Wanted {
    let Some(spec) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else { return Wanted::All };
    let number = |text: &str| -> Option<u64> {
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    match spec.split_once('-') {
        // Several ranges would need a multipart answer.
        _ if spec.contains(',') => Wanted::All,
        Some(("", last)) => match number(last) {
            Some(0) => Wanted::Nothing,
            Some(_) if len == 0 => Wanted::Nothing,
            Some(n) => Wanted::Part(len.saturating_sub(n)..len),
            None => Wanted::All,
        },
        Some((first, last)) => match (number(first), last.is_empty(), number(last)) {
            (Some(first), true, _) if first < len => Wanted::Part(first..len),
            (Some(first), false, Some(last)) if first <= last && first < len => {
                Wanted::Part(first..len.min(last.saturating_add(1)))
            }
            (Some(first), true, _) | (Some(first), false, Some(_)) if first >= len => Wanted::Nothing,
            _ => Wanted::All,
        },
        None => Wanted::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_the_standard_has_them() {
        let of = |text| wanted(Some(text), 100);
        assert_eq!(of("bytes=0-0"), Wanted::Part(0..1));
        assert_eq!(of("bytes=10-"), Wanted::Part(10..100));
        assert_eq!(of("bytes=90-18446744073709551615"), Wanted::Part(90..100));
        assert_eq!(of("bytes=-7"), Wanted::Part(93..100));
        assert_eq!(of("bytes=-700"), Wanted::Part(0..100));
        for text in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(of(text), Wanted::Nothing, "{text}");
        }
        for text in [
            "bytes=5-4",
            "bytes=a-b",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes=",
            "bytes=-",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(of(text), Wanted::All, "{text}");
        }
        assert_eq!(wanted(None, 5), Wanted::All);
        assert_eq!(wanted(Some("bytes=0-0"), 0), Wanted::Nothing);
    }
}
