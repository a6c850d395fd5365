//! Content of tiles, and the lossless codec.

use super::*;

pub fn levels() -> Vec<Fault> {
    vec![
        data("tile_flags", "unknown flags", "flag 4", || raw(sound().blob(), |t| t[0] |= 16)),
        data("tile_short", "past the end", "a tile of no bytes", || raw(sound().blob(), Vec::clear)),
        data("tile_zeros_with_words", "zeros with content", "words without states", || {
            raw(sound().blob(), |t| *t = vec![0, 1, 0, 0])
        }),
        data("tile_zeros_with_escapes", "zeros with content", "escapes without a stream", || {
            raw(sound().blob(), |t| *t = vec![2, 0, 0, 0, 1, 5, 0, 0])
        }),
        data("lane_state", "state is out of range", "a state of 2^16 - 1", || {
            tile(sound, |t| t.states[1] = 0xffff)
        }),
        data("lane_end", "does not end", "a lane ends above 2^16", || {
            // Symbols of the last step are decoded from a larger state.
            tile(simple, |t| t.states[0] += 1 << 20)
        }),
        data("words_missing", "runs out of words", "the last word is missing", || {
            tile(simple, |t| t.words.truncate(t.words.len() - 1))
        }),
        data("words_left_over", "left over", "a word too many", || tile(simple, |t| t.words.push(7))),
        data("words_too_many", "past the end", "more words than the tile has bytes", || {
            raw(simple().blob(), |t| t[3] = 0x7f)
        }),
        data("escapes_missing", "more escapes than stored", "one escape too few", || {
            tile(sound, |t| t.escapes.truncate(t.escapes.len() - 1))
        }),
        data("escapes_none", "more escapes than stored", "escapes are coded but not stored", || {
            tile(sound, |t| {
                t.escapes.clear();
                t.width = 0;
            })
        }),
        data("escapes_left_over", "left over", "one escape too many", || {
            tile(sound, |t| t.escapes.push(200))
        }),
        data("escapes_count", "more escapes than values", "more escapes than the tile has values", || {
            tile(sound, |t| t.escapes = vec![900; 31])
        }),
        data("escapes_short", "past the end", "the tile ends in the escapes", || {
            tile_bytes(simple_far, |t| {
                let mut bytes = t.bytes();
                bytes.truncate(bytes.len() - 4);
                bytes
            })
        }),
        data("level_range", "out of range", "a level of 2^23", || {
            tile(sound, |t| {
                t.width = 4;
                t.escapes = vec![1 << 23; t.escapes.len()];
            })
        }),
        data("level_range_low", "out of range", "a level of -2^31", || {
            tile(sound, |t| {
                t.width = 4;
                t.escapes = vec![i32::MIN; t.escapes.len()];
            })
        }),
        data("level_range_low_bits", "out of range", "too large once the low bits are added", || {
            let of = || {
                let mut levels = with_low();
                levels.k[3] = 80_000;
                levels
            };
            tile(of, |t| {
                t.width = 4;
                t.escapes = vec![1 << 20];
            })
        }),
        data("low_bits_left_over", "low bits left over", "a byte of low bits too many", || {
            tile(with_low, |t| t.low.as_mut().unwrap().push(0))
        }),
        data("low_bits_missing", "low bits left over", "a byte of low bits is missing", || {
            tile(with_low, |t| _ = t.low.as_mut().unwrap().pop())
        }),
        data("low_bits_length", "past the end", "more low bits than the tile has bytes", || {
            tile_bytes(with_low, |t| {
                let low = t.low.take().unwrap();
                let mut bytes = t.bytes();
                bytes.truncate(4 + 4 * t.states.len() + 2 * t.words.len());
                bytes.push(100);
                bytes.extend(low);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                bytes
            })
        }),
        data("tile_length", "multiple of four", "a tile of an odd length", || {
            tile_bytes(with_low, |t| {
                let mut bytes = t.bytes();
                bytes.push(0);
                bytes
            })
        }),
        data("exact_outside", "outside its tile", "a run that leaves its tile", || {
            tile(sound, |t| t.exact[0].1 = 24)
        }),
        data("exact_gap", "outside its tile", "a run that begins behind its tile", || {
            tile(sound, |t| t.exact[0].0 = 30)
        }),
        data("exact_gap_huge", "outside its tile", "a gap of 2^64 - 1", || {
            tile(sound, |t| t.exact[0].0 = u64::MAX)
        }),
        data("exact_length_0", "outside its tile", "a run of no elements", || {
            tile(sound, |t| t.exact[0].1 = 0)
        }),
        data("exact_length_huge", "outside its tile", "a run of 2^64 - 1 elements", || {
            tile(sound, |t| t.exact[0].1 = u64::MAX)
        }),
        data("exact_missing", "past the end", "more runs than stored", || {
            let of = || Levels { exact: vec![(0, 1, vec![0; 4])], ..simple() };
            tile_bytes(of, |t| {
                let mut bytes = t.bytes();
                let content = 4 + 4 * t.states.len() + 2 * t.words.len();
                assert_eq!(bytes[content], 1);
                bytes[content] = 9;
                bytes
            })
        }),
        data("tile_left_over", "left over", "four zero bytes behind the padding", || {
            raw(simple().blob(), |t| t.extend([0; 4]))
        }),
        data("tile_left_over_exact", "left over", "four zero bytes behind exact values", || {
            raw(sound().blob(), |t| t.extend([0; 4]))
        }),
        data("padding_tile", "left over", "padding of a tile is not zero", || {
            tile_bytes(simple_far, |t| {
                let mut bytes = t.bytes();
                // Width 2: head, states, words, count and one escape leave a byte of padding.
                let content = 4 + 4 * t.states.len() + 2 * t.words.len() + 1 + 2 * t.escapes.len();
                assert!(!content.is_multiple_of(4));
                *bytes.last_mut().unwrap() = 1;
                bytes
            })
        }),
    ]
}

