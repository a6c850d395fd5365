//! The frame of a blob: magic number, version, lengths, checksums, shape, directory.

use super::*;
use crate::writer::varint;

pub fn frame() -> Vec<Fault> {
    let sound_blob = || sound().blob();
    vec![
        data("empty", "magic", "a file of no bytes", Vec::new),
        data("magic", "magic", "the first byte is wrong", move || header(sound, |h| h.magic[0] = b'X')),
        data("magic_safetensors", "magic", "another format", || b"\x10\0\0\0\0\0\0\0{}".to_vec()),
        data("truncated_magic", "truncated", "two bytes of the magic number", move || {
            cut(sound_blob(), |_| 2)
        }),
        data("truncated_fixed", "truncated", "ends before the header's length", move || {
            cut(sound_blob(), |_| 11)
        }),
        data("truncated_header", "truncated", "ends in the parameters", move || cut(sound_blob(), |_| 24)),
        data("truncated_directory", "truncated", "ends in the directory", move || {
            let at = header_len(&sound_blob()) - 10;
            cut(sound_blob(), |_| at)
        }),
        data("truncated_no_tiles", "truncated", "ends with the header", move || {
            let at = header_len(&sound_blob());
            cut(sound_blob(), |_| at)
        }),
        data("truncated_tile", "truncated", "one byte is missing", move || cut(sound_blob(), |n| n - 1)),
        data("trailing_byte", "after the last tile", "one byte too many", move || {
            let mut blob = sound_blob();
            blob.push(0);
            blob
        }),
        data("trailing_empty", "after the last tile", "a tensor without values has no tiles", || {
            let mut blob = Levels::new(Dtype::F32, &[0], 0, vec![]).blob();
            blob.extend([0; 4]);
            blob
        }),
        fault("version_0", "unsupported", "format version 0", "no such version", || {
            header(sound, |h| h.version = 0)
        }),
        fault("version_2", "unsupported", "format version 2", "a later version", || {
            header(sound, |h| h.version = 2)
        }),
        fault(
            "version_unchecked",
            "unsupported",
            "format version 9",
            "a later version need not have this header",
            || {
                let mut blob = sound().blob();
                blob[4] = 9;
                blob[8..].fill(0xff);
                blob
            },
        ),
        fault("codec_0", "unsupported", "codec 0", "no such codec", || header(sound, |h| h.codec = 0)),
        fault("codec_3", "unsupported", "codec 3", "no such codec", || header(sound, |h| h.codec = 3)),
        fault("codec_reserved", "unsupported", "codec 17", "reserved for a video codec", || {
            header(sound, |h| h.codec = 17)
        }),
        fault("dtype_9", "unsupported", "dtype 9", "no such dtype", || header(sound, |h| h.dtype = 9)),
        fault("dtype_22", "unsupported", "dtype 22", "no such dtype", || header(sound, |h| h.dtype = 22)),
        fault("preparation", "unsupported", "preparation step 3", "one step, number 3, of no bytes", || {
            header(sound, |h| h.steps = vec![1, 3, 0])
        }),
        data("header_length", "header length", "shorter than any header", || {
            let mut blob = sound().blob();
            blob[8..12].copy_from_slice(&15u32.to_le_bytes());
            blob
        }),
        data("header_length_long", "truncated", "a header of 4 GiB", || {
            let mut blob = sound().blob();
            blob[8..12].fill(0xff);
            blob
        }),
        data("header_checksum", "header checksum", "one bit of the shape", move || flip(sound_blob(), 13)),
        data(
            "header_checksum_codec",
            "header checksum",
            "a flipped codec is damage, not a new codec",
            move || flip(sound_blob(), 5),
        ),
        data("header_checksum_itself", "header checksum", "one bit of the checksum", move || {
            flip(sound_blob(), header_len(&sound_blob()) - 1)
        }),
        data("tile_checksum", "tile checksum", "the last byte of the first tile", move || {
            let (_, tiles) = split(&sound_blob());
            flip(sound_blob(), header_len(&sound_blob()) + tiles[0].len() - 1)
        }),
        data("tile_checksum_last", "tile checksum", "the second tile", move || {
            let (_, tiles) = split(&sound_blob());
            flip(sound_blob(), header_len(&sound_blob()) + tiles[0].len())
        }),
        data("directory_long", "directory", "a tile too many", move || {
            let (prefix, mut tiles) = split(&sound_blob());
            tiles.push(tiles[0].clone());
            join(prefix, &tiles)
        }),
        data("directory_short", "directory", "a tile is missing", move || {
            let (prefix, tiles) = split(&sound_blob());
            join(prefix, &tiles[..1])
        }),
        data("directory_empty", "directory", "a tile for a tensor without values", || {
            let (prefix, _) = split(&Levels::new(Dtype::F32, &[0], 0, vec![]).blob());
            join(prefix, &[vec![0; 4]])
        }),
        data(
            "directory_swapped",
            "tile checksum",
            "lengths and checksums of two tiles exchanged",
            move || {
                let (prefix, tiles) = split(&sound_blob());
                let mut blob = join(prefix.clone(), &[tiles[1].clone(), tiles[0].clone()]);
                let header = header_len(&blob);
                blob.truncate(header);
                tiles.iter().for_each(|t| blob.extend(t));
                blob
            },
        ),
        data("padding_header", "directory", "padding of the header is not zero", || {
            header(sound, |h| {
                // Another length of parameters where this one needs no padding would change nothing.
                assert!(!(12 + h.shape.len() + h.steps.len() + h.params.len()).is_multiple_of(4));
                h.pad = 1;
            })
        }),
    ]
}

