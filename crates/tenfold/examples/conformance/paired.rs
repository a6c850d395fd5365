//! Golden vectors of levels in pairs.

use super::Vector;
use super::common::{Kind, Sample};
use super::encoded::{options, scaled, vector};
use tenfold::prepare::{Means, Transform};
use tenfold::{Dtype, Effort, Goal};

pub fn vectors() -> Vec<Vector> {
    let gauss = |dtype: Dtype, shape: &'static [usize], seed: u64| {
        move || Sample::make(dtype, shape, Kind::Gaussian, seed)
    };
    let bits = |b: f64, effort: Effort, lane: u32| options(Goal::Bits(b), effort, lane);
    let (fast, balanced, best) = (Effort::Fast, Effort::Balanced, Effort::Best);
    // Single values far out, by so much.
    let outliers = |dtype: Dtype, seed: u64, by: f64| {
        move || {
            let mut reals = Kind::Gaussian.reals(20_000, 1, seed);
            (0..20_000).step_by(6007).for_each(|i| reals[i] = by + i as f64 / 6007.0);
            Sample::new(dtype, &[100, 200], &reals)
        }
    };
    let rows = |i: usize| if (i / 256).is_multiple_of(3) { 1.0 } else { 6.0 };
    let columns = |i: usize| if i % 256 < 100 { 1.0 } else { 6.0 };
    vec![
        vector(
            "pairs_1",
            "one state",
            &["pairs bf16", "states 1"],
            bits(2.0, fast, 0),
            gauss(Dtype::Bf16, &[134, 130], 300),
        ),
        vector(
            "pairs_8",
            "eight states",
            &["pairs f16", "states 8"],
            bits(2.5, balanced, 0),
            gauss(Dtype::F16, &[136, 128], 301),
        ),
        vector(
            "pairs_256",
            "256 states",
            &["pairs f32", "states 256"],
            bits(1.5, best, 0),
            gauss(Dtype::F32, &[17_000], 302),
        ),
        vector(
            "pairs_f64",
            "f64",
            &["pairs f64"],
            bits(3.0, balanced, 256),
            gauss(Dtype::F64, &[17_200], 303),
        ),
        vector(
            "pairs_f8",
            "f8",
            &["pairs f8_e5m2"],
            bits(1.0, balanced, 0),
            gauss(Dtype::F8E5M2, &[2, 94, 92], 304),
        ),
        vector(
            "pairs_odd",
            "an odd number of values in several tiles",
            &["pair of one value", "pairs several tiles", "pairs short last tile"],
            bits(2.2, balanced, 128),
            gauss(Dtype::Bf16, &[17_153], 305),
        ),
        vector(
            "pairs_escapes_1",
            "pairs without a symbol, a byte each",
            &["pair escaped", "escapes of 1 byte"],
            bits(3.3, fast, 0),
            gauss(Dtype::Bf16, &[128, 160], 306),
        ),
        vector(
            "pairs_escapes_2",
            "two bytes",
            &["pair escaped", "escapes of 2 bytes"],
            options(Goal::Step(0.5), balanced, 0),
            outliers(Dtype::F32, 307, 100.0),
        ),
        vector(
            "pairs_escapes_8",
            "eight bytes",
            &["pair escaped", "escapes of 8 bytes"],
            options(Goal::Step(0.5), fast, 0),
            outliers(Dtype::F32, 308, 2000.0),
        ),
        vector(
            "pairs_rows",
            "classes by row",
            &["classes by rows", "pairs bf16"],
            bits(1.8, balanced, 0),
            scaled(Dtype::Bf16, &[72, 256], 309, rows),
        ),
        vector(
            "pairs_columns",
            "classes by pairs of columns",
            &["classes by columns", "pairs bf16"],
            bits(1.8, balanced, 512),
            scaled(Dtype::Bf16, &[72, 256], 310, columns),
        ),
        vector(
            "pairs_means",
            "behind means and kept elements",
            &["means", "kept elements", "pairs bf16"],
            bits(2.0, balanced, 0)
                .with_transforms(vec![Transform::Means(Means::measure(&vec![0.01f32; 256 * 4], 256))]),
            || Sample::make(Dtype::Bf16, &[68, 256], Kind::Gaussian, 311).sprinkle(300, 6),
        ),
        vector(
            "pairs_exact",
            "NaN and infinities",
            &["exact NaN", "exact infinity", "pairs f16"],
            bits(2.0, balanced, 0),
            || Sample::make(Dtype::F16, &[68, 256], Kind::Gaussian, 312).sprinkle(200, 6),
        ),
    ]
}
