//! Low bits, escapes, exact values, and how levels become elements.

use super::{bell, vector};
use crate::Vector;
use crate::common::{FLOATS, specials};
use crate::writer::{Levels, Table};
use tenfold::Dtype;

pub fn sections() -> Vec<Vector> {
    let mut all = Vec::new();
    all.push(vector(
        "low_bits_16",
        "the most low bits and the largest levels",
        &["low bits 16", "states 256"],
        || {
            let mut k: Vec<i32> = bell(60, 1e6, 164);
            (k[3], k[9], k[17], k[33]) = ((1 << 23) - 1, -127 << 16, -1, 1);
            let tables = vec![Table::Shaped(0, 240, 126), Table::Again];
            Levels { low: vec![16], tables, ..Levels::new(Dtype::F64, &[60], 8, k) }
        },
    ));
    for (width, far) in [
        (1, [9, -127, 126, -9, 127]),
        (2, [128, -32767, 32767, -128, 5]),
        (4, [32768, -8_388_607, 8_388_607, -1, 70_000]),
    ] {
        let feature = format!("escapes of {width} byte{}", if width > 1 { "s" } else { "" });
        all.push(vector(
            format!("escapes_{width}"),
            "escapes at the ends of their range, over several tiles",
            &[&feature, "levels several tiles"],
            move || {
                let mut k = bell(100, 0.8, 165);
                [2, 3, 50, 98, 99].into_iter().zip(far).for_each(|(i, f)| k[i] = f);
                let tables = vec![Table::Measured(300, -2, vec![500, 900, 1096, 800, 500]), Table::Again];
                Levels { lanes_log: 2, steps: 10, tables, ..Levels::new(Dtype::F32, &[10, 10], 3, k) }
            },
        ));
    }
    all.push(vector(
        "escapes_low_bits",
        "escapes hold what is above the low bits",
        &["escapes of 2 bytes", "low bits equal"],
        || {
            let mut k = bell(80, 20.0, 166);
            (k[0], k[40], k[79]) = (-100_001, 77_777, -4097);
            Levels { low: vec![4], ..Levels::new(Dtype::F32, &[80], 4, k) }
        },
    ));
    all.push(vector("escapes_all", "every symbol is an escape", &["escapes of 1 byte"], || {
        let tables = vec![Table::Measured(4096, 0, vec![0])];
        Levels { tables, ..Levels::new(Dtype::F32, &[33], 0, bell(33, 3.0, 167)) }
    }));
    all.push(vector(
        "zero_tiles",
        "tiles of zeros have no low bits; one has exact values",
        &["tile of zeros without low bits", "exact values among zeros", "tile coded"],
        || {
            let mut k = bell(200, 30.0, 168);
            k[40..120].fill(0);
            let exact = vec![
                (85, 3, f32::NAN.to_le_bytes().to_vec()),
                (119, 1, f32::INFINITY.to_le_bytes().to_vec()),
            ];
            Levels {
                low: vec![3],
                lanes_log: 1,
                steps: 20,
                exact,
                ..Levels::new(Dtype::F32, &[10, 20], 3, k)
            }
        },
    ));
    for dtype in FLOATS {
        let mut shows = vec!["exact NaN", "exact run", "exact finite"];
        if dtype != Dtype::F8E4M3 {
            shows.push("exact infinity");
        }
        all.push(vector(
            format!("exact_{}", dtype.name()),
            "runs at both ends of a tile and next to each other",
            &shows,
            move || {
                let elements = specials(dtype);
                let places = [(0usize, 2usize), (2, 1), (10, 4), (59, 1), (60, 1)];
                let exact = places
                    .iter()
                    .enumerate()
                    .map(|(i, &(at, len))| (at, len, elements[i % elements.len()].clone()));
                Levels {
                    exact: exact.collect(),
                    lanes_log: 2,
                    steps: 15,
                    ..Levels::new(dtype, &[70], 3, bell(70, 2.0, 169))
                }
            },
        ));
    }
    all.push(vector(
        "exact_tile",
        "a run that fills a tile of coded levels",
        &["exact run", "tile coded"],
        || {
            let exact = vec![(32, 32, vec![0x80, 0xff])];
            Levels {
                exact,
                lanes_log: 2,
                steps: 8,
                ..Levels::new(Dtype::Bf16, &[8, 10], 3, bell(80, 2.0, 170))
            }
        },
    ));
    all
}

