//! Conclusions from made-up curves whose answers are known.

use tenfold::{Dtype, Tensor};

use super::*;
use crate::metrics::gap_bits;
use crate::race::run::{Entrant, Input, Measured, TensorKind};

const RATES: [f64; 3] = [1.5, 2.0, 3.0];

fn input(kind: TensorKind) -> Input {
    let tensor = Tensor { dtype: Dtype::F32, shape: vec![0, 0], data: Vec::new() };
    let text = String::new;
    Input { file: text(), name: text(), kind, tensor, values_in_file: 0, fingerprint: text() }
}

fn entrant(id: &str) -> Entrant {
    Entrant { id: id.into(), title: id.to_uppercase(), kind: "video", ours: id == "best" }
}

/// A point `gap` bits above the Gaussian bound.
fn row(input: usize, family: &str, bits: f64, gap: f64, aimed: bool) -> Row {
    let nmse = (-2.0 * (bits - gap)).exp2();
    Row {
        file: "f".into(),
        tensor: format!("t{input}"),
        kind: TensorKind::Weights,
        input,
        family: family.into(),
        peer: family.into(),
        lossless: false,
        target: aimed.then_some(bits),
        commit: String::new(),
        failure: None,
        measured: Some(Measured {
            bytes: 1,
            bits,
            nmse: Some(nmse),
            mse: nmse,
            max_error: 1.0,
            max_error_over_std: Some(3.0),
            gap: Some(gap_bits(bits, nmse)),
            lost_specials: 0,
            speeds: Vec::new(),
        }),
    }
}

/// Two tensors. The reference lies 0.5 bits above the bound, `best` 0.1 at more rates, `once` has a
/// single point 0.3 above.
fn made_up() -> (Vec<Input>, Vec<Entrant>, Vec<Row>) {
    let mut rows = Vec::new();
    for i in 0..2 {
        rows.extend(RATES.map(|b| row(i, "x265", b, 0.5, true)));
        rows.extend([1.0, 1.5, 2.0, 3.0].map(|b| row(i, "best", b, 0.1, true)));
        rows.push(row(i, "once", 2.25, 0.3, false));
    }
    let inputs = vec![input(TensorKind::Weights), input(TensorKind::Kv)];
    (inputs, ["x265", "best", "once"].map(entrant).to_vec(), rows)
}

#[test]
fn bits_at_equal_error_of_parallels() {
    let (inputs, entrants, rows) = made_up();
    let tables = equal_error(&inputs, &entrants, &rows, &RATES, "x265").unwrap();
    assert_eq!(
        tables.iter().map(|t| t.kind).collect::<Vec<_>>(),
        [None, Some(TensorKind::Weights), Some(TensorKind::Kv)]
    );
    let all = &tables[0];
    let of = |id: &str| all.rows.iter().find(|r| r.family == id).unwrap();
    for (rate, cell) in RATES.iter().zip(&of("best").cells) {
        let cell = cell.unwrap();
        assert_eq!(cell.count, 2);
        assert!((cell.bits + 0.4).abs() < 1e-9, "{cell:?}");
        assert!((cell.ratio - (rate - 0.4) / rate).abs() < 1e-9, "{cell:?}");
    }
    assert!(of("x265").cells.iter().all(|c| (c.unwrap().ratio - 1.0).abs() < 1e-12));
    // One point is no curve; at its own error the reference takes 2.45 bits.
    assert!(of("once").cells.iter().all(Option::is_none));
    let own = of("once").own.unwrap();
    assert_eq!(own.count, 2);
    assert!((own.bits + 0.2).abs() < 1e-9 && (own.ratio - 2.25 / 2.45).abs() < 1e-9);
    assert!(equal_error(&inputs, &entrants, &rows, &RATES, "nobody").is_none());
}

#[test]
fn nothing_is_said_beyond_the_curves() {
    let (inputs, entrants, mut rows) = made_up();
    // Without its point at 1 bit and on one tensor only, `best` cannot tell what 1.5 bits of x265 are worth.
    rows.retain(|r| r.family != "best" || (r.input == 0 && r.target != Some(1.0)));
    let tables = equal_error(&inputs, &entrants, &rows, &RATES, "x265").unwrap();
    let best = tables[0].rows.iter().find(|r| r.family == "best").unwrap();
    assert_eq!(best.cells[0], None);
    assert_eq!(best.cells[1].unwrap().count, 1);
}

#[test]
fn gaps_are_measured_where_aimed_and_between_points_where_not() {
    let (inputs, entrants, mut rows) = made_up();
    rows.push(row(0, "once", 1.25, 0.3, false));
    let tables = gap_tables(&inputs, &entrants, &rows, &RATES);
    assert_eq!(tables.len(), 2);
    let of = |t: usize, id: &str| tables[t].rows.iter().find(|r| r.family == id);
    for cell in &of(0, "x265").unwrap().cells {
        assert!((cell.unwrap().gap - 0.5).abs() < 1e-9);
    }
    let once = &of(0, "once").unwrap().cells;
    assert!((once[0].unwrap().gap - 0.3).abs() < 1e-9 && (once[1].unwrap().gap - 0.3).abs() < 1e-9);
    assert_eq!(once[2], None, "3 bits lie beyond its last point");
    assert!(of(1, "once").is_none(), "a single point meets no rate");
}

#[test]
fn losses_are_points_below_our_curve() {
    let (_, entrants, mut rows) = made_up();
    let none = losses(&entrants, &rows);
    assert_eq!((none.compared, none.outside, none.found.len()), (8, 0, 0));
    assert!(none.headline().starts_with("BEST loses nowhere"), "{}", none.headline());
    rows.push(row(1, "once", 2.5, 0.05, false));
    rows.push(row(1, "once", 2.6, 0.0, false));
    rows.push(row(1, "once", 4.0, 0.0, false));
    let some = losses(&entrants, &rows);
    assert_eq!((some.compared, some.outside), (10, 1));
    let found: Vec<(&str, f64)> = some.found.iter().map(|l| (l.tensor.as_str(), l.bits)).collect();
    assert_eq!(found, [("t1", 2.6), ("t1", 2.5)], "the worst first");
    assert!((some.found[1].ours / some.found[1].nmse - 2f64.powf(0.1)).abs() < 1e-9);
    assert!(some.headline().contains("loses at 2 of 10"), "{}", some.headline());
    assert!(losses(&entrants[..1], &rows).headline().contains("did not run"));
}

#[test]
fn a_kind_is_the_mean_of_its_tensors() {
    let (_, _, rows) = made_up();
    let points = points(&["x265", "best"], &rows, |i| i < 2);
    assert_eq!(points.len(), 7);
    assert!(points.iter().all(|p| p.tensors == 2 && (p.max_error - 3.0).abs() < 1e-9));
    let best: Vec<f64> = points.iter().filter(|p| p.family == 1).map(|p| p.bits).collect();
    assert_eq!(best, [1.0, 1.5, 2.0, 3.0]);
    assert!(points.iter().all(|p| (p.gap - [0.5, 0.1][p.family]).abs() < 1e-9));
}
