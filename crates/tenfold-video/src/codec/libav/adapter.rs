//! The encoders and decoders of the list, as the traits that the rest of the crate uses.

use super::super::{Abilities, Coded, Decoder, Encoder, Format, Quality, Settings, Standard};
use super::spec::{LibavDecoder, LibavEncoder};
use super::{decode, encode, formats};
use crate::error::{Error, Result};

impl LibavEncoder {
    fn refuse<T>(&self, reason: String) -> Result<T> {
        Err(Error::Refused { name: self.name.to_string(), reason })
    }

    fn check(&self, settings: &Settings) -> Result<()> {
        let Format { width, height, .. } = settings.format;
        let range = self.min_side..=self.max_side;
        if !range.contains(&width) || !range.contains(&height) {
            return self.refuse(format!(
                "pictures of {width}×{height}; sides go from {} to {}",
                self.min_side, self.max_side
            ));
        }
        match settings.quality {
            Quality::Qp(qp) if qp > self.max_qp => {
                self.refuse(format!("a quantiser of {qp}; the coarsest is {}", self.max_qp))
            }
            Quality::Lossless if !self.lossless => self.refuse("lossless coding".to_string()),
            _ => Ok(()),
        }
    }
}

impl Encoder for LibavEncoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn standard(&self) -> Standard {
        self.standard
    }

    fn abilities(&self) -> Result<Abilities> {
        let (depths, chroma) = formats::find_formats(self)?;
        if self.is_hardware() {
            // A library that lists the encoder says nothing of the machine: try it.
            encode::probe(self, depths[0], chroma[0])?;
        }
        Ok(Abilities {
            depths,
            chroma,
            qp: 0..=self.max_qp,
            lossless: self.lossless,
            min_side: self.min_side,
            max_side: self.max_side,
        })
    }

    fn encode(&self, settings: &Settings, pictures: &[&[u16]]) -> Result<Coded> {
        self.check(settings)?;
        encode::run(self, settings, pictures)
    }
}

impl Decoder for LibavDecoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn standard(&self) -> Standard {
        self.standard
    }

    fn probe(&self) -> Result<()> {
        decode::probe(self)
    }

    fn decode(
        &self,
        format: &Format,
        parameter_sets: &[u8],
        pictures: &[&[u8]],
        out: &mut [u16],
    ) -> Result<()> {
        decode::run(self, format, parameter_sets, pictures, out)
    }
}
