//! Golden vectors that the library's own encoder makes.

use super::common::{Kind, Random, Sample, decode, specials};
use super::{Made, Vector};
use std::sync::Arc;

use tenfold::prepare::Scaling as PrepareScaling;
use tenfold::prepare::{
    Axis, Basis, Dct, Delta, Hadamard, Means, Pairing, Positions, Rope, Rotation, Transform, Weights,
};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

/// Options in the order in which they matter here. Transforms are always stated.
pub(super) fn options(goal: Goal, effort: Effort, lane_values: u32) -> EncodeOptions {
    EncodeOptions::new(goal).with_effort(effort).with_lane_values(lane_values).with_transforms(Vec::new())
}

pub(super) fn vector(
    name: impl Into<String>,
    note: &'static str,
    shows: &[&str],
    options: EncodeOptions,
    sample: impl Fn() -> Sample + 'static,
) -> Vector {
    let make = move || {
        let sample = sample();
        let blob = tenfold::encode(&sample.view(), &options).unwrap();
        let data = if options.goal == Goal::Lossless { sample.data } else { decode(&blob).data };
        Made { blob, data }
    };
    let shows = shows.iter().map(|s| s.to_string()).collect();
    Vector { name: name.into(), note, shows, make: Box::new(make) }
}

pub fn vectors() -> Vec<Vector> {
    let mut all = lossless();
    all.extend(lossy());
    all.extend(classes());
    all.extend(prepared());
    all
}

/// Weights from a fixed list, over six octaves.
pub(super) fn weights(axis: Axis, n: usize) -> Transform {
    Transform::Weights(Weights::new(axis, (0..n).map(|j| (j * 37 % 49) as i8 - 24).collect()))
}

