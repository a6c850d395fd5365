//! The header of a `.npy` file: magic number, version, length, and a Python dictionary with exactly the keys
//! `descr`, `fortran_order` and `shape`.
//!
//! Parsed here rather than by a crate: only this small subset of Python's literals may appear, and the parser
//! looked at (`npyz`) multiplies dimensions without a check and allocates what the length field says.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tenfold::Dtype;

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest dictionary read: numpy's own limit.
const MAX_TEXT: usize = 10_000;

/// Most dimensions: numpy's own limit.
const MAX_DIMS: usize = 64;

/// What a header says.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Whether the first index runs fastest.
    pub fortran: bool,
    /// Where the array starts.
    pub data_offset: u64,
}

/// Why a header is refused.
#[derive(Debug)]
enum Refusal {
    Bad(String),
    Unsupported(String),
}

use Refusal::{Bad, Unsupported};

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Bad(reason.into())
    }
}

pub(super) fn read(file: &File, path: &Path) -> Result<Header> {
    // Twelve bytes of preamble at most; what lies beyond is data and stays unread.
    let mut head = Vec::new();
    let read = file.take((12 + MAX_TEXT) as u64).read_to_end(&mut head);
    read.map_err(|source: io::Error| Error::Io { path: path.to_owned(), source })?;
    parse(&head).map_err(|refusal| match refusal {
        Bad(reason) => Error::Malformed { path: path.to_owned(), reason },
        Unsupported(what) => Error::Unsupported { path: path.to_owned(), what },
    })
}

fn parse(head: &[u8]) -> Result<Header, Refusal> {
    let rest = head.strip_prefix(MAGIC).ok_or("not a .npy file: the magic number is missing")?;
    let (len, text) = match rest {
        [1, 0, a, b, text @ ..] => (u32::from(u16::from_le_bytes([*a, *b])), text),
        [2 | 3, 0, a, b, c, d, text @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), text),
        [1..=3, 0, ..] | [] | [_] => return Err("truncated in the header".into()),
        [major, minor, ..] => return Err(Unsupported(format!(".npy version {major}.{minor}"))),
    };
    let len = usize::try_from(len).ok().filter(|&n| n <= MAX_TEXT);
    let len = len.ok_or_else(|| Bad(format!("the header is longer than {MAX_TEXT} bytes")))?;
    let data_offset = (head.len() - text.len() + len) as u64;
    let text = text.get(..len).ok_or("truncated in the header")?;
    let (descr, fortran, shape) = Literals { rest: text }.parse_dictionary()?;
    Ok(Header { dtype: parse_dtype(&descr)?, shape, fortran, data_offset })
}

fn parse_dtype(descr: &str) -> Result<Dtype, Refusal> {
    let (order, kind) = descr.split_at_checked(1).ok_or("the dtype is empty")?;
    let dtype = match kind {
        "b1" => Dtype::Bool,
        "u1" => Dtype::U8,
        "i1" => Dtype::I8,
        "u2" => Dtype::U16,
        "i2" => Dtype::I16,
        "u4" => Dtype::U32,
        "i4" => Dtype::I32,
        "u8" => Dtype::U64,
        "i8" => Dtype::I64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        "O" => {
            return Err(Unsupported(
                "an array of Python objects (pickled), which tenfold never reads".into(),
            ));
        }
        _ => return Err(Unsupported(format!("dtype {descr:?}"))),
    };
    match order {
        "<" => Ok(dtype),
        "|" if dtype.size() == 1 => Ok(dtype),
        ">" => Err(Unsupported(format!("big-endian dtype {descr:?}; save it with .astype('<{kind}')"))),
        _ => Err(Bad(format!("dtype {descr:?} names no byte order"))),
    }
}

/// The subset of Python's literals that a header may hold.
struct Literals<'a> {
    rest: &'a [u8],
}

