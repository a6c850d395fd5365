//! What a blob of pictures stores beside the pictures: their format, how values became samples, values that
//! no sample holds, and the codec's parameter sets.
//!
//! Normative: docs/format.md, 'Pictures'.

use half::bf16;
use tenfold::format::carry::{Parcel, Reader, put_varint};
use tenfold::{Dtype, Error};

use crate::codec::{Chroma, Format};
use crate::samples::{Mapping, Scaling};

/// Longest side of a picture.
const MAX_SIDE: u64 = 16384;
/// A picture may be as large as this whatever the tensor: codecs have a smallest size.
const FREE_SAMPLES: usize = 1 << 16;

/// Whether a picture of so many samples may hold a tensor of so many coded values.
pub(crate) fn may_hold(samples: usize, values: usize) -> bool {
    samples <= FREE_SAMPLES.max(values.saturating_mul(2))
}

/// How samples stand for values.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// Real numbers.
    Mapped(Mapping),
    /// The bytes of elements of one byte.
    Bytes,
}

/// Stored parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureParams {
    /// Size and kind of each picture.
    pub format: Format,
    /// How samples stand for values.
    pub meaning: Meaning,
    /// Positions of values that are NaN or infinite, with their element as stored.
    pub specials: Vec<(usize, Vec<u8>)>,
    /// What every picture needs.
    pub parameter_sets: Vec<u8>,
}

impl PictureParams {
    pub fn write(&self) -> Vec<u8> {
        let mut out = vec![self.format.depth, u8::from(self.format.chroma == Chroma::Constant)];
        put_varint(&mut out, self.format.width as u64);
        put_varint(&mut out, self.format.height as u64);
        match &self.meaning {
            Meaning::Bytes => out.push(3),
            Meaning::Mapped(m) => {
                match m.scaling {
                    Scaling::Tensor => out.push(0),
                    Scaling::Rows(group) => {
                        out.push(1);
                        put_varint(&mut out, group as u64);
                    }
                    Scaling::Columns => out.push(2),
                }
                out.extend_from_slice(&m.base.to_le_bytes());
                out.extend_from_slice(&m.unit.to_le_bytes());
                for (centre, step) in &m.parts {
                    out.extend_from_slice(&centre.to_le_bytes());
                    out.extend_from_slice(&step.to_le_bytes());
                }
            }
        }
        put_varint(&mut out, self.specials.len() as u64);
        let mut last = 0;
        for (at, element) in &self.specials {
            put_varint(&mut out, (at - last) as u64);
            out.extend_from_slice(element);
            last = *at;
        }
        out.extend_from_slice(&self.parameter_sets);
        out
    }

    /// Reads the parameters of a parcel and holds them against its shape.
    pub fn read(parcel: &Parcel) -> Result<PictureParams, Error> {
        let mut r = Reader::new(&parcel.params);
        let [depth, chroma] = r.array()?;
        let chroma = match chroma {
            0 => Chroma::None,
            1 => Chroma::Constant,
            _ => return Err(Error::Corrupt("kind of picture")),
        };
        let (width, height) = (read_side(&mut r)?, read_side(&mut r)?);
        let format = Format { width, height, depth, chroma };
        let fits = width * height == parcel.tile_values;
        let holds = may_hold(width * height, parcel.coded());
        if ![8, 10, 12].contains(&depth) || !fits || !holds {
            return Err(Error::Corrupt("format of the pictures"));
        }
        let meaning = read_meaning(&mut r, parcel)?;
        if meaning == Meaning::Bytes && depth != 8 {
            return Err(Error::Corrupt("bytes as samples of another depth"));
        }
        let specials = read_specials(&mut r, parcel.values(), parcel.dtype)?;
        Ok(PictureParams { format, meaning, specials, parameter_sets: r.rest().to_vec() })
    }
}

const SHORT: Error = Error::Corrupt("the parameters of the pictures");

fn read_side(r: &mut Reader<'_>) -> Result<usize, Error> {
    match r.varint()? {
        side @ 1..=MAX_SIDE => Ok(side as usize),
        _ => Err(Error::Corrupt("side of a picture")),
    }
}

fn read_real(r: &mut Reader<'_>) -> Result<f64, Error> {
    let v = f64::from_le_bytes(r.array()?);
    if v.is_finite() { Ok(v) } else { Err(Error::Corrupt("scale of the samples")) }
}

