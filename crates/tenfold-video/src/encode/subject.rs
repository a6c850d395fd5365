//! The tensor as the search sees it: finite, rotated real numbers.

use tenfold::prepare::Hadamard;
use tenfold::{Dtype, Error, TensorView};

use crate::options::VideoOptions;
use crate::samples::Scaling;

pub(super) struct Subject<'a> {
    pub view: &'a TensorView<'a>,
    /// Finite values after the preparation steps; the bytes themselves for a tensor of bytes.
    pub values: Vec<f64>,
    /// Positions and elements of values that are not finite.
    pub specials: Vec<(usize, Vec<u8>)>,
    pub steps: Vec<Hadamard>,
    pub scaling: Scaling,
    /// Size of a sample step, where the caller fixes it.
    pub sample_step: Option<f64>,
    /// Whether samples are the bytes of the elements.
    pub bytes: bool,
}

impl<'a> Subject<'a> {
    pub(super) fn new(view: &'a TensorView<'a>, video: &VideoOptions) -> Result<Self, Error> {
        let Some(mut values) = view.to_f64() else {
            if !matches!(view.dtype(), Dtype::U8 | Dtype::I8 | Dtype::Bool) {
                return Err(Error::InvalidArgument(format!(
                    "{} tensors do not become pictures; use the native codec",
                    view.dtype()
                )));
            }
            let values = view.data().iter().map(|&b| f64::from(b)).collect();
            let (specials, steps) = (Vec::new(), Vec::new());
            return Ok(Subject {
                view,
                values,
                specials,
                steps,
                scaling: Scaling::Tensor,
                sample_step: None,
                bytes: true,
            });
        };
        let size = view.dtype().size();
        let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        let mean = finite.iter().sum::<f64>() / finite.len().max(1) as f64;
        let mut specials = Vec::new();
        for (i, v) in values.iter_mut().enumerate().filter(|(_, v)| !v.is_finite()) {
            specials.push((i, view.data()[i * size..(i + 1) * size].to_vec()));
            *v = mean;
        }
        let steps: Vec<Hadamard> = video.hadamard.into_iter().collect();
        steps.iter().for_each(|h| h.forward(&mut values, view.cols()));
        let scaling = match video.scaling {
            Scaling::Rows(group) => Scaling::Rows(group.clamp(1, view.rows().max(1))),
            other => other,
        };
        Ok(Subject { view, values, specials, steps, scaling, sample_step: video.sample_step, bytes: false })
    }

    /// Bytes of parts and specials in the header, about.
    pub(super) fn side_bytes(&self) -> usize {
        let parts = 4 * self.scaling.parts(self.view.rows(), self.view.cols());
        parts + self.specials.len() * (2 + self.view.dtype().size())
    }
}
