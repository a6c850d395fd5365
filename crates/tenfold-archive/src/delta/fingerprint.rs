//! How versions of models are told apart: by names and every byte of every tensor.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tenfold::TensorView;
use tenfold::delta::Fingerprint;
use tenfold::engine::threads;

use super::tensors::{Meta, Tensors};
use crate::compress::batches;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::safetensors::{StoredDtype, codec_dtype};

/// Stands for every dtype that the codec does not have; the dtype's name follows.
const OTHER: u8 = 255;

/// Fingerprints by the names of tensors.
pub(super) type Prints = BTreeMap<String, Fingerprint>;

/// The fingerprint of a model: of the names and bytes of all tensors, their dtypes and shapes. It does not depend on their order, on metadata, or on how
/// the model is stored: compressed without loss it has the same one.
pub fn fingerprint(tensors: &Tensors<'_>, threads: usize, progress: &dyn Progress) -> Result<Fingerprint> {
    let all: Vec<usize> = (0..tensors.items().len()).collect();
    let work = || -> Result<Fingerprint> {
        progress.start(tensors.bytes());
        let mut prints = Prints::new();
        for batch in batches(&all, |i| tensors.items()[i].bytes) {
            progress.message(&tensors.items()[batch.start].name);
            let each = |i: usize| {
                let meta = &tensors.items()[i];
                let print = of_tensor(meta, &tensors.read(i)?)?;
                progress.advance(meta.bytes);
                Ok((meta.name.clone(), print))
            };
            prints.par_extend(batch.into_par_iter().map(each).collect::<Result<Vec<_>>>()?);
        }
        Ok(of_model(&prints))
    };
    threads::install(threads, work).map_err(Error::Threads)?
}

/// The fingerprint of a tensor.
pub(super) fn of_tensor(meta: &Meta, data: &[u8]) -> Result<Fingerprint> {
    of_parts(meta.stored, &meta.shape, data).map_err(Error::codec(&meta.name))
}

/// The same of a tensor's parts.
pub(super) fn of_parts(
    dtype: StoredDtype,
    shape: &[usize],
    data: &[u8],
) -> tenfold::engine::Result<Fingerprint> {
    if let Some(dtype) = codec_dtype(dtype) {
        return Ok(tenfold::delta::fingerprint(&TensorView::new(dtype, shape, data)?));
    }
    let mut hasher = blake3::Hasher::new();
    let name = dtype.to_string();
    hasher.update(&[OTHER]);
    add_text(&mut hasher, &name);
    hasher.update(&(shape.len() as u64).to_le_bytes());
    shape.iter().for_each(|&d| {
        hasher.update(&(d as u64).to_le_bytes());
    });
    hasher.update(data);
    Ok(short(&hasher))
}

/// The fingerprint of a model, from those of its tensors, which cover dtypes and shapes.
pub(super) fn of_model(tensors: &Prints) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    for (name, print) in tensors {
        add_text(&mut hasher, name);
        hasher.update(&print.0);
    }
    short(&hasher)
}

fn add_text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

fn short(hasher: &blake3::Hasher) -> Fingerprint {
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Fingerprint(short)
}

/// Reads a fingerprint as it is printed: 32 lower-case hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<Fingerprint> {
    let mut print = [0; 16];
    if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in print.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(Fingerprint(print))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_read_in_one_form_alone() {
        let print = Fingerprint(std::array::from_fn(|i| 17 * i as u8));
        assert_eq!(from_hex(&print.to_string()), Some(print));
        for bad in ["", "00", &print.to_string().to_uppercase(), &format!("+{}", &print.to_string()[1..])] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_and_other_dtypes_count() {
        let print = Fingerprint([1; 16]);
        let one = |name: &str| of_model(&Prints::from([(name.to_owned(), print)]));
        assert_ne!(one("a"), one("b"));
        let complex = |shape: &[usize]| of_parts(StoredDtype::C64, shape, &[0; 16]).unwrap();
        assert_ne!(complex(&[2]), complex(&[1, 2]));
        assert_ne!(complex(&[2]), of_parts(StoredDtype::F64, &[2], &[0; 16]).unwrap());
    }
}
