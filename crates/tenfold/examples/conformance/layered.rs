//! Golden vectors of layers: a tensor and residuals of it.

use super::Vector;
use super::common::{Kind, Sample, specials};
use super::encoded::{options, vector, weights};
use tenfold::prepare::Axis;
use tenfold::{Dtype, Effort, Goal};

pub fn vectors() -> Vec<Vector> {
    let layers = |goals: &[Goal], effort: Effort| {
        goals[1..].iter().fold(options(goals[0], effort, 0), |options, &goal| options.with_residual(goal))
    };
    let round = Goal::RoundToNearest { bits: 6 };
    let mut all = Vec::new();
    for (dtype, effort) in
        super::common::FLOATS.into_iter().zip([Effort::Fast, Effort::Balanced, Effort::Best].repeat(2))
    {
        all.push(vector(
            format!("layers_{}", dtype.name()),
            "two layers, every float dtype, among them values that are not finite",
            &["layers 2", "layer of levels"],
            layers(&[Goal::Bits(3.0), round], effort),
            move || sprinkled(Sample::make(dtype, &[24, 30], Kind::Gaussian, 300)),
        ));
        let largest = format!("layers {dtype} largest");
        all.push(vector(
            format!("layers_{}_largest", dtype.name()),
            "sums at the ends of the range",
            &["layers 3", &largest],
            layers(&[Goal::Step(1e-3), round, Goal::Bits(2.0)], effort),
            move || ends(dtype, &[300]),
        ));
        all.push(vector(
            format!("layers_{}_exact", dtype.name()),
            "a tensor so small that its layers are lossless",
            &["layer of planes", &largest, &format!("layers {dtype} denormal")],
            layers(&[Goal::Bits(3.0), Goal::Bits(3.0)], effort),
            move || ends(dtype, &[3, 20]),
        ));
    }
    let weighted = layers(&[Goal::Bits(3.0), Goal::Bits(3.0)], Effort::Balanced);
    all.push(vector(
        "layers_steps",
        "a first layer behind weights, with kept elements",
        &["layer with steps"],
        weighted.with_transforms(vec![weights(Axis::Columns, 30)]),
        || sprinkled(Sample::make(Dtype::Bf16, &[24, 30], Kind::Gaussian, 302)),
    ));
    all.push(vector(
        "layers_8",
        "as many layers as there may be",
        &["layers 8"],
        layers(&[Goal::Bits(2.0); 8], Effort::Fast),
        || Sample::make(Dtype::F32, &[4, 100], Kind::Gaussian, 303),
    ));
    for (name, shape) in [("scalar", &[][..]), ("empty", &[3, 0]), ("tiny", &[2, 1, 5])] {
        all.push(vector(
            format!("layers_{name}"),
            "lossless layers of little",
            if name == "empty" { &["layer of planes", "layers empty"] } else { &["layer of planes"] },
            layers(&[Goal::Bits(3.0), Goal::Bits(3.0)], Effort::Fast),
            move || Sample::make(Dtype::F16, shape, Kind::Gaussian, 304),
        ));
    }
    all
}

/// A tensor with every special element somewhere.
fn sprinkled(mut s: Sample) -> Sample {
    let size = s.dtype.size();
    for (i, element) in specials(s.dtype).iter().enumerate() {
        s.data[(i * 31 + 7) * size..][..size].copy_from_slice(element);
    }
    s
}

/// The elements at the ends of a dtype's range, and what is not finite, again and again.
fn ends(dtype: Dtype, shape: &[usize]) -> Sample {
    let (bits, mantissa) = (8 * dtype.size() as u32, [3, 2, 10, 7, 23, 52][dtype.id() as usize - 16]);
    let sign = 1u64 << (bits - 1);
    // All ones in the exponent are not finite, but for E4M3, which has one such number only.
    let top = if dtype == Dtype::F8E4M3 { 0x7e } else { (((sign - 1) >> mantissa) << mantissa) - 1 };
    let ends = [top, top | sign, 1, 1 | sign, top - 1, (1 << mantissa) - 1, 0];
    let ends = ends.iter().map(|e| e.to_le_bytes()[..dtype.size()].to_vec()).chain(specials(dtype));
    let data = ends.collect::<Vec<_>>().into_iter().cycle().take(shape.iter().product());
    Sample { dtype, shape: shape.to_vec(), data: data.flatten().collect() }
}
