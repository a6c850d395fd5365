//! A large blob out of a small one: tiles are independent, so a tensor that repeats itself has tiles that do.
//!
//! Encoding half a thousand million values on a CPU takes minutes, and says nothing more about decoding than a few
//! million do. Follows docs/format.md, 'Blob'; what the parameters mean matters only where their length does.

use anyhow::{Context, Result, ensure};
use tenfold::format::Codec;
use tenfold::format::carry::{Reader, put_varint};
use tenfold::prepare::{Axis, Transform};
use tenfold::{DecodeOptions, Dtype, format};

/// The blob of a tensor stacked `times` times along its first dimension; along its last one, if it is transposed.
///
/// The tensor has at least one dimension, and its values are whole tiles and whole rows of the class map.
pub(super) fn repeat(blob: &[u8], times: usize) -> Result<Vec<u8>> {
    let info = tenfold::format::BlobInfo::read_native(blob, &DecodeOptions::default().limits)?;
    ensure!(times > 0 && !info.shape.is_empty(), "there is nothing to stack");
    ensure!(
        info.values > 0 && info.values.is_multiple_of(info.tile_values),
        "{} values are no whole tiles of {}",
        info.values,
        info.tile_values
    );
    let header = usize::try_from(info.header_bytes)?;
    let directory = header - 4 - 8 * usize::try_from(info.tiles)?;
    let mut old = Reader::new(blob.get(format::FIXED..directory).context("a header without parameters")?);

    let mut out = blob[..format::FIXED].to_vec();
    let mut shape = info.shape.clone();
    let along = if info.is_transposed() { shape.len() - 1 } else { 0 };
    shape[along] = shape[along].checked_mul(times).context("more values than can be counted")?;
    for &d in &shape {
        old.varint()?;
        put_varint(&mut out, d as u64);
    }
    let stays =
        |t: &Transform| matches!(t, Transform::Means(_) | Transform::Weights(_) | Transform::Transposed);
    ensure!(
        info.transforms.iter().all(stays),
        "rows of a tensor behind transforms other than means, weights and a transposition cannot be stacked"
    );
    out.push(old.u8()?);
    for transform in &info.transforms {
        out.push(old.u8()?);
        match transform {
            Transform::Weights(w) if w.axis() == Axis::Rows => copy_rows(&mut old, &mut out, times)?,
            _ => copy_counted(&mut old, &mut out)?,
        }
    }
    match info.codec {
        Codec::Levels => copy_levels(&mut old, &mut out, info.dtype, info.values, times)?,
        _ => copy_planes(&mut old, &mut out)?,
    }
    out.resize(out.len().next_multiple_of(4), 0);
    for _ in 0..times {
        out.extend_from_slice(&blob[directory..header - 4]);
    }
    let header_len = u32::try_from(out.len() + 4).context("a header of more than 4 GiB")?;
    out[8..format::FIXED].copy_from_slice(&header_len.to_le_bytes());
    let check = crc32fast::hash(&out);
    out.extend_from_slice(&check.to_le_bytes());
    out.reserve_exact((blob.len() - header) * times);
    for _ in 0..times {
        out.extend_from_slice(&blob[header..]);
    }
    Ok(out)
}

/// Copies parameters of codec 1.
fn copy_planes(old: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    copy_geometry(old, out)?;
    out.push(old.u8()?);
    copy_counted(old, out)
}

/// Copies parameters of codec 2, the class map made longer.
fn copy_levels(
    old: &mut Reader<'_>,
    out: &mut Vec<u8>,
    dtype: Dtype,
    values: u64,
    times: usize,
) -> Result<()> {
    out.push(old.u8()?);
    copy_geometry(old, out)?;
    out.push(old.u8()?);
    out.extend_from_slice(old.take(if dtype == Dtype::F64 { 8 } else { 4 })?);
    let offsets = old.u8()?;
    out.push(offsets);
    out.extend_from_slice(old.take(offsets.into())?);
    let classes = old.u8()?;
    out.push(classes);
    if classes > 1 {
        let width = old.varint()?;
        put_varint(out, width);
        ensure!(
            values.is_multiple_of(width),
            "{values} values are no whole rows of a class map of {width} columns"
        );
        let bits = old.u8()?;
        out.push(bits);
        out.extend_from_slice(old.take(usize::from(classes) - 1)?);
        let (rows, columns) = (usize::try_from(values / width)?, usize::try_from(width)?);
        let (row_bits, column_bits) = (usize::from(bits & 15), usize::from(bits >> 4));
        let scales = old.take((rows * row_bits).div_ceil(8))?;
        out.extend(repeat_bits(scales, rows * row_bits, times));
        out.extend_from_slice(old.take((columns * column_bits).div_ceil(8))?);
    }
    out.extend_from_slice(old.take(classes.into())?);
    copy_counted(old, out)
}

/// Copies lanes and steps.
fn copy_geometry(old: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.push(old.u8()?);
    put_varint(out, old.varint()?);
    Ok(())
}

/// Copies bytes behind their number.
fn copy_counted(old: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    let len = old.varint()?;
    put_varint(out, len);
    out.extend_from_slice(old.take(usize::try_from(len)?)?);
    Ok(())
}

/// Copies weights of rows, behind their axis, for so many times the rows.
fn copy_rows(old: &mut Reader<'_>, out: &mut Vec<u8>, times: usize) -> Result<()> {
    let len = usize::try_from(old.varint()?)?;
    let (axis, weights) = old.take(len)?.split_first().context("weights without an axis")?;
    put_varint(out, (1 + weights.len() * times) as u64);
    out.push(*axis);
    out.extend(weights.repeat(times));
    Ok(())
}

