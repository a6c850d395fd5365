//! Every trellis, every number of lanes, tables, classes.

use super::{bell, vector};
use crate::Vector;
use crate::writer::{Levels, Map, Table};
use tenfold::Dtype;

/// A map of 16 classes over 24 rows of 20 values.
fn sixteen() -> Map {
    Map {
        width: 20,
        rows: (5, (0..24).map(|i| (i * 7 % 24) as u8).collect()),
        cols: (3, (0..20).map(|i| (i * 3 % 8) as u8).collect()),
        thresholds: (1..16).map(|t| 2 * t as u8).collect(),
    }
}

pub fn machines() -> Vec<Vector> {
    let mut all = Vec::new();
    for nu in [0u8, 2, 3, 4, 5, 6, 7, 8] {
        let shows = [format!("states {}", 1 << nu), "levels lanes 4".into(), "levels several tiles".into()];
        let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
        all.push(vector(
            format!("states_{}", 1u32 << nu),
            "every number of states of the format",
            &shows,
            move || {
                let k = bell(500, 2.0, 100 + nu as u64);
                Levels { lanes_log: 2, steps: 70, ..Levels::new(Dtype::F32, &[20, 25], nu, k) }
            },
        ));
    }
    for log in 0..=5u8 {
        let feature = format!("levels lanes {}", 1 << log);
        let note = "every number of lanes; the last tile has one value";
        let shows: &[&str] =
            if log == 0 { &[&feature] } else { &[&feature, "levels fewer values than lanes"] };
        all.push(vector(format!("lanes_{}", 1 << log), note, shows, move || {
            let k = bell(2 * (9 << log) + 1, 3.0, 110 + log as u64);
            let shape = [k.len()];
            Levels { lanes_log: log, steps: 9, ..Levels::new(Dtype::Bf16, &shape, 3, k) }
        }));
    }
    all.push(vector("levels_empty", "no values", &["levels empty"], || {
        Levels::new(Dtype::F16, &[0, 3], 3, vec![])
    }));
    all.push(vector("levels_0d", "no dimensions, one value", &["levels dims 0"], || {
        Levels::new(Dtype::F32, &[], 0, vec![-3])
    }));
    all.push(vector(
        "levels_steps_long",
        "a tile shorter than it might be",
        &["levels fewer values than lanes"],
        || Levels {
            lanes_log: 5,
            steps: 1 << 17,
            ..Levels::new(Dtype::F32, &[2, 11], 8, bell(22, 2.0, 120))
        },
    ));
    all
}

pub fn tables() -> Vec<Vector> {
    let mut all = Vec::new();
    for log in 8..=12u8 {
        let shows = [format!("table log {log}"), "table shaped".into(), "table measured".into()];
        let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
        all.push(vector(
            format!("table_log_{log}"),
            "every size of table; a shaped and a measured one",
            &shows,
            move || {
                let one = 1u32 << log;
                let measured =
                    Table::Measured(2, -3, vec![3, one / 16, one / 8, one / 2, one / 8, 0, one * 3 / 16 - 5]);
                let tables = vec![Table::Shaped((one / 3) as u16, 130, 118), measured];
                Levels {
                    log,
                    tables,
                    ..Levels::new(Dtype::Bf16, &[320], 3, bell(320, 1.5, 130 + log as u64))
                }
            },
        ));
    }
    let shapes =
        [(0u16, 0u8, 0u8), (4095, 200, 127), (4, 255, 255), (5, 255, 128), (9, 250, 64), (4094, 1, 200)];
    for (i, (zero, ratio, bend)) in shapes.into_iter().enumerate() {
        let note = "shapes at the ends of their range";
        all.push(vector(format!("table_shape_{i}"), note, &["table shaped"], move || {
            let tables = vec![Table::Shaped(zero, ratio, bend)];
            Levels { tables, ..Levels::new(Dtype::Bf16, &[150], 0, bell(150, 2.0, 140 + i as u64)) }
        }));
    }
    all.push(vector(
        "table_one_symbol",
        "one symbol has every slot and costs nothing",
        &["table of one symbol"],
        || {
            let tables = vec![Table::Measured(0, 5, vec![4096]), Table::Measured(4096, 0, vec![0])];
            Levels { tables, ..Levels::new(Dtype::F32, &[40], 2, vec![5; 40]) }
        },
    ));
    all.push(vector("table_no_escape", "a table without a slot for the escape", &["table measured"], || {
        let tables = vec![Table::Measured(0, -2, vec![96, 1000, 2000, 600, 400])];
        Levels { tables, ..Levels::new(Dtype::F32, &[90], 0, (0..90).map(|i| i * 7 % 5 - 2).collect()) }
    }));
    all.push(vector("table_edges", "the outermost symbols, -127 and 127", &["table measured"], || {
        let mut slots = vec![16u32; 255];
        slots[127] = 4096 - 10 - 254 * 16;
        let k = (0..300).map(|i| i * 89 % 255 - 127).collect();
        Levels { tables: vec![Table::Measured(10, -127, slots)], ..Levels::new(Dtype::F32, &[300], 0, k) }
    }));
    let halved = &[
        "table shaped of high parts",
        "table measured of high parts",
        "table repeated of high parts",
        "low bits equal",
    ];
    all.push(vector("table_halved", "tables where levels have low bits", halved, || {
        let map =
            Map { width: 50, rows: (1, vec![0, 1, 1, 0, 1, 0]), cols: (0, vec![]), thresholds: vec![1] };
        let measured = Table::Measured(6, -3, vec![90, 700, 1200, 1300, 700, 100]);
        let tables = vec![Table::Shaped(77, 140, 118), measured, Table::Again, Table::Shaped(0, 200, 110)];
        Levels {
            map: Some(map),
            low: vec![3, 3],
            tables,
            ..Levels::new(Dtype::F32, &[6, 50], 3, bell(300, 14.0, 150))
        }
    }));
    all.push(vector(
        "table_repeated_across",
        "a repeated table crosses classes and kinds of levels",
        &["table repeated", "table repeated of high parts", "low bits by class"],
        || {
            let map = Map {
                width: 20,
                rows: (2, vec![0, 1, 2, 3, 2, 1, 0]),
                cols: (0, vec![]),
                thresholds: vec![1, 2, 3],
            };
            let tables =
                vec![Table::Shaped(900, 128, 120), Table::Again, Table::Shaped(5, 150, 118), Table::Again];
            Levels {
                map: Some(map),
                low: vec![0, 2, 1, 0],
                log: 11,
                tables,
                ..Levels::new(Dtype::F32, &[7, 20], 0, bell(140, 4.0, 151))
            }
        },
    ));
    all
}