pub fn values() -> Vec<Vector> {
    let mut all = Vec::new();
    for (dtype, scale) in [
        (Dtype::F64, 1e305),
        (Dtype::F32, 1e36),
        (Dtype::F16, 16.0),
        (Dtype::Bf16, 1e36),
        (Dtype::F8E4M3, 0.11),
        (Dtype::F8E5M2, 14.0),
    ] {
        let feature = format!("levels {dtype} largest");
        all.push(vector(
            format!("saturated_{}", dtype.name()),
            "what is too large becomes the largest number",
            &[&feature],
            move || Levels { scale, ..Levels::new(dtype, &[90], 3, (0..90).map(|i| (i - 45) * 2).collect()) },
        ));
    }
    for (dtype, scale) in [
        (Dtype::F64, 5e-324),
        (Dtype::F32, 1e-45),
        (Dtype::F16, 2e-10),
        (Dtype::Bf16, 3e-44),
        (Dtype::F8E4M3, 5e-6),
        (Dtype::F8E5M2, 4e-8),
    ] {
        let mut shows = vec![format!("levels {dtype} denormal")];
        if !matches!(dtype, Dtype::F32 | Dtype::F64) {
            shows.push(format!("levels {dtype} negative zero"));
        }
        let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
        all.push(vector(
            format!("denormal_{}", dtype.name()),
            "very small steps; negative numbers may round to -0",
            &shows,
            move || Levels { scale, ..Levels::new(dtype, &[90], 3, (0..90).map(|i| i - 45).collect()) },
        ));
    }
    for (dtype, scale) in [
        (Dtype::F16, 1.0 + 1.0 / 4096.0),
        (Dtype::Bf16, 0.25 + 1.0 / 1024.0),
        (Dtype::F8E4M3, 1.0 / 16.0),
        (Dtype::F8E5M2, 1.0 / 16.0),
    ] {
        let note = "many products lie half-way between two elements";
        all.push(vector(format!("ties_{}", dtype.name()), note, &["offsets all"], move || {
            let offsets = vec![0, 4, 12, 20, 28, 36, 2, 1];
            Levels {
                scale,
                offsets,
                ..Levels::new(dtype, &[250], 0, (0..250).map(|i| i * 37 % 250 - 125).collect())
            }
        }));
    }
    all.push(vector("offsets_all", "offsets at the ends of their range", &["offsets all"], || {
        let offsets = vec![64, 127, -128, 1, -1, 65, -64, 33];
        Levels { offsets, ..Levels::new(Dtype::F32, &[21], 3, (-10..11).collect()) }
    }));
    all.push(vector("offsets_some", "fewer offsets than there might be", &["offsets some"], || Levels {
        offsets: vec![5, 0, 3],
        ..Levels::new(Dtype::F64, &[21], 2, (-10..11).collect())
    }));
    all.push(vector(
        "rounded_twice",
        "the number of units is rounded to 24 bits, then the product",
        &["levels f32"],
        || {
            let k = (0..120).map(|i: i32| (i - 60) * 131_071 + i).collect();
            let tables = vec![Table::Shaped(5, 250, 127)];
            Levels {
                low: vec![16],
                tables,
                scale: 0.1,
                offsets: vec![1, 2, 3, 4, 5, 6, 7, 7],
                ..Levels::new(Dtype::F32, &[120], 0, k)
            }
        },
    ));
    all
}