/// Steps before levels.
fn prepared() -> Vec<Vector> {
    let (columns, rows) = (|n| weights(Axis::Columns, n), |n| weights(Axis::Rows, n));
    let step = |s: f64, effort: Effort, transforms: Vec<Transform>| {
        options(Goal::Step(s), effort, 0).with_transforms(transforms)
    };
    let gauss = |dtype: Dtype, seed: u64| move || Sample::make(dtype, &[48, 36], Kind::Gaussian, seed);
    let mut all = Vec::new();
    for (dtype, effort) in
        super::common::FLOATS.into_iter().zip([Effort::Fast, Effort::Balanced, Effort::Best].repeat(2))
    {
        all.push(vector(
            format!("weights_{}", dtype.name()),
            "step weights of columns, every float dtype",
            &["weights of columns"],
            step(0.5, effort, vec![columns(36)]),
            gauss(dtype, 130 + dtype.id() as u64),
        ));
    }
    let one = |name: &str, note: &'static str, shows: &str, transforms: Vec<Transform>, dtype: Dtype| {
        vector(name, note, &[shows], step(0.3, Effort::Balanced, transforms), gauss(dtype, 150))
    };
    let order = "two products, each rounded, in the order of the steps";
    all.push(one("weights_rows", "step weights of rows", "weights of rows", vec![rows(48)], Dtype::Bf16));
    let both = vec![columns(36), rows(48)];
    all.push(one("weights_columns_rows", order, "weights of columns, then of rows", both, Dtype::F32));
    let both = vec![rows(48), columns(36)];
    all.push(one("weights_rows_columns", order, "weights of rows, then of columns", both, Dtype::F32));
    let both = vec![rows(48), columns(36)];
    all.push(one("weights_f64_both", order, "weights of rows, then of columns", both, Dtype::F64));
    for (dtype, name) in [(Dtype::F16, "kept_f16"), (Dtype::F64, "kept_f64"), (Dtype::F8E5M2, "kept_f8_e5m2")]
    {
        all.push(vector(
            name,
            "NaN payloads and infinities are put back after the weights, alone and in runs",
            &["kept elements", "kept run"],
            step(0.3, Effort::Balanced, vec![columns(36)]),
            move || {
                let mut s = Sample::make(dtype, &[48, 36], Kind::Gaussian, 160).sprinkle(300, 6);
                let size = dtype.size();
                let odd = specials(dtype)[0].clone();
                (700..715).for_each(|i| s.data[i * size..][..size].copy_from_slice(&odd));
                s
            },
        ));
    }
    all.push(vector(
        "weights_tiles",
        "tiles that end within rows",
        &["weights of columns, then of rows", "levels several tiles", "levels short last tile"],
        options(Goal::Bits(2.0), Effort::Best, 64).with_transforms(vec![columns(36), rows(48)]),
        gauss(Dtype::F16, 170),
    ));
    let shifted = |dtype: Dtype| move || Sample::make(dtype, &[26, 40], Kind::Shifted, 180).sprinkle(300, 6);
    let reals = shifted(Dtype::F32)().reals();
    let chain = |name: &str, note: &'static str, shows: &[&str], transforms: Vec<Transform>, dtype: Dtype| {
        vector(name, note, shows, step(0.2, Effort::Balanced, transforms), shifted(dtype))
    };
    let means = || Transform::Means(Means::measure(&reals, 40));
    let wide =
        Transform::Means(Means::measure(&[1000.3f32, 1000.301].map(|v| v + 0.001).repeat(20).repeat(2), 40));
    let delta = |n| Transform::Delta(Delta::new(n).unwrap());
    let rope = || Rope::new(20, 1e4).unwrap();
    let llama = PrepareScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64.0 };
    let list = Positions::List(vec![7, 100_000, 0]);
    let turned =
        rope().with_pairing(Pairing::Neighbours).with_turned(8).unwrap().with_positions(list).unwrap();
    let scaled = rope().with_scaling(llama).unwrap().with_positions(Positions::From(1000)).unwrap();
    let slow = rope().with_scaling(PrepareScaling::Linear(4.0)).unwrap();
    all.extend([
        chain("means_bf16", "means as bf16", &["means", "kept elements"], vec![means()], Dtype::Bf16),
        chain("means_f32", "means as f32", &["means"], vec![wide], Dtype::F32),
        chain("means_f64", "a sum in f64", &["means"], vec![means()], Dtype::F64),
        chain("delta_f32", "sums from row to row", &["delta"], vec![delta(8)], Dtype::F32),
        chain(
            "delta_means",
            "differences of what is left",
            &["delta", "means"],
            vec![means(), delta(5)],
            Dtype::F16,
        ),
        chain(
            "hadamard_f32",
            "blocks of 8",
            &["Hadamard"],
            vec![Transform::Hadamard(Hadamard::new(3, 9).unwrap())],
            Dtype::F32,
        ),
        chain(
            "dct_f16",
            "blocks of 16 and one of 8",
            &["DCT"],
            vec![Transform::Dct(Dct::new(4).unwrap())],
            Dtype::F16,
        ),
        chain(
            "rope_f32",
            "halves, positions from 1000, as in Llama 3",
            &["rotary positions"],
            vec![Transform::Rope(scaled)],
            Dtype::F32,
        ),
        chain(
            "rope_f64",
            "halves, linear scaling",
            &["rotary positions"],
            vec![Transform::Rope(slow)],
            Dtype::F64,
        ),
        chain(
            "rope_chain",
            "neighbours, some columns only, listed positions, then means, weights and DCT",
            &["rotary positions", "means", "DCT", "weights of columns"],
            vec![Transform::Rope(turned), means(), columns(40), Transform::Dct(Dct::new(5).unwrap())],
            Dtype::F32,
        ),
    ]);
    let weighted = |rows, cols| {
        [Axis::Rows, Axis::Columns].map(|axis| weights(axis, if axis == Axis::Rows { rows } else { cols }))
    };
    all.extend([
        chain(
            "transposed_f32",
            "rows in place of columns, with elements kept",
            &["transposed", "kept elements"],
            vec![Transform::Transposed],
            Dtype::F32,
        ),
        chain(
            "transposed_bf16",
            "transposed, then weighted along both axes",
            &["transposed", "weights of rows, then of columns"],
            [&[Transform::Transposed][..], &weighted(40, 26)].concat(),
            Dtype::Bf16,
        ),
        chain(
            "transposed_f64",
            "sums from column to column",
            &["transposed", "delta"],
            vec![Transform::Transposed, delta(6)],
            Dtype::F64,
        ),
    ]);
    all.extend(bases());
    all.push(vector(
        "weights_outlier",
        "a working value that no level can hold",
        &["exact working value"],
        step(0.01, Effort::Balanced, vec![columns(20)]),
        || {
            let mut reals = Kind::Gaussian.reals(300, 20, 16);
            reals[150] = 3e30;
            Sample::new(Dtype::Bf16, &[15, 20], &reals)
        },
    ));
    all
}