impl Literals<'_> {
    fn parse_dictionary(&mut self) -> Result<(String, bool, Vec<usize>), Refusal> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.eat(b'}') {
            let key = self.parse_string()?;
            self.expect(b':')?;
            let twice = match key.as_str() {
                "descr" => descr.replace(self.parse_descr()?).is_some(),
                "fortran_order" => fortran.replace(self.parse_boolean()?).is_some(),
                "shape" => shape.replace(self.parse_shape()?).is_some(),
                _ => return Err(Bad(format!("unknown header key {key:?}"))),
            };
            if twice {
                return Err(Bad(format!("header key {key:?} appears twice")));
            }
            if !self.eat(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_space();
        match (self.rest, descr, fortran, shape) {
            ([], Some(descr), Some(fortran), Some(shape)) => Ok((descr, fortran, shape)),
            ([], ..) => Err("a header key is missing".into()),
            _ => Err("text after the header's dictionary".into()),
        }
    }

    fn parse_descr(&mut self) -> Result<String, Refusal> {
        if self.eat(b'[') {
            return Err(Unsupported("a structured dtype".into()));
        }
        self.parse_string()
    }

    fn parse_boolean(&mut self) -> Result<bool, Refusal> {
        self.skip_space();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err("fortran_order is neither True nor False".into())
    }

    fn parse_shape(&mut self) -> Result<Vec<usize>, Refusal> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            if shape.len() == MAX_DIMS {
                return Err(Bad(format!("more than {MAX_DIMS} dimensions")));
            }
            shape.push(self.parse_integer()?);
            if !self.eat(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn parse_integer(&mut self) -> Result<usize, Refusal> {
        self.skip_space();
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        // Python 2 wrote long integers with this suffix.
        self.rest = rest.strip_prefix(b"L").unwrap_or(rest);
        let number = std::str::from_utf8(number).ok().and_then(|s| s.parse().ok());
        number.ok_or_else(|| "a dimension is not a number, or too large for this machine".into())
    }

    fn parse_string(&mut self) -> Result<String, Refusal> {
        self.skip_space();
        let Some((&quote @ (b'\'' | b'"'), rest)) = self.rest.split_first() else {
            return Err("a string is missing in the header".into());
        };
        let end = rest.iter().position(|&b| b == quote || b == b'\\');
        let end = end.filter(|&i| rest[i] == quote).ok_or("a string in the header does not end")?;
        self.rest = &rest[end + 1..];
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn expect(&mut self, byte: u8) -> Result<(), Refusal> {
        match self.eat(byte) {
            true => Ok(()),
            false => Err(Bad(format!("{:?} is missing in the header", byte as char))),
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        match self.rest.split_first() {
            Some((&first, rest)) if first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(text: &str) -> Vec<u8> {
        let mut head = b"\x93NUMPY\x01\x00".to_vec();
        head.extend((text.len() as u16).to_le_bytes());
        head.extend(text.as_bytes());
        head
    }

    #[test]
    fn reads_what_numpy_writes() {
        let got = parse(&v1("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n")).unwrap();
        assert_eq!((got.dtype, got.fortran, got.shape), (Dtype::F32, false, vec![3, 4]));
        for (text, shape) in
            [("()", vec![]), ("(7,)", vec![7]), ("(2L, 3L)", vec![2, 3]), ("(0, 5)", vec![0, 5])]
        {
            let text = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {text}}}\n");
            assert_eq!(parse(&v1(&text)).unwrap().shape, shape);
        }
    }

    #[test]
    fn says_what_it_cannot_read() {
        for descr in ["'|O'", "'>f4'", "'<c8'", "'<U3'", "'|V2'", "[('a', '<f4')]"] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}");
            assert!(matches!(parse(&v1(&text)), Err(Unsupported(_))), "{descr}");
        }
        assert!(matches!(parse(b"\x93NUMPY\x04\x00\x10\x00"), Err(Unsupported(_))));
    }

    #[test]
    fn refuses_damage() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}";
        assert!(parse(&v1(good)).is_ok());
        for end in 0..v1(good).len() {
            assert!(matches!(parse(&v1(good)[..end]), Err(Bad(_))), "cut at {end}");
        }
        for text in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
            "{'descr': '<f4\\'', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '=f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '|f4', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '', 'fortran_order': False, 'shape': (3,)}",
            "((((((((((((((((((((((((((((((((((((((((((",
        ] {
            assert!(matches!(parse(&v1(text)), Err(Bad(_))), "{text}");
        }
        let dims = "1,".repeat(65);
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims})}}");
        assert!(matches!(parse(&v1(&text)), Err(Bad(_))));
        // A length field that asks for four gigabytes.
        assert!(matches!(parse(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), Err(Bad(_))));
    }
}
