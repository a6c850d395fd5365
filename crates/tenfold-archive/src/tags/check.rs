//! Checksums of what no blob covers: CRC-32, as everywhere in the format, in eight hexadecimal digits.

use crc32fast::Hasher;
use rayon::prelude::*;
use tenfold::TensorView;

use super::{CHECK, MODEL, PREFIX, SCOPE, get};
use crate::error::Result;
use crate::safetensors::{StoredDtype, stored_dtype};

/// Bytes that a thread takes at once.
const CHUNK: usize = 1 << 20;

/// The checksum that a file states of a tensor that is stored as it was; for [`model_tags`](crate::model_tags).
pub fn checksum(tensor: &TensorView<'_>) -> Result<u32> {
    Ok(tensor_checksum(stored_dtype(tensor.dtype())?, tensor.shape(), tensor.data()))
}

/// The checksum of a tensor that is stored as it was: of its dtype and shape, as in `F32[2,3]`, and its bytes.
pub(crate) fn tensor_checksum(dtype: StoredDtype, shape: &[usize], bytes: &[u8]) -> u32 {
    let mut sum = tensor_hasher(dtype, shape);
    let of_chunk = |chunk: &[u8]| {
        let mut sum = Hasher::new();
        sum.update(chunk);
        sum
    };
    let of_bytes = bytes.par_chunks(CHUNK).map(of_chunk).reduce(Hasher::new, |mut first, next| {
        first.combine(&next);
        first
    });
    sum.combine(&of_bytes);
    sum.finalize()
}

/// The checksum up to the bytes.
pub(crate) fn tensor_hasher(dtype: StoredDtype, shape: &[usize]) -> Hasher {
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    let mut sum = Hasher::new();
    sum.update(format!("{dtype}[{}]", shape.join(",")).as_bytes());
    sum
}

/// A tensor of a header.
pub(super) struct Place<'a> {
    pub name: &'a str,
    pub dtype: StoredDtype,
    pub shape: &'a [usize],
    pub begin: u64,
    pub end: u64,
}

/// The checksum of a header. Writers that give all files of a model the same metadata know neither what else is in it nor
/// which tensors lie where: theirs covers our keys alone.
pub(super) fn header_checksum<'a>(
    metadata: &[(String, String)],
    tensors: impl IntoIterator<Item = Place<'a>>,
) -> u32 {
    let whole_model = get(metadata, SCOPE) == Some(MODEL);
    let covered = |key: &str| key != CHECK && (!whole_model || key.starts_with(PREFIX));
    let mut pairs: Vec<_> = metadata.iter().filter(|(key, _)| covered(key)).collect();
    // Metadata is a map to most programs: its order may change.
    pairs.sort();
    let mut sum = Hasher::new();
    for (key, value) in pairs {
        add_text(&mut sum, key);
        add_text(&mut sum, value);
    }
    for tensor in tensors.into_iter().filter(|_| !whole_model) {
        add_text(&mut sum, tensor.name);
        add_text(&mut sum, &tensor.dtype.to_string());
        add_number(&mut sum, tensor.shape.len() as u64);
        for &size in tensor.shape {
            add_number(&mut sum, size as u64);
        }
        add_number(&mut sum, tensor.begin);
        add_number(&mut sum, tensor.end);
    }
    sum.finalize()
}

fn add_text(sum: &mut Hasher, text: &str) {
    add_number(sum, text.len() as u64);
    sum.update(text.as_bytes());
}

fn add_number(sum: &mut Hasher, number: u64) {
    sum.update(&number.to_le_bytes());
}

/// A checksum as it stands in metadata.
pub(super) fn to_hex(sum: u32) -> String {
    format!("{sum:08x}")
}

/// The same, read. There is one way to write it, so that no flipped bit leaves it as it was.
pub(super) fn from_hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok().filter(|&sum| to_hex(sum) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_in_chunks_has_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5 * CHUNK / 2).map(|i| ((i * i) >> 7) as u8).collect();
        let whole = [b"U8[5,524288]", bytes.as_slice()].concat();
        assert_eq!(tensor_checksum(StoredDtype::U8, &[5, 524288], &bytes), crc32fast::hash(&whole));
        assert_eq!(
            tensor_checksum(StoredDtype::F32, &[], &[1, 2, 3, 4]),
            crc32fast::hash(b"F32[]\x01\x02\x03\x04")
        );
        assert_eq!(tensor_checksum(StoredDtype::BF16, &[0, 3], &[]), crc32fast::hash(b"BF16[0,3]"));
    }

    #[test]
    fn digits_read_in_one_form_alone() {
        assert_eq!(from_hex(&to_hex(0xa0f)), Some(0xa0f));
        for text in ["", "a0f", "00000A0f", "+0000a0f", "000000a0f", "0000g000"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