/// Vectors that are cosines, of rows that are sums of the first few.
fn bases() -> Vec<Vector> {
    let cosine = |cols: usize, k: usize, i: usize| {
        let scale = (if k == 0 { 1.0 } else { 2.0 } / cols as f64).sqrt();
        scale * (std::f64::consts::PI * (i as f64 + 0.5) * k as f64 / cols as f64).cos()
    };
    let size = |k: usize| 6.0 * 0.8f64.powi(k as i32);
    let basis = |cols: usize, rank: usize| {
        let means: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.4).cos()).collect();
        let vectors: Vec<f32> =
            (0..rank).flat_map(|k| (0..cols).map(move |i| cosine(cols, k, i) as f32)).collect();
        Basis::orthonormal(&means, &vectors).unwrap()
    };
    let sample = move |dtype: Dtype, rows: usize, cols: usize| {
        move || {
            let c = Kind::Gaussian.reals(rows * cols, cols, 190);
            let sum = |r: usize, i: usize| {
                (0..cols).map(|k| c[r * cols + k] * size(k) * cosine(cols, k, i)).sum::<f64>()
            };
            let reals: Vec<f64> =
                (0..rows).flat_map(|r| (0..cols).map(move |i| (r, i))).map(|(r, i)| sum(r, i)).collect();
            Sample::new(dtype, &[rows, cols], &reals)
        }
    };
    let by = |rotation: Rotation| vec![Transform::Basis(rotation)];
    let whole = Rotation::embedded(&Arc::new(basis(20, 20)));
    let few = Rotation::embedded(&Arc::new(basis(24, 9)));
    let deviations: Vec<f64> = (0..32).map(size).collect();
    let knowing = Rotation::embedded(&Arc::new(basis(48, 32).with_deviations(&deviations).unwrap()));
    let rope = Transform::Rope(Rope::new(8, 1e4).unwrap().with_positions(Positions::From(64)).unwrap());
    let step = |v: f64, effort: Effort, transforms: Vec<Transform>| {
        options(Goal::Step(v), effort, 0).with_transforms(transforms)
    };
    let (fast, balanced, best) = (Effort::Fast, Effort::Balanced, Effort::Best);
    vec![
        vector(
            "basis_f32",
            "an embedded basis of as many vectors as columns",
            &["basis"],
            step(0.05, balanced, by(whole.clone())),
            sample(Dtype::F32, 60, 20),
        ),
        vector(
            "basis_f64",
            "sums in f64",
            &["basis"],
            step(0.05, fast, by(whole)),
            sample(Dtype::F64, 60, 20),
        ),
        vector(
            "basis_few",
            "fewer vectors than columns, behind rotary positions",
            &["basis of fewer vectors than columns", "rotary positions"],
            step(0.1, best, vec![rope, Transform::Basis(few)]),
            sample(Dtype::Bf16, 100, 24),
        ),
        vector(
            "basis_scales",
            "classes by scales that the basis knows",
            &["basis with scales", "classes by basis"],
            step(0.2, balanced, by(knowing)),
            sample(Dtype::F16, 128, 48),
        ),
    ]
}

/// Values like those of a model, with everything odd that the type has in between.
fn odd(dtype: Dtype, shape: &[usize], seed: u64) -> Sample {
    let mut s = Sample::make(dtype, shape, Kind::Gaussian, seed);
    if dtype.is_float() {
        let size = dtype.size();
        let mut denormal = vec![0u8; size];
        denormal[0] = 3;
        let mut odd = specials(dtype);
        odd.extend([denormal.clone(), vec![0; size]]);
        denormal[size - 1] |= 0x80;
        odd.push(denormal);
        for (i, v) in odd.iter().enumerate() {
            s.data[(7 + 31 * i) * size..][..size].copy_from_slice(v);
        }
    }
    s
}

