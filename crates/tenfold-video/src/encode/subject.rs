//! The tensor as the search sees it: finite real numbers behind the transforms.

use tenfold::prepare::Transform;
use tenfold::{Dtype, Error, TensorView};

use crate::chain;
use crate::options::VideoOptions;
use crate::samples::Scaling;

pub(super) struct Subject<'a> {
    pub view: &'a TensorView<'a>,
    /// Finite values after the transforms; the bytes themselves for a tensor of bytes.
    pub values: Vec<f64>,
    /// Positions and elements of values that no sample should stand for.
    pub specials: Vec<(usize, Vec<u8>)>,
    pub transforms: Vec<Transform>,
    /// Columns of the values.
    pub cols: usize,
    /// Squared error that no sample can make good: a basis may leave out some of the tensor.
    pub lost: f64,
    pub scaling: Scaling,
    /// Size of a sample step, where the caller fixes it.
    pub sample_step: Option<f64>,
    /// Whether samples are the bytes of the elements.
    pub bytes: bool,
}

impl<'a> Subject<'a> {
    /// `transforms` must fit the tensor.
    pub(super) fn new(
        view: &'a TensorView<'a>,
        transforms: Vec<Transform>,
        video: &VideoOptions,
    ) -> Result<Self, Error> {
        let Some(mut values) = view.to_f64() else {
            if !matches!(view.dtype(), Dtype::U8 | Dtype::I8 | Dtype::Bool) {
                return Err(Error::InvalidArgument(format!(
                    "{} tensors cannot become pictures; use the native codec",
                    view.dtype()
                )));
            }
            let values = view.data().iter().map(|&b| f64::from(b)).collect();
            if !transforms.is_empty() {
                return Err(Error::InvalidArgument("pictures of bytes take no transforms".into()));
            }
            return Ok(Subject {
                view,
                values,
                specials: Vec::new(),
                transforms,
                cols: view.cols(),
                lost: 0.0,
                scaling: Scaling::Tensor,
                sample_step: None,
                bytes: true,
            });
        };
        let size = view.dtype().size();
        let (mean, reach) = measure_reach(&values);
        let mut specials = Vec::new();
        for (i, v) in values.iter_mut().enumerate().filter(|(_, v)| !((**v - mean).abs() <= reach)) {
            specials.push((i, view.data()[i * size..(i + 1) * size].to_vec()));
            *v = mean;
        }
        let (values, lost) = chain::forward(&transforms, values, view.cols());
        if values.iter().any(|v| !v.is_finite()) {
            let why = "the transforms throw values out of the range of numbers; leave some of them out";
            return Err(Error::InvalidArgument(why.into()));
        }
        let cols = transforms.iter().fold(view.cols(), |cols, transform| transform.width(cols));
        let scaling = match video.scaling {
            Scaling::Rows(group) => Scaling::Rows(group.clamp(1, view.rows().max(1))),
            other => other,
        };
        Ok(Subject {
            view,
            values,
            specials,
            transforms,
            cols,
            lost,
            scaling,
            sample_step: video.sample_step,
            bytes: false,
        })
    }

    /// Bytes of transforms, parts and specials in the header, about.
    pub(super) fn side_bytes(&self) -> usize {
        let parts = 4 * self.scaling.parts(self.view.rows(), self.cols);
        let transforms = tenfold::format::transforms(&self.transforms).map_or(0, |bytes| bytes.len());
        parts + transforms + self.specials.len() * (2 + self.view.dtype().size())
    }

    /// Values of the tensor, which rates and errors are shared out among: at least one.
    pub(super) fn len(&self) -> f64 {
        self.view.len().max(1) as f64
    }
}

/// Values beyond this many times the distance that all but one in a thousand keep are left to themselves.
const FAR: f64 = 4.0;

/// Where most values are, and how far from there a sample should reach. NaN and infinities are beyond, and so are
/// the few outliers of activations, hundreds of standard deviations away: in the range of samples they would leave
/// no room for all others.
fn measure_reach(values: &[f64]) -> (f64, f64) {
    let mut finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.is_empty() {
        return (0.0, 0.0);
    }
    let rank = finite.len() / 2;
    let middle = *finite.select_nth_unstable_by(rank, f64::total_cmp).1;
    finite.iter_mut().for_each(|v| *v = (*v - middle).abs());
    let rank = finite.len() - 1 - finite.len() / 1000;
    let usual = *finite.select_nth_unstable_by(rank, f64::total_cmp).1;
    // Where nearly all values are one and the same, the others are what the tensor is about.
    (middle, if usual > 0.0 { FAR * usual } else { f64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Standard;

    fn specials(values: &[f32]) -> Vec<usize> {
        let shape = [values.len()];
        let view = TensorView::from_slice(values, &shape).unwrap();
        let subject = Subject::new(&view, Vec::new(), &VideoOptions::new(Standard::H265)).unwrap();
        assert!(subject.values.iter().all(|v| v.is_finite()));
        subject.specials.iter().map(|s| s.0).collect()
    }

    #[test]
    fn only_what_is_far_beyond_all_others_stands_apart() {
        let mut values: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.7).sin()).collect();
        assert!(specials(&values).is_empty());
        (values[7], values[9000], values[9001]) = (300.0, -4.5, f32::NAN);
        assert_eq!(specials(&values), [7, 9000, 9001]);
        values[9000] = 3.5;
        assert_eq!(specials(&values), [7, 9001]);
        let mut sparse = vec![0.0; 10_000];
        (sparse[3], sparse[4]) = (1.0, f32::INFINITY);
        assert_eq!(specials(&sparse), [4]);
        assert!(specials(&[]).is_empty() && specials(&[5.0]).is_empty());
        assert_eq!(specials(&[f32::NAN; 3]), [0, 1, 2]);
    }
}
