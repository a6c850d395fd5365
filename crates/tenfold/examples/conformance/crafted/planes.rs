//! Lossless vectors.

use crate::common::Random;
use crate::writer::Planes;
use crate::{Made, Vector};
use tenfold::Dtype;

pub fn vectors() -> Vec<Vector> {
    let planes = |name: String, note, shows: &[&str], planes: Box<dyn Fn() -> Planes>| {
        let make = move || {
            let planes = planes();
            Made { blob: planes.blob(), data: planes.expected() }
        };
        Vector { name, note, shows: shows.iter().map(|s| s.to_string()).collect(), make: Box::new(make) }
    };
    let small = |n: usize, seed: u64| {
        let mut r = Random::new(seed);
        (0..n).map(|_| 65 + (r.normal() * 1.5).abs() as u8).collect::<Vec<u8>>()
    };
    let slots = || (65, vec![2000, 1200, 600, 200, 50, 30, 10, 4, 1, 1]);
    let mut all = Vec::new();
    for log in 1..=5u8 {
        let feature = format!("planes lanes {}", 1 << log);
        let note = "the last tile has one value";
        let shows = [&feature, "planes fewer values than lanes", "plane coded"];
        all.push(planes(
            format!("planes_short_tile_{}", 1 << log),
            note,
            &shows,
            Box::new(move || {
                let plane = small(2 * (5 << log) + 1, 300 + log as u64);
                Planes {
                    dtype: Dtype::U8,
                    lanes_log: log,
                    steps: 5,
                    tables: vec![Some(slots())],
                    planes: vec![plane],
                }
            }),
        ));
    }
    all.push(planes(
        "planes_one_symbol".into(),
        "one byte has every slot",
        &["plane coded"],
        Box::new(|| {
            let tables = vec![None, Some((200, vec![4096]))];
            let planes = vec![(0..50).map(|i| i * 5).collect(), vec![200; 50]];
            Planes { dtype: Dtype::I16, lanes_log: 1, steps: 25, tables, planes }
        }),
    ));
    all.push(planes(
        "planes_table_again".into(),
        "the table of a plane is that of the plane before",
        &["plane coded"],
        Box::new(move || {
            let tables = vec![Some(slots()), Some(slots())];
            Planes {
                dtype: Dtype::F16,
                lanes_log: 2,
                steps: 20,
                tables,
                planes: vec![small(77, 310), small(77, 311)],
            }
        }),
    ));
    all.push(planes(
        "planes_all_bytes".into(),
        "a table of all 256 bytes",
        &["plane coded"],
        Box::new(|| {
            let tables = vec![Some((0, vec![16; 256])), None];
            let planes = vec![(0..=255).map(|i: u8| i.wrapping_mul(77)).collect(), vec![7; 256]];
            Planes { dtype: Dtype::Bf16, lanes_log: 3, steps: 32, tables, planes }
        }),
    ));
    all
}