fn lossless() -> Vec<Vector> {
    let plain = || options(Goal::Lossless, Effort::Fast, 0);
    let mut all = Vec::new();
    for dtype in Dtype::ALL {
        let name = format!("planes_{}", dtype.name());
        let mut shows = vec![format!("planes {dtype}"), "planes dims 2".into()];
        if dtype.is_float() {
            shows.extend(["NaN", "negative zero", "denormal"].map(|what| format!("planes {dtype} {what}")));
        }
        let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
        let note = "every dtype; floats hold NaN payloads, infinities, -0 and denormals";
        all.push(vector(name, note, &shows, plain(), move || odd(dtype, &[13, 25], 40 + dtype.id() as u64)));
    }
    for (lanes, values) in [(1, 300), (2, 600), (4, 1100), (8, 2100), (16, 4100), (32, 4400)] {
        let (name, feature) = (format!("planes_lanes_{lanes}"), format!("planes lanes {lanes}"));
        all.push(vector(name, "a coded plane", &[&feature, "plane coded"], plain(), move || {
            let mut s = Sample::noise(Dtype::I8, &[values], values as u64);
            s.data
                .iter_mut()
                .for_each(|b| *b = (*b as i8).signum().wrapping_mul(b.leading_ones() as i8) as u8);
            s
        }));
    }
    let shape = |dims: &'static [usize]| move || Sample::make(Dtype::F32, dims, Kind::Gaussian, 12);
    all.push(vector("planes_0d", "no dimensions, one value", &["planes dims 0"], plain(), shape(&[])));
    all.push(vector("planes_empty", "no values", &["planes empty"], plain(), shape(&[4, 0])));
    let wide = "empty, whatever the other dimensions say";
    all.push(vector("planes_empty_wide", wide, &["planes empty"], plain(), shape(&[1 << 40, 0, 1 << 40])));
    all.push(vector("planes_1d", "one dimension", &["planes dims 1"], plain(), shape(&[67])));
    all.push(vector("planes_3d", "three dimensions", &["planes dims 3"], plain(), shape(&[3, 5, 7])));
    all.push(vector("planes_4d", "four dimensions", &["planes dims 4"], plain(), shape(&[2, 3, 4, 5])));
    all.push(vector(
        "planes_constant",
        "every plane constant",
        &["plane constant", "planes no table"],
        plain(),
        || Sample::make(Dtype::F64, &[64], Kind::Constant, 1),
    ));
    all.push(vector(
        "planes_stored",
        "every plane stored",
        &["plane stored", "planes no table"],
        plain(),
        || Sample::noise(Dtype::U16, &[131], 2),
    ));
    let modes = &["plane constant", "plane stored", "plane coded"];
    all.push(vector("planes_modes", "one plane of each mode, and a second table", modes, plain(), || {
        let mut s = Sample::noise(Dtype::U32, &[30, 20], 3);
        for (i, v) in s.data.chunks_exact_mut(4).enumerate() {
            (v[1], v[2], v[3]) = (v[1].leading_zeros() as u8, if i % 7 == 0 { 9 } else { 1 }, 77);
        }
        s
    }));
    let many =
        &["planes several tiles", "planes short last tile", "plane constant", "plane stored", "plane coded"];
    all.push(vector(
        "planes_tiles",
        "modes change from tile to tile",
        many,
        options(Goal::Lossless, Effort::Fast, 64),
        || {
            let mut s = Sample::make(Dtype::Bf16, &[65, 31], Kind::Gaussian, 5);
            s.data[..1010].fill(0x3f);
            let noise = Random::new(6).bytes(1008);
            s.data[2016..3024].copy_from_slice(&noise);
            s
        },
    ));
    all
}

