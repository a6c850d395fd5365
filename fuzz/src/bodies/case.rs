//! A tensor and options drawn from the input.

use tenfold::prepare::{Axis, Dct, Delta, Hadamard, Means, Positions, Rope, Transform, Weights};
use tenfold::{Dtype, Effort, EncodeOptions, Goal, Tensor};

use super::draw::Draw;

/// What to encode and how.
pub struct Case {
    pub tensor: Tensor,
    pub options: EncodeOptions,
    /// Whether the content is noise around zero, on which rates are promised.
    pub noise: bool,
}

impl Case {
    /// Draws a tensor of at most `most` values. The first bytes decide, in this order: dtype, goal, its number
    /// (two bytes), effort, values a lane, content, dimensions; what is left is content.
    pub fn draw(mut draw: Draw<'_>, most: usize) -> Case {
        let dtype = draw.pick(&Dtype::ALL);
        let goal = draw.byte();
        let number = draw.positive();
        let effort = draw.pick(&[Effort::Fast, Effort::Balanced, Effort::Best]);
        let lane_values = draw.pick(&[0, 0, 0, 32, 64, 1000, 65536]);
        let content = draw.byte();
        // The search over 256 states is slow; small tensors reach all of it.
        let most = if effort == Effort::Best { most.min(1024) } else { most };
        let shape = shape(&mut draw, most);
        let values: usize = shape.iter().product();
        let noise = content & 1 == 1 && dtype.is_float();
        let data = match noise {
            true => self::noise(dtype, values, draw.rest()),
            false => repeat(values * dtype.size(), draw.rest()),
        };
        let bytes = data.len();
        let residual = if dtype.is_float() { residual(goal / 8, number) } else { Vec::new() };
        let goal = match goal % 8 {
            0 => Goal::Lossless,
            1 => Goal::Bits(number),
            2 => Goal::Ratio(number),
            3 => Goal::Mse(number),
            4 => Goal::Nmse(number),
            5 => Goal::MaxError(number),
            // From far too small to more than enough.
            6 => Goal::MaxBytes((number.min(1e6) * bytes as f64 / 64.0) as usize),
            _ => Goal::Step(number),
        };
        let which = content >> 1;
        let options =
            EncodeOptions::new(goal).with_effort(effort).with_lane_values(lane_values).with_threads(1);
        let options = match which % 16 {
            // What happens unless told otherwise.
            8 => options,
            which => options.with_transforms(transforms(which, &shape, &data)),
        };
        // Layers are not for lossless goals.
        let residual = if goal == Goal::Lossless { Vec::new() } else { residual };
        let options = residual.into_iter().fold(options, EncodeOptions::with_residual);
        Case { tensor: Tensor { dtype, shape, data }, options, noise }
    }
}

/// Goals of further layers, mostly none.
fn residual(which: u8, number: f64) -> Vec<Goal> {
    let round = Goal::RoundToNearest { bits: 8 };
    match which {
        1 => vec![round],
        2 => vec![Goal::Bits(number), round],
        3 => vec![Goal::Mse(number), Goal::MaxError(number), Goal::Step(number)],
        _ => Vec::new(),
    }
}

/// One chain of nine, with numbers from the first bytes of the content.
fn transforms(which: u8, shape: &[usize], data: &[u8]) -> Vec<Transform> {
    let cols = shape.last().copied().unwrap_or(1);
    let rows = shape.split_last().map_or(1, |(_, rows)| rows.iter().product());
    let byte = |j: usize| data.get(j).copied().unwrap_or(0);
    let weights =
        |axis, n: usize| Transform::Weights(Weights::new(axis, (0..n).map(|j| byte(j) as i8).collect()));
    let means = || {
        Transform::Means(Means::new(&(0..cols).map(|j| f32::from(byte(j) as i8) / 16.0).collect::<Vec<_>>()))
    };
    let delta = Delta::new(2 + usize::from(byte(0) % 30)).map(Transform::Delta);
    let rope = Rope::new(cols, 1e4)
        .and_then(|r| r.with_positions(Positions::From(u64::from(byte(1)))))
        .map(Transform::Rope);
    // The last byte alone, so that kept inputs mean what they meant.
    match if which == 255 { 8 } else { which % 8 } {
        1 => vec![weights(Axis::Columns, cols)],
        2 => vec![weights(Axis::Rows, rows)],
        3 => vec![weights(Axis::Rows, rows), weights(Axis::Columns, cols)],
        4 => vec![means()],
        5 => delta.into_iter().collect(),
        6 => Dct::new(2 + byte(0) % 4).into_iter().map(Transform::Dct).collect(),
        // No head has an odd number of columns.
        7 => rope.into_iter().chain([means()]).chain(Hadamard::new(5, 7).map(Transform::Hadamard)).collect(),
        8 => vec![Transform::Transposed, weights(Axis::Columns, rows), weights(Axis::Rows, cols)],
        _ => Vec::new(),
    }
}

/// Up to four dimensions with at most `most` values; a few are empty or without dimensions.
fn shape(draw: &mut Draw<'_>, most: usize) -> Vec<usize> {
    let dims = draw.pick(&[2, 2, 2, 1, 3, 4, 0]);
    let mut room = most;
    let mut shape = Vec::new();
    for left in (0..dims).rev() {
        // Leave something for the dimensions to come.
        let most = if left == 0 { room } else { room.isqrt() };
        let size = draw.below(most + 1);
        room /= size.max(1);
        shape.push(size);
    }
    shape
}

/// The input again and again.
fn repeat(bytes: usize, input: &[u8]) -> Vec<u8> {
    match input.is_empty() {
        true => vec![0; bytes],
        false => input.iter().copied().cycle().take(bytes).collect(),
    }
}

/// Roughly normal numbers, seeded by the input.
fn noise(dtype: Dtype, values: usize, input: &[u8]) -> Vec<u8> {
    let mut state =
        input.iter().fold(0x9e37_79b9_7f4a_7c15u64, |s, &b| (s ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut out = Vec::with_capacity(values * dtype.size());
    for _ in 0..values {
        let value = uniform() + uniform() + uniform() + uniform();
        match dtype {
            Dtype::F64 => out.extend(f64::from(value).to_le_bytes()),
            Dtype::F32 => out.extend(value.to_le_bytes()),
            Dtype::F16 => out.extend(half::f16::from_f32(value).to_le_bytes()),
            Dtype::Bf16 => out.extend(half::bf16::from_f32(value).to_le_bytes()),
            // Truncated; noise all the same.
            Dtype::F8E5M2 => out.push(half::f16::from_f32(value).to_le_bytes()[1]),
            _ => out.push((uniform() * 128.0) as i8 as u8 & 0xbf),
        }
    }
    out
}
