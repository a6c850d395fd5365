//! Parameters and tables of the lossy codec.

use super::*;
use crate::writer::Bits;

pub fn levels() -> Vec<Fault> {
    vec![
        fault("trellis_1", "unsupported", "trellis 1", "no trellis of two states", || {
            params(sound, |l| l.nu = 1)
        }),
        fault("trellis_9", "unsupported", "trellis 9", "no trellis of 512 states", || {
            params(sound, |l| l.nu = 9)
        }),
        data("levels_of_integers", "not a float", "a lossy integer tensor", || {
            header(sound, |h| h.dtype = Dtype::I32.id())
        }),
        data("geometry_lanes", "geometry", "64 lanes", || params(sound, |l| l.lanes_log = 6)),
        data("geometry_steps_0", "geometry", "tiles of no values", || params(sound, |l| l.steps = 0)),
        data("geometry_steps", "geometry", "tiles of 2^22 + 2 values", || {
            params(sound, |l| l.steps = (1 << 21) + 1)
        }),
        data("geometry_overflow", "geometry", "2^64 - 1 steps", || params(sound, |l| l.steps = u64::MAX)),
        data("table_log_7", "size of the tables", "tables of 2^7 slots", || params(sound, |l| l.log = 7)),
        data("table_log_13", "size of the tables", "tables of 2^13 slots", || params(sound, |l| l.log = 13)),
        data("scale_0", "step", "a step of zero", || params(sound, |l| l.scale = 0.0)),
        data("scale_negative", "step", "a negative step", || params(sound, |l| l.scale = -1.0)),
        data("scale_nan", "step", "a step that is no number", || params(sound, |l| l.scale = f64::NAN)),
        data("scale_infinite", "step", "an infinite step", || params(sound, |l| l.scale = f64::INFINITY)),
        data("scale_f64", "step", "an infinite step of an f64 tensor", || {
            let of = || Levels::new(Dtype::F64, &[4], 0, vec![1, 2, 3, 4]);
            params(of, |l| l.scale = f64::INFINITY)
        }),
        data("offsets_9", "reconstruction offsets", "one offset too many", || {
            params(sound, |l| l.offsets = vec![1; 9])
        }),
        data("classes_0", "number of classes", "no class", || {
            header(simple, |h| {
                // nu, lanes, steps, log, scale, no offsets
                assert_eq!(h.params[8..10], [0, 1]);
                h.params[9] = 0;
            })
        }),
        data("classes_17", "number of classes", "one class too many", || {
            map(|m| m.thresholds = (1..17).collect())
        }),
        data("class_width_0", "width of the class map", "rows of no values", || {
            // The writer divides by the width, so it is changed in the bytes.
            header(sound, |h| {
                assert_eq!(h.params[9..11], [2, 10]);
                h.params[10] = 0;
            })
        }),
        data("class_width", "width of the class map", "rows longer than the tensor", || {
            header(sound, |h| {
                assert_eq!(h.params[9..11], [2, 10]);
                h.params[10] = 61;
            })
        }),
        data("class_rows_bits", "bits of a scale", "scales of rows of seven bits", || map(|m| m.rows.0 = 7)),
        data("class_columns_bits", "bits of a scale", "scales of columns of eight bits", || {
            map(|m| m.cols = (8, vec![0; 10]))
        }),
        data("thresholds_equal", "not increasing", "two thresholds are equal", || {
            map(|m| m.thresholds = vec![2, 2])
        }),
        data("thresholds_falling", "not increasing", "a threshold below the one before", || {
            map(|m| m.thresholds = vec![2, 1])
        }),
        data("threshold_0", "not increasing", "class 0 would be empty", || map(|m| m.thresholds = vec![0])),
        data("class_map_short", "past the end", "the header ends in the scales", || {
            no_tiles(sound, |h| h.params.truncate(13))
        }),
        data("low_bits_17", "number of low bits", "17 low bits", || params(sound, |l| l.low = vec![0, 17])),
    ]
}

pub fn tables() -> Vec<Fault> {
    let measured = |escape: u64, low: u64, freqs: &[u64]| {
        let mut bits = Bits::default();
        bits.put(1, 2).gamma(escape).put(low, 8).put(freqs.len() as u64 - 1, 8);
        for &f in freqs {
            bits.gamma(f);
        }
        bits.bytes()
    };
    let shaped = |zero: u64, ratio: u64, bend: u64| {
        let mut bits = Bits::default();
        bits.put(0, 2).put(zero, 13).put(ratio, 8).put(bend, 8).bytes()
    };
    vec![
        data("table_sum_low", "do not add up", "4095 slots", move || {
            with_tables(measured(95, 127, &[1000, 2000, 1000]))
        }),
        data("table_sum_high", "do not add up", "4097 slots", move || {
            with_tables(measured(97, 127, &[1000, 2000, 1000]))
        }),
        data("table_sum_wraps", "do not add up", "2^16 slots too many", move || {
            with_tables(measured(32768, 127, &[32768, 2096, 2000]))
        }),
        data("table_sum_0", "do not add up", "no slots", move || with_tables(measured(0, 127, &[0, 0]))),
        data("table_entry", "too large", "seventeen zeros before the one", || {
            let mut bits = Bits::default();
            with_tables(bits.put(1, 2).put(0, 17).put(u64::MAX, 60).bytes())
        }),
        data("table_rank_0", "range of symbols", "the escape among the levels", move || {
            with_tables(measured(96, 0, &[1000, 2000, 1000]))
        }),
        data("table_range", "range of symbols", "symbols beyond the last", move || {
            with_tables(measured(96, 254, &[1000, 2000, 1000]))
        }),
        data("table_no_room", "leaves no room", "level zero has more slots than there are", move || {
            with_tables(shaped(4096, 128, 120))
        }),
        data("table_no_room_rounded", "leaves no room", "rounding takes more than there is", move || {
            with_tables(shaped(0, 255, 255))
        }),
        data("table_kind_3", "unknown kind", "kind 3", || with_tables(vec![3, 0, 0, 0])),
        data("table_repeats_none", "repeats none", "the first table is the one before", || {
            with_tables(vec![2])
        }),
        data("table_short", "ends early", "the tables end in a table", move || {
            let mut bytes = shaped(1400, 128, 120);
            bytes.pop();
            with_tables(bytes)
        }),
        data("table_long", "left over", "a byte after the tables", move || {
            let mut bytes = shaped(1400, 128, 120);
            bytes.push(0);
            with_tables(bytes)
        }),
        data("table_none", "ends early", "no bytes of tables", || with_tables(vec![])),
        data("table_length", "past the end", "more bytes of tables than there are", || {
            header(simple, |h| {
                let at = h.params.len() - simple().table_bits().bytes().len() - 1;
                h.params[at] = 100;
            })
        }),
    ]
}
