//! Between the dtypes of a safetensors header and those of the codec. A header may name types that the
//! codec does not have (complex, 4- and 6-bit floats); such tensors pass through untouched.

use safetensors::Dtype as Stored;
use tenfold::Dtype;

use crate::error::{Error, Result};

const PAIRS: [(Stored, Dtype); 15] = [
    (Stored::BOOL, Dtype::Bool),
    (Stored::U8, Dtype::U8),
    (Stored::I8, Dtype::I8),
    (Stored::U16, Dtype::U16),
    (Stored::I16, Dtype::I16),
    (Stored::U32, Dtype::U32),
    (Stored::I32, Dtype::I32),
    (Stored::U64, Dtype::U64),
    (Stored::I64, Dtype::I64),
    (Stored::F8_E4M3, Dtype::F8E4M3),
    (Stored::F8_E5M2, Dtype::F8E5M2),
    (Stored::F16, Dtype::F16),
    (Stored::BF16, Dtype::Bf16),
    (Stored::F32, Dtype::F32),
    (Stored::F64, Dtype::F64),
];

/// The codec's dtype, if it has one for this type.
pub(crate) fn codec_dtype(stored: Stored) -> Option<Dtype> {
    PAIRS.iter().find(|(s, _)| *s == stored).map(|(_, d)| *d)
}

/// The header's type for a dtype of the codec.
pub(crate) fn stored_dtype(dtype: Dtype) -> Result<Stored> {
    let found = PAIRS.iter().find(|(_, d)| *d == dtype).map(|(s, _)| *s);
    found.ok_or_else(|| Error::InvalidArgument(format!("safetensors has no type for {dtype}")))
}

/// Name for people: the codec's name where there is one, else the header's in lower case.
pub(crate) fn dtype_name(stored: Stored) -> String {
    match codec_dtype(stored) {
        Some(dtype) => dtype.name().to_owned(),
        None => stored.to_string().to_lowercase(),
    }
}

/// The type of a name as it stands in a header.
pub(crate) fn parse_dtype(name: &str) -> Option<Stored> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_dtype_has_a_stored_type_and_comes_back() {
        for dtype in Dtype::ALL {
            let stored = stored_dtype(dtype).unwrap();
            assert_eq!(codec_dtype(stored), Some(dtype));
            assert_eq!(parse_dtype(&stored.to_string()), Some(stored));
        }
        assert_eq!(dtype_name(Stored::C64), "c64");
    }
}
