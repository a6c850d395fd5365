//! From a blob to a tensor: pictures, samples, values, preparation undone.

use std::ops::Range;

use rayon::prelude::*;
use tenfold::engine::threads;
use tenfold::format::Codec;
use tenfold::format::carry::Opened;
use tenfold::{DecodeOptions, Tensor};

use crate::catalog;
use crate::chain;
use crate::codec::{Decoder, Standard};
use crate::error::{Error, Result};
use crate::params::{Meaning, PictureParams};

/// Decodes a blob of pictures into a new tensor with the first decoder that runs here.
pub fn decode(blob: &[u8], options: &DecodeOptions) -> Result<Tensor> {
    decode_with(blob, options, None)
}

/// Decodes with a decoder chosen by name, as [`crate::decoders`] lists them.
pub fn decode_with(blob: &[u8], options: &DecodeOptions, decoder: Option<&str>) -> Result<Tensor> {
    let pictures = PictureDecoder::open(blob, options, decoder)?;
    let shape = pictures.opened.parcel.shape.clone();
    // An empty tensor may have rows without number.
    let rows = if pictures.opened.parcel.values() == 0 { 0 } else { pictures.opened.parcel.rows() };
    let data = threads::install(options.threads, || pictures.decode_elements(0..rows))??;
    Ok(Tensor { dtype: pictures.opened.parcel.dtype, shape, data })
}

/// Decodes rows of the two-dimensional view; only the pictures that hold them are decoded.
pub fn decode_rows(blob: &[u8], rows: Range<usize>, options: &DecodeOptions) -> Result<Tensor> {
    decode_rows_with(blob, rows, options, None)
}

pub(crate) fn decode_rows_with(
    blob: &[u8],
    rows: Range<usize>,
    options: &DecodeOptions,
    decoder: Option<&str>,
) -> Result<Tensor> {
    let pictures = PictureDecoder::open(blob, options, decoder)?;
    let parcel = &pictures.opened.parcel;
    let (cols, all) = (parcel.cols(), parcel.rows());
    if rows.start > rows.end || rows.end > all {
        let reason =
            format!("rows {}..{} are outside the tensor, which has {all} rows", rows.start, rows.end);
        return Err(tenfold::Error::InvalidArgument(reason).into());
    }
    // The columns of an empty tensor may be too many to multiply.
    let wanted = if parcel.values() == 0 { 0..0 } else { rows.clone() };
    let data = threads::install(options.threads, || pictures.decode_elements(wanted))??;
    Ok(Tensor { dtype: parcel.dtype, shape: vec![rows.len(), cols], data })
}

/// Checksum of a picture's samples, each as two bytes.
pub(crate) fn check_of(samples: &[u16]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = [0u8; 4096];
    for part in samples.chunks(bytes.len() / 2) {
        bytes.as_chunks_mut::<2>().0.iter_mut().zip(part).for_each(|(b, s)| *b = s.to_le_bytes());
        hasher.update(&bytes[..part.len() * 2]);
    }
    hasher.finalize()
}

/// A blob of pictures, and the decoder for them.
struct PictureDecoder<'a> {
    opened: Opened<'a>,
    params: PictureParams,
    decoder: &'static dyn Decoder,
    standard: Standard,
}

impl<'a> PictureDecoder<'a> {
    fn open(blob: &'a [u8], options: &DecodeOptions, decoder: Option<&str>) -> Result<Self> {
        let mut opened = Opened::read(blob, &options.limits)?;
        opened.resolve(&options.bases)?;
        let standard = match opened.parcel.codec {
            Codec::H264 => Standard::H264,
            Codec::Av1 => Standard::Av1,
            _ => Standard::H265,
        };
        let params = PictureParams::read(&opened.parcel)?;
        let decoder = catalog::decoder(standard, decoder)?;
        Ok(PictureDecoder { opened, params, decoder, standard })
    }

    /// Elements of whole rows.
    fn decode_elements(&self, rows: Range<usize>) -> Result<Vec<u8>> {
        let parcel = &self.opened.parcel;
        let (cols, width) = (parcel.cols(), parcel.width());
        let coded = rows.start * width..rows.end * width;
        let samples = self.decode_samples(&coded)?;
        let mapping = match &self.params.meaning {
            Meaning::Bytes => return Ok(samples.iter().map(|&s| s as u8).collect()),
            Meaning::Mapped(mapping) => mapping,
        };
        let mut values = vec![0.0; samples.len()];
        mapping.to_values(&samples, coded.start, width, self.params.format.depth, &mut values);
        let values = chain::inverse(&parcel.transforms, values, cols, rows.start);
        let mut data = Tensor::from_f64(parcel.dtype, &[values.len()], &values)?.data;
        let (size, range) = (parcel.dtype.size(), rows.start * cols..rows.end * cols);
        for (at, element) in self.params.specials.iter().filter(|s| range.contains(&s.0)) {
            let at = (at - range.start) * size;
            data[at..at + size].copy_from_slice(element);
        }
        Ok(data)
    }

    /// Samples of consecutive values, of those that the pictures hold.
    fn decode_samples(&self, range: &Range<usize>) -> Result<Vec<u16>> {
        let mut out = vec![0u16; range.len()];
        if range.is_empty() {
            return Ok(out);
        }
        let picture = self.params.format.samples();
        let first = range.start / picture;
        // The part of each picture that lies within the range, and where it goes.
        let mut pieces = Vec::new();
        let mut rest = &mut out[..];
        for i in first..=(range.end - 1) / picture {
            let from = range.start.max(i * picture) - i * picture;
            let to = range.end.min((i + 1) * picture) - i * picture;
            let (piece, later) = rest.split_at_mut(to - from);
            pieces.push((i, from, piece));
            rest = later;
        }
        pieces.into_par_iter().try_for_each_init(Vec::new, |buffer, (i, from, piece)| {
            buffer.resize(picture, 0);
            self.decode_picture(i, buffer)?;
            piece.copy_from_slice(&buffer[from..from + piece.len()]);
            Ok::<(), Error>(())
        })?;
        Ok(out)
    }

    /// Decodes one picture and compares its checksum.
    fn decode_picture(&self, i: usize, out: &mut [u16]) -> Result<()> {
        let tile = self.opened.tile(i)?;
        let (check, stream) =
            tile.split_first_chunk::<4>().ok_or(tenfold::Error::Corrupt("a tile without a picture"))?;
        self.decoder.decode(&self.params.format, &self.params.parameter_sets, &[stream], out)?;
        if check_of(out) != u32::from_le_bytes(*check) {
            let reason = format!("picture {i} decodes to other samples than were written");
            return Err(Error::Stream { standard: self.standard, reason });
        }
        Ok(())
    }
}