fn lossy() -> Vec<Vector> {
    let step = |s: f64, effort: Effort| options(Goal::Step(s), effort, 0);
    let bits = |b: f64, effort: Effort| options(Goal::Bits(b), effort, 0);
    let (fast, balanced, best) = (Effort::Fast, Effort::Balanced, Effort::Best);
    let gauss = |dtype: Dtype, shape: &'static [usize], seed: u64| {
        move || Sample::make(dtype, shape, Kind::Gaussian, seed)
    };
    let mut all = Vec::new();
    for dtype in super::common::FLOATS {
        for (effort, states) in [(fast, 1), (balanced, 8), (best, 256)] {
            let name = format!("levels_{}_{}", dtype.name(), effort.name());
            let shows = [format!("levels {dtype}"), format!("states {states}")];
            let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
            let seed = 60 + dtype.id() as u64 + states;
            all.push(vector(
                name,
                "every float dtype at every effort",
                &shows,
                step(0.4, effort),
                gauss(dtype, &[18, 23], seed),
            ));
        }
    }
    for (lanes, values) in [(1, 1000), (2, 1600), (4, 2600), (8, 4700), (16, 8800), (32, 17000)] {
        let feature = format!("levels lanes {lanes}");
        let name = format!("levels_lanes_{lanes}");
        all.push(vector(
            name,
            "the encoder's own choice of lanes",
            &[&feature],
            bits(1.2, balanced),
            move || Sample::make(Dtype::F8E5M2, &[values], Kind::Laplace, values as u64),
        ));
    }
    let many = &["levels several tiles", "levels short last tile"];
    all.push(vector(
        "levels_tiles",
        "several tiles, the last short",
        many,
        options(Goal::Bits(2.0), best, 64),
        gauss(Dtype::F16, &[23, 29], 4),
    ));
    all.push(vector(
        "levels_offsets",
        "reconstruction offsets",
        &["offsets some", "table log 12"],
        bits(1.0, fast),
        gauss(Dtype::F8E4M3, &[130, 128], 8),
    ));
    all.push(vector(
        "levels_measured",
        "few different values: a measured table",
        &["table measured", "table log 12"],
        step(0.25, fast),
        || {
            let mut r = Random::new(8);
            let reals: Vec<f64> = (0..600).map(|_| [-2.0, 1.0, 0.0, 3.0][r.below(4)]).collect();
            Sample::new(Dtype::F16, &[30, 20], &reals)
        },
    ));
    all.push(vector(
        "levels_shaped",
        "tables computed from a shape",
        &["table shaped", "low bits none"],
        bits(3.0, fast),
        gauss(Dtype::F32, &[20, 20], 9),
    ));
    all.push(vector(
        "levels_repeated",
        "both quantisers share a table",
        &["table repeated"],
        step(0.08, balanced),
        gauss(Dtype::F32, &[20, 20], 10),
    ));
    all.push(vector(
        "levels_low_bits",
        "raw low bits",
        &["low bits equal"],
        bits(11.0, balanced),
        gauss(Dtype::F32, &[20, 20], 11),
    ));
    let fine = &["low bits equal", "states 1"];
    all.push(vector(
        "levels_fine",
        "a very fine step",
        fine,
        bits(20.0, balanced),
        gauss(Dtype::F64, &[300], 12),
    ));
    let far = |every: usize, by: f64, seed: u64| {
        move || {
            let far = |(i, v): (usize, f64)| if i % every == 5 { v * by } else { v };
            let reals: Vec<f64> =
                Kind::Gaussian.reals(440, 20, seed).into_iter().enumerate().map(far).collect();
            Sample::new(Dtype::F32, &[22, 20], &reals)
        }
    };
    for (width, by) in [(1, 12.0), (2, 700.0), (4, 300_000.0)] {
        let feature = format!("escapes of {width} byte{}", if width > 1 { "s" } else { "" });
        let name = format!("levels_escapes_{width}");
        let effort = if width == 4 { fast } else { balanced };
        all.push(vector(name, "values far from the rest", &[&feature], step(0.2, effort), far(440, by, 13)));
    }
    let kept = &["exact NaN", "exact infinity"];
    all.push(vector(
        "levels_exact",
        "NaN payloads and infinities among values",
        kept,
        step(0.1, balanced),
        || Sample::make(Dtype::Bf16, &[15, 21], Kind::Gaussian, 14).sprinkle(20, 6),
    ));
    let mask = &["exact run", "exact infinity"];
    all.push(vector(
        "levels_mask",
        "runs of minus infinity, as in attention masks",
        mask,
        step(0.2, fast),
        || {
            let s = Sample::make(Dtype::F16, &[20, 20], Kind::Gaussian, 15);
            let masked = |(i, v): (usize, f64)| if i % 20 > i / 20 { f64::NEG_INFINITY } else { v };
            let reals: Vec<f64> = s.reals().into_iter().enumerate().map(masked).collect();
            Sample::new(Dtype::F16, &[20, 20], &reals)
        },
    ));
    let far_out = &["exact finite"];
    all.push(vector(
        "levels_outlier",
        "a value that no level can hold",
        far_out,
        step(0.01, balanced),
        || {
            let mut reals = Kind::Gaussian.reals(300, 20, 16);
            reals[150] = 3e30;
            Sample::new(Dtype::F32, &[15, 20], &reals)
        },
    ));
    let zeros = &["tile of zeros", "tile coded"];
    all.push(vector(
        "levels_zero_tile",
        "a tile without content",
        zeros,
        options(Goal::Step(0.3), balanced, 128),
        || {
            let mut reals = Kind::Gaussian.reals(512, 32, 17);
            reals[128..300].fill(0.0);
            Sample::new(Dtype::F32, &[16, 32], &reals)
        },
    ));
    let bound = options(Goal::MaxError(0.05), balanced, 0);
    all.push(vector(
        "levels_max_error",
        "a bound on every error",
        &["states 1"],
        bound,
        gauss(Dtype::Bf16, &[20, 20], 18),
    ));
    all.push(vector(
        "levels_4d",
        "four dimensions",
        &["levels dims 4"],
        step(0.5, balanced),
        gauss(Dtype::Bf16, &[3, 4, 5, 7], 19),
    ));
    all
}