/// A bit string of `len` bits, `times` times, without gaps.
fn repeat_bits(bytes: &[u8], len: usize, times: usize) -> Vec<u8> {
    let mut out = vec![0u8; (len * times).div_ceil(8)];
    for to in 0..len * times {
        let from = to % len;
        out[to / 8] |= (bytes[from / 8] >> (from % 8) & 1) << (to % 8);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::synth::{self, Shape};
    use tenfold::prepare::Weights;
    use tenfold::{Effort, EncodeOptions, Goal, Tensor};

    fn decodes_to_the_repeated_tensor(tensor: &Tensor, options: &EncodeOptions) -> tenfold::format::BlobInfo {
        let blob = tenfold::encode(&tensor.view().unwrap(), options).unwrap();
        let once = tenfold::decode(&blob, &DecodeOptions::default()).unwrap();
        for times in [1, 3, 40] {
            let many = repeat(&blob, times).unwrap();
            let back = tenfold::decode(&many, &DecodeOptions::default()).unwrap();
            assert_eq!(back.shape[0], tensor.shape[0] * times);
            assert_eq!(back.shape[1..], tensor.shape[1..]);
            assert!(back.data == once.data.repeat(times), "{times} times {:?}", tensor.shape);
        }
        tenfold::inspect(&blob).unwrap()
    }

    #[test]
    fn plain_lossy_and_lossless_blobs() {
        for dtype in [Dtype::Bf16, Dtype::F64] {
            let tensor = synth::gaussian(dtype, &[64, 1024], 0.02, 1).unwrap();
            for goal in [Goal::Bits(2.5), Goal::Lossless] {
                let options = EncodeOptions::new(goal).with_lane_values(1024).with_effort(Effort::Fast);
                decodes_to_the_repeated_tensor(&tensor, &options);
            }
        }
    }

    #[test]
    fn one_time_is_the_blob_itself() {
        let tensor = synth::gaussian(Dtype::Bf16, &[64, 1024], 0.02, 1).unwrap();
        let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(1024);
        let blob = tenfold::encode(&tensor.view().unwrap(), &options).unwrap();
        assert!(repeat(&blob, 1).unwrap() == blob);
    }

    #[test]
    fn classes_by_rows_and_columns() {
        // 127 and 96 rows of a map: their scales end within a byte.
        for (rows, columns) in [(127, 1024), (96, 512)] {
            let noise = synth::values(Shape::Gaussian, 0.02, rows * columns, 2);
            let loud = |i: usize| 1.0 + (i / columns % 5) as f32 * 3.0 + (i % columns % 7) as f32;
            let values: Vec<f32> = noise.iter().enumerate().map(|(i, v)| v * loud(i)).collect();
            let tensor = synth::tensor(Dtype::Bf16, &[rows, columns], &values).unwrap();
            let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(32);
            let info = decodes_to_the_repeated_tensor(&tensor, &options);
            assert!(info.classes.unwrap() > 1);
        }
    }

    #[test]
    fn means_stay_and_other_transforms_are_refused() {
        let noise = synth::values(Shape::Gaussian, 0.02, 64 * 1024, 2);
        let values: Vec<f32> = noise.iter().enumerate().map(|(i, v)| v + (i % 1024 % 7) as f32).collect();
        let tensor = synth::tensor(Dtype::Bf16, &[64, 1024], &values).unwrap();
        let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(1024);
        let info = decodes_to_the_repeated_tensor(&tensor, &options);
        assert!(matches!(info.transforms[..], [Transform::Means(_)]));
        let turned = options.with_prepare("hadamard".parse().unwrap());
        let blob = tenfold::encode(&tensor.view().unwrap(), &turned).unwrap();
        assert!(repeat(&blob, 2).unwrap_err().to_string().contains("cannot be stacked"));
    }

    #[test]
    fn weights_are_stacked_and_transposed_tensors_side_by_side() {
        let tensor = synth::gaussian(Dtype::Bf16, &[64, 512], 0.02, 1).unwrap();
        let weights =
            |axis, n: i8| Transform::Weights(Weights::new(axis, (0..n).map(|i| i % 23 - 9).collect()));
        let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(1024);
        let straight = vec![weights(Axis::Rows, 64)];
        decodes_to_the_repeated_tensor(&tensor, &options.clone().with_transforms(straight));
        let turned = vec![Transform::Transposed, weights(Axis::Columns, 64)];
        let blob = tenfold::encode(&tensor.view().unwrap(), &options.with_transforms(turned)).unwrap();
        let once = tenfold::decode(&blob, &DecodeOptions::default()).unwrap().data;
        let back = tenfold::decode(&repeat(&blob, 3).unwrap(), &DecodeOptions::default()).unwrap();
        assert_eq!(back.shape, [64, 3 * 512]);
        assert!(back.data == once.chunks(1024).flat_map(|row| row.repeat(3)).collect::<Vec<u8>>());
    }

    #[test]
    fn a_short_last_tile_is_refused() {
        let tensor = synth::gaussian(Dtype::Bf16, &[65, 1000], 0.02, 1).unwrap();
        let options = EncodeOptions::new(Goal::Bits(2.5)).with_lane_values(64);
        let blob = tenfold::encode(&tensor.view().unwrap(), &options).unwrap();
        let values = tenfold::inspect(&blob).unwrap();
        assert!(!values.values.is_multiple_of(values.tile_values), "the test's own premise");
        assert!(repeat(&blob, 2).unwrap_err().to_string().contains("whole tiles"));
    }
}
