//! Matrices of linear layers, encoded with what a calibration run knows of them.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tenfold::calibrated;
use tenfold::{Dtype, TensorView};

use crate::attend::{self, LONG_ENCODE};
use crate::codec::EncodeOptions;
use crate::errors::{self, ArgumentError};
use crate::tensors::Input;

/// What a calibration run knows of a linear layer: how much each error of its weights costs the model.
///
/// `inputs` is E[x·xᵀ] as a float32 matrix, or a list of blocks on its diagonal; `outputs` has E[g²] of each output.
#[pyclass(frozen, module = "tenfold")]
pub struct Curvature(pub Arc<calibrated::Curvature>);

#[pymethods]
impl Curvature {
    #[new]
    #[pyo3(signature = (inputs, outputs=None, damping=None))]
    fn new(
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Option<Vec<f64>>,
        damping: Option<f64>,
    ) -> PyResult<Curvature> {
        let blocks = inputs.iter().map(square).collect::<PyResult<Vec<_>>>()?;
        let mut curvature = calibrated::Curvature::blocks(blocks).map_err(errors::codec)?;
        if let Some(outputs) = outputs {
            curvature = curvature.with_outputs(outputs).map_err(errors::codec)?;
        }
        if let Some(damping) = damping {
            curvature = curvature.with_damping(damping);
        }
        Ok(Curvature(Arc::new(curvature)))
    }

    /// Inputs of the layer: columns of its weights.
    #[getter]
    fn cols(&self) -> usize {
        self.0.cols()
    }

    /// Share of its size that is added to each number on the diagonal.
    #[getter]
    fn damping(&self) -> f64 {
        self.0.damping()
    }

    /// What a step is multiplied by so that one number serves a whole model.
    fn unit(&self, py: Python<'_>) -> PyResult<f64> {
        py.detach(|| self.0.unit()).map_err(errors::codec)
    }

    /// Predicted rise of the loss if one tensor takes the place of another.
    fn loss(&self, py: Python<'_>, original: &Bound<'_, PyAny>, instead: &Bound<'_, PyAny>) -> PyResult<f64> {
        let (original, instead) = (Input::from_object(original, None)?, Input::from_object(instead, None)?);
        py.detach(|| self.0.loss(&original.view()?, &instead.view()?)).map_err(errors::codec)
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// The numbers of a square matrix of float32.
fn square(matrix: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let input = Input::from_object(matrix, None)?;
    let view: TensorView<'_> = input.view().map_err(errors::codec)?;
    match (view.dtype(), view.shape()) {
        (Dtype::F32, [rows, cols]) if rows == cols => {
            Ok(view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        }
        (dtype, shape) => Err(ArgumentError::new_err(format!(
            "E[x·xᵀ] must be square matrices of float32, not {dtype} of shape {shape:?}"
        ))),
    }
}

/// Encodes a matrix with the curvature of its options. Returns the blob, the predicted rise of the model's loss, what it would be
/// by importance alone, and why errors were not fed back if they were not.
#[pyfunction]
#[pyo3(signature = (tensor, options, dtype=None))]
pub fn encode_calibrated<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    options: &EncodeOptions,
    dtype: Option<&str>,
) -> PyResult<(Bound<'py, PyBytes>, f64, f64, Option<&'static str>)> {
    let input = Input::from_object(tensor, dtype)?;
    let coded = attend::run(py, input.data().len() >= LONG_ENCODE, |stop| {
        calibrated::encode(&input.view()?, &options.with_stop(stop))
    })?
    .map_err(errors::codec)?;
    Ok((PyBytes::new(py, &coded.blob), coded.loss, coded.plain, coded.fell_back))
}