/// Gaussian values times a factor by position.
pub(super) fn scaled(
    dtype: Dtype,
    shape: &'static [usize],
    seed: u64,
    by: impl Fn(usize) -> f64 + 'static,
) -> impl Fn() -> Sample {
    move || {
        let n = shape.iter().product();
        let reals: Vec<f64> =
            Kind::Gaussian.reals(n, 1, seed).into_iter().enumerate().map(|(i, v)| v * by(i)).collect();
        Sample::new(dtype, shape, &reals)
    }
}

fn classes() -> Vec<Vector> {
    let bits = |b: f64, effort: Effort| options(Goal::Bits(b), effort, 0);
    let octave = |i: usize, n: usize| 2f64.powi((i * 5 % n) as i32);
    vec![
        vector(
            "classes_rows",
            "statistics by row",
            &["classes by rows", "low bits none"],
            bits(1.5, Effort::Balanced),
            scaled(Dtype::Bf16, &[32, 64], 20, move |i| if i / 64 % 2 == 0 { 1.0 } else { 30.0 }),
        ),
        vector(
            "classes_columns",
            "statistics by column",
            &["classes by columns"],
            bits(1.5, Effort::Balanced),
            scaled(Dtype::Bf16, &[64, 32], 21, move |i| if i % 4 == 0 { 30.0 } else { 1.0 }),
        ),
        vector(
            "classes_both",
            "statistics by row and column",
            &["classes by rows and columns"],
            bits(2.0, Effort::Fast),
            scaled(Dtype::F8E5M2, &[96, 64], 22, move |i| octave(i / 64, 6) * octave(i % 64, 6) / 64.0),
        ),
        vector(
            "classes_runs",
            "one dimension: statistics by runs of values",
            &["classes by runs", "levels dims 1"],
            bits(1.5, Effort::Best),
            scaled(Dtype::F16, &[3000], 23, move |i| if i / 256 % 2 == 0 { 1.0 } else { 50.0 }),
        ),
        vector(
            "classes_low_bits",
            "low bits by class",
            &["low bits by class"],
            bits(7.0, Effort::Balanced),
            scaled(Dtype::F32, &[24, 64], 24, move |i| if i / 64 % 3 == 0 { 400.0 } else { 1.0 }),
        ),
        vector(
            "classes_log_11",
            "more than two classes, tables of 2^11 slots",
            &["table log 11"],
            bits(2.0, Effort::Balanced),
            scaled(Dtype::F8E5M2, &[64, 64], 25, move |i| 8f64.powi((i / 64 % 4) as i32) / 64.0),
        ),
        vector(
            "classes_log_10",
            "many classes, tables of 2^10 slots",
            &["table log 10"],
            bits(7.0, Effort::Fast),
            scaled(Dtype::F16, &[64, 64], 26, move |i| 3f64.powi((i / 64 * 7 % 11) as i32 - 6)),
        ),
    ]
}