pub fn shapes() -> Vec<Fault> {
    let dims = |dims: &'static [u64]| {
        move || {
            header(sound, |h| {
                h.dims = dims.len() as u8;
                h.shape.clear();
                dims.iter().for_each(|&d| varint(&mut h.shape, d));
            })
        }
    };
    let spelled = |bytes: &'static [u8]| {
        move || {
            header(sound, |h| {
                h.dims = 1;
                h.shape = bytes.to_vec();
            })
        }
    };
    vec![
        fault("values_2_60", "limit", "exceeds the limit", "2^60 values", dims(&[1 << 60])),
        fault("values_2_40", "limit", "exceeds the limit", "2^20 x 2^20 values", dims(&[1 << 20, 1 << 20])),
        fault("dims_17", "limit", "dimensions", "17 dimensions of 1", dims(&[1; 17])),
        fault("dims_255", "limit", "dimensions", "more dimensions than bytes", || {
            header(sound, |h| h.dims = 255)
        }),
        data("shape_overflow", "overflows", "2^63 bytes", dims(&[1 << 31, 1 << 30])),
        data("shape_overflow_64", "overflows", "the product wraps to 0", dims(&[1 << 32, 1 << 32])),
        data("shape_huge", "overflows", "one dimension of 2^64 - 1", dims(&[u64::MAX])),
        data("shape_other", "directory", "a shape with more values than the tiles hold", || {
            header(simple, |h| h.shape = vec![41])
        }),
        data(
            "varint_long",
            "variable-length",
            "eleven bytes",
            spelled(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        ),
        data(
            "varint_large",
            "variable-length",
            "more than 64 bits",
            spelled(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
        ),
        data("varint_spelling", "variable-length", "60 with a group too many", spelled(&[0xbc, 0])),
        data("header_short", "past the end", "the header ends in the shape", || {
            let mut blob = b"TNFD\x01\x02\x14\x04\0\0\0\0".to_vec();
            blob.extend([3, 3]);
            join(blob, &[])
        }),
        data("header_no_parameters", "past the end", "the header ends before the parameters", || {
            no_tiles(sound, |h| h.params.clear())
        }),
    ]
}