fn read_meaning(r: &mut Reader<'_>, parcel: &Parcel) -> Result<Meaning, Error> {
    let cols = parcel.width();
    // An empty tensor may have rows without number; it has no parts of them.
    let rows = parcel.coded() / cols.max(1);
    let scaling = match r.array()? {
        [0] => Scaling::Tensor,
        [1] => {
            let group = usize::try_from(r.varint()?).unwrap_or(usize::MAX);
            Scaling::Rows(Some(group).filter(|g| (1..=rows.max(1)).contains(g)).ok_or(SHORT)?)
        }
        [2] => Scaling::Columns,
        [3] if !parcel.transforms.is_empty() => return Err(Error::Corrupt("bytes behind transforms")),
        [3] if parcel.dtype.size() == 1 => return Ok(Meaning::Bytes),
        _ => return Err(Error::Corrupt("meaning of the samples")),
    };
    if !parcel.dtype.is_float() {
        return Err(Error::Corrupt("integers as scaled samples"));
    }
    let (base, unit) = (read_real(r)?, read_real(r)?);
    let count = scaling.parts(rows, cols);
    let bytes = r.take(count.checked_mul(4).ok_or(SHORT)?)?;
    let part = |b: &[u8]| (bf16::from_le_bytes([b[0], b[1]]), bf16::from_le_bytes([b[2], b[3]]));
    let parts: Vec<(bf16, bf16)> = bytes.chunks_exact(4).map(part).collect();
    if unit <= 0.0 || parts.iter().any(|(c, s)| !c.is_finite() || !s.is_finite() || s.to_f64() <= 0.0) {
        return Err(Error::Corrupt("scale of the samples"));
    }
    Ok(Meaning::Mapped(Mapping { scaling, base, unit, parts }))
}

fn read_specials(r: &mut Reader<'_>, values: usize, dtype: Dtype) -> Result<Vec<(usize, Vec<u8>)>, Error> {
    let count = r.varint()?;
    // Each takes at least its gap and its element.
    if count > (r.rest().len() / (1 + dtype.size())) as u64 {
        return Err(SHORT);
    }
    let mut specials = Vec::with_capacity(count as usize);
    let mut at = 0usize;
    for i in 0..count {
        let gap = usize::try_from(r.varint()?).unwrap_or(usize::MAX);
        at = at.checked_add(gap).filter(|&a| a < values && (gap > 0 || i == 0)).ok_or(SHORT)?;
        specials.push((at, r.take(dtype.size())?.to_vec()));
    }
    Ok(specials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenfold::format::Codec;

    fn parcel(dtype: Dtype, params: Vec<u8>) -> Parcel {
        Parcel {
            codec: Codec::H265,
            dtype,
            shape: vec![30, 40],
            transforms: vec![],
            tile_values: 40 * 32,
            params,
        }
    }

    fn samples() -> Vec<(Dtype, PictureParams)> {
        let format = Format { width: 40, height: 32, depth: 8, chroma: Chroma::None };
        let of = |scaling: Scaling, specials| {
            let one = (bf16::from_f32(0.5), bf16::from_f32(2.0));
            let parts = vec![one; scaling.parts(30, 40)];
            let meaning = Meaning::Mapped(Mapping { scaling, base: -1.5, unit: 0.25, parts });
            PictureParams { format, meaning, specials, parameter_sets: vec![1, 2, 3] }
        };
        vec![
            (Dtype::F32, of(Scaling::Tensor, vec![(0, vec![1; 4]), (1199, vec![2; 4])])),
            (Dtype::Bf16, of(Scaling::Rows(7), vec![])),
            (Dtype::F16, of(Scaling::Columns, vec![(700, vec![9; 2])])),
            (Dtype::U8, PictureParams { meaning: Meaning::Bytes, ..of(Scaling::Tensor, vec![]) }),
        ]
    }

    #[test]
    fn parameters_come_back() {
        for (dtype, params) in samples() {
            assert_eq!(PictureParams::read(&parcel(dtype, params.write())).unwrap(), params);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (dtype, params) in samples() {
            let bytes = params.write();
            let fixed = bytes.len() - params.parameter_sets.len();
            for cut in 0..fixed {
                assert!(PictureParams::read(&parcel(dtype, bytes[..cut].to_vec())).is_err(), "{dtype} {cut}");
            }
            let changed = |at: usize, v: u8| {
                let mut bad = bytes.clone();
                bad[at] = v;
                PictureParams::read(&parcel(dtype, bad))
            };
            assert!(changed(0, 9).is_err() && changed(1, 2).is_err() && changed(4, 4).is_err());
            // A width that disagrees with the tile, and none at all.
            assert!(changed(2, 41).is_err() && changed(2, 0).is_err());
        }
        let (_, params) = samples().remove(0);
        let mut other = parcel(Dtype::F32, params.write());
        other.shape = vec![1];
        assert!(PictureParams::read(&other).is_err(), "a special beyond the end");
        let large = Format { width: 8192, height: 8192, ..params.format };
        let mut other = parcel(Dtype::F32, PictureParams { format: large, ..params }.write());
        other.tile_values = 8192 * 8192;
        assert!(PictureParams::read(&other).is_err(), "a picture far larger than the tensor");
    }
}