/// Like [`simple`], with an escape of two bytes.
fn simple_far() -> Levels {
    let mut levels = simple();
    levels.k[20] = 1000;
    levels
}

pub fn planes() -> Vec<Fault> {
    // Offsets in the header of `planes_blob`: 12 fixed, 2 shape, 1 steps, 1 lanes, 2 or 1 steps, then `coded`.
    let coded_at = |p: &[u8]| 12 + 2 + 1 + 1 + if p[16] & 128 != 0 { 2 } else { 1 };
    vec![
        data("plane_mode", "mode of a plane", "mode 3", || raw(planes_blob(), |t| t[0] = 3)),
        data("plane_constant_256", "mode of a plane", "a constant that is no byte", || {
            raw(stored(), |t| t[..4].copy_from_slice(&[0, 0, 1, 0]))
        }),
        data("plane_stored_words", "mode of a plane", "a stored plane that counts words", || {
            raw(stored(), |t| t[1] = 1)
        }),
        data("plane_without_table", "mode of a plane", "a coded plane that has no table", || {
            raw(stored(), |t| t[0] = 2)
        }),
        data("plane_missing", "past the end", "the tile ends before its last plane", || {
            raw(planes_blob(), |t| t.truncate(t.len() - 4))
        }),
        data("plane_left_over", "left over", "four bytes behind the last plane", || {
            raw(planes_blob(), |t| t.extend([0; 4]))
        }),
        data("plane_padding", "padding", "padding of a plane is not zero", || {
            raw(stored(), |t| *t.last_mut().unwrap() = 1)
        }),
        data("plane_state", "state is out of range", "a state of 0", || {
            raw(planes_blob(), |t| {
                let at = coded_plane(t);
                t[at + 4..at + 8].fill(0);
            })
        }),
        data("plane_lane_end", "does not end", "a lane ends above 2^16", || {
            raw(planes_blob(), |t| {
                let at = coded_plane(t);
                t[at + 7] ^= 0x40;
            })
        }),
        data("plane_tile_of_another", "tile checksum", "a tile of another tensor", || {
            let (_, tiles) = split(&several_tiles());
            let mut blob = several_tiles();
            let at = header_len(&blob);
            let len = tiles[0].len();
            blob[at..at + len].reverse();
            blob
        }),
        data("plane_table_extra", "does not exist", "a table for plane 4 of four", move || {
            prefix(planes_blob(), |p| {
                let at = coded_at(p);
                p[at] |= 16;
            })
        }),
        data("plane_table_missing", "unknown kind", "fewer tables than planes that have one", move || {
            prefix(planes_blob(), |p| {
                let at = coded_at(p);
                p[at] |= 8;
            })
        }),
        data("plane_table_shaped", "unknown kind", "bytes have no shaped tables", move || {
            prefix(planes_blob(), |p| {
                let at = coded_at(p) + 2;
                p[at] &= !3;
            })
        }),
        data("plane_table_sum", "add up", "a byte table with the wrong sum", move || {
            prefix(planes_blob(), |p| {
                // kind (2 bits), low (8), span (8), then the first gamma code: its last bit is part of a value.
                let at = coded_at(p) + 2;
                let bits = |i: usize| p[at + i / 8] >> (i % 8) & 1;
                let zeros = (18..).take_while(|&i| bits(i) == 0).count();
                let last = 18 + 2 * zeros;
                p[at + last / 8] ^= 1 << (last % 8);
            })
        }),
    ]
}

/// Where the head of the coded plane stands in the first tile of [`planes_blob`].
fn coded_plane(tile: &[u8]) -> usize {
    let after_stored = 4 + 300;
    assert_eq!((tile[0], tile[after_stored]), (1, 2));
    after_stored
}