pub fn classes() -> Vec<Vector> {
    let mut all = Vec::new();
    all.push(vector(
        "classes_16",
        "the most classes, by rows and columns",
        &["classes 16", "classes by rows and columns", "low bits by class"],
        || {
            let tables = (0..32).map(|i| {
                if i % 5 == 3 { Table::Again } else { Table::Shaped(200 + 9 * i, 120 + i as u8, 119) }
            });
            let (tables, low) = (tables.collect(), (0..16).map(|c| c / 5).collect());
            Levels {
                map: Some(sixteen()),
                log: 10,
                low,
                tables,
                ..Levels::new(Dtype::Bf16, &[24, 20], 3, bell(480, 5.0, 160))
            }
        },
    ));
    all.push(vector(
        "classes_neither",
        "a map without scales: all values are of class 0",
        &["classes by neither"],
        || {
            let map = Map { width: 7, rows: (0, vec![]), cols: (0, vec![]), thresholds: vec![1, 255] };
            let tables = vec![Table::Shaped(900, 128, 120), Table::Again, Table::Again];
            Levels {
                map: Some(map),
                low: vec![0; 3],
                tables,
                ..Levels::new(Dtype::F32, &[70], 0, bell(70, 2.0, 161))
            }
        },
    ));
    all.push(vector(
        "classes_wide_scales",
        "scales of six bits, a partial last row, a threshold beyond every sum",
        &["classes by rows and columns", "classes by runs"],
        || {
            let map = Map {
                width: 33,
                rows: (6, vec![63, 0, 40, 7]),
                cols: (6, (0..33).map(|i| (i * 29 % 64) as u8).collect()),
                thresholds: vec![20, 70, 126, 200],
            };
            let tables = vec![Table::Shaped(900, 128, 120); 5];
            Levels {
                map: Some(map),
                low: vec![0; 5],
                tables,
                log: 11,
                lanes_log: 2,
                steps: 8,
                ..Levels::new(Dtype::F16, &[5, 22], 0, bell(110, 3.0, 162))
            }
        },
    ));
    all.push(vector("classes_one_row", "a map as wide as the tensor", &["classes by columns"], || {
        let map = Map {
            width: 64,
            rows: (0, vec![]),
            cols: (1, (0..64).map(|i| (i % 3 == 0) as u8).collect()),
            thresholds: vec![1],
        };
        let tables = vec![Table::Shaped(900, 128, 120), Table::Shaped(300, 160, 120)];
        Levels {
            map: Some(map),
            low: vec![0, 0],
            tables,
            ..Levels::new(Dtype::F32, &[64], 0, bell(64, 3.0, 163))
        }
    }));
    all
}
