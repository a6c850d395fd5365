//! Streams to decode: a folder of small blobs of pictures of Gaussian noise with a list of what they are, made once where there are
//! encoders and decoded where there is a GPU. A blob's pictures over and over make a tensor as large as a measurement wants.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tenfold::engine::Limits;
use tenfold::format::carry::{Opened, Parcel};

/// The list's file.
const LIST: &str = "streams.json";

/// A blob of pictures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stream {
    /// Its file is this with `.tnfd`.
    pub name: String,
    /// H.264, H.265 or AV1.
    pub standard: String,
    /// Who made it, and how hard it searched.
    pub encoder: String,
    pub effort: String,
    /// Side of a picture.
    pub side: usize,
    pub pictures: usize,
    /// Bits a value, all bytes counted.
    pub bits: f64,
    /// The fixed quantiser, if that was the goal.
    pub qp: Option<u32>,
    /// CRC-32 of the bf16 tensor that it decodes to.
    pub crc32: u32,
}

impl Stream {
    /// For tables.
    pub fn describe(&self) -> String {
        let goal = self.qp.map_or(String::new(), |qp| format!(", QP {qp}"));
        format!("{} {}² {} {}{goal}", self.standard, self.side, self.encoder, self.effort)
    }

    /// Values of the blob.
    pub fn values(&self) -> usize {
        self.pictures * self.side * self.side
    }
}

/// The list of a folder.
pub(super) fn list(folder: &Path) -> Result<Vec<Stream>> {
    let path = folder.join(LIST);
    let text = fs::read(&path).with_context(|| {
        let how =
            "make streams with `tenfold-lab bench nvcodec --make FOLDER` where tenfold-lab has video codecs";
        format!("cannot read {}: {how}", path.display())
    })?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not a list of streams", path.display()))
}

/// Writes the list of a folder.
#[cfg_attr(not(feature = "video"), allow(dead_code))] // reading is all a build without codecs does
pub(super) fn save_list(folder: &Path, streams: &[Stream]) -> Result<()> {
    let path = folder.join(LIST);
    let text = serde_json::to_string_pretty(streams).context("the list does not serialise")?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// The blob of a stream.
pub(super) fn read(folder: &Path, stream: &Stream) -> Result<Vec<u8>> {
    ensure!(!stream.name.contains(['/', '\\']), "the list names a stream of another folder");
    let path = folder.join(format!("{}.tnfd", stream.name));
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A blob whose tensor is that of `blob` so many times, row after row. The pictures must all be full ones, and have one scale.
pub(super) fn repeat(blob: &[u8], times: usize) -> Result<Vec<u8>> {
    let opened = Opened::read(blob, &Limits::default())?;
    let tiles: Vec<Vec<u8>> = (0..opened.parcel.tiles())
        .map(|i| Ok(opened.tile(i)?.to_vec()))
        .collect::<Result<_, tenfold::Error>>()?;
    let parcel = opened.parcel;
    let [rows, cols] = parcel.shape[..] else { bail!("a stream of {} dimensions", parcel.shape.len()) };
    ensure!(
        parcel.values() == tiles.len() * parcel.tile_values,
        "the last picture of the stream is not full"
    );
    let all: Vec<Vec<u8>> = (0..times.max(1)).flat_map(|_| tiles.iter().cloned()).collect();
    let shape = vec![rows * times.max(1), cols];
    Ok(Parcel { shape, ..parcel }.write(all)?)
}

/// A blob of the first picture of `blob` alone.
pub(super) fn first(blob: &[u8]) -> Result<Vec<u8>> {
    let opened = Opened::read(blob, &Limits::default())?;
    let tile = opened.tile(0)?.to_vec();
    let parcel = opened.parcel;
    let cols = parcel.cols().max(1);
    ensure!(parcel.tile_values.is_multiple_of(cols), "a picture of the stream is not whole rows");
    let shape = vec![parcel.tile_values / cols, cols];
    Ok(Parcel { shape, ..parcel }.write(vec![tile])?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use tenfold::Dtype;
    use tenfold::format::Codec;

    #[test]
    fn a_repeated_blob_has_its_pictures_in_turn() {
        let parcel = |rows| Parcel {
            codec: Codec::H265,
            dtype: Dtype::Bf16,
            shape: vec![rows, 4],
            transforms: Vec::new(),
            tile_values: 8,
            params: vec![7; 5],
        };
        let blob = parcel(4).write(vec![vec![1; 9], vec![2; 3]]).unwrap();
        let long = repeat(&blob, 3).unwrap();
        let opened = Opened::read(&long, &Limits::default()).unwrap();
        assert_eq!((opened.parcel.shape.clone(), opened.parcel.tiles()), (vec![12, 4], 6));
        let lengths: Vec<usize> = (0..6).map(|i| opened.tile(i).unwrap().len()).collect();
        assert_eq!(lengths, [9, 3, 9, 3, 9, 3]);
        assert_eq!(opened.parcel.params, [7; 5]);
        let alone = first(&blob).unwrap();
        let opened = Opened::read(&alone, &Limits::default()).unwrap();
        assert_eq!((opened.parcel.shape.clone(), opened.tile(0).unwrap().len()), (vec![2, 4], 9));
        let part = parcel(3).write(vec![vec![1; 9], vec![2; 3]]).unwrap();
        assert!(repeat(&part, 2).unwrap_err().to_string().contains("not full"));
    }

    #[test]
    fn a_list_comes_back_and_a_missing_one_says_how_to_make_it() {
        let folder = tempfile::tempdir().unwrap();
        let missing = list(folder.path()).unwrap_err().to_string();
        assert!(missing.contains("--make"), "{missing}");
        let stream = Stream {
            name: "one".into(),
            standard: "H.265".into(),
            encoder: "x265".into(),
            effort: "fast".into(),
            side: 256,
            pictures: 4,
            bits: 2.75,
            qp: Some(18),
            crc32: 7,
        };
        save_list(folder.path(), std::slice::from_ref(&stream)).unwrap();
        assert_eq!(list(folder.path()).unwrap(), std::slice::from_ref(&stream));
        assert!(read(folder.path(), &Stream { name: "../one".into(), ..stream.clone() }).is_err());
        assert!(read(folder.path(), &stream).is_err());
    }
}
