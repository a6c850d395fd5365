//! A file of metrics, under the names of captured tensors.

use std::collections::BTreeMap;
use std::path::Path;

use tenfold::DecodeOptions;
use tenfold_archive::Archive;

use super::capture::Names;
use super::kind::Kind;
use super::metric::Metric;
use crate::error::{Result, invalid};

/// Metrics of layers.
pub(super) struct Metrics(BTreeMap<(Kind, usize), Metric>);

impl Metrics {
    pub fn open(path: &Path, names: &Names, ridge: f64) -> Result<Self> {
        let archive = Archive::open(path)?;
        let mut found = BTreeMap::new();
        for (index, tensor) in archive.tensors().iter().enumerate() {
            let Some((kind, layer, _)) = names.read(&tensor.name) else { continue };
            let values = archive.read(index, &DecodeOptions::default())?.view()?.to_f64();
            let values = values.ok_or_else(|| invalid(format!("metric {:?} must be floats", tensor.name)))?;
            let metric = match tensor.shape.as_slice() {
                [_] => Metric::with_ridge(1, &values, ridge),
                [_, rows, cols] if rows == cols => Metric::with_ridge(*rows, &values, ridge),
                shape => Err(invalid(format!(
                    "must be one number a column or one square matrix a head, not {shape:?}"
                ))),
            };
            let metric = metric.map_err(|e| invalid(format!("metric {:?}: {e}", tensor.name)))?;
            if found.insert((kind, layer), metric).is_some() {
                return Err(invalid(format!("there are two metrics for {kind} of layer {layer}")));
            }
        }
        Ok(Metrics(found))
    }

    pub fn combine(&self, kind: Kind, layers: &[usize]) -> Result<Metric> {
        let mut parts = Vec::with_capacity(layers.len());
        for &layer in layers {
            let metric = self.0.get(&(kind, layer));
            parts.push(
                metric.ok_or_else(|| invalid(format!("no metric for {kind} of layer {layer}")))?.clone(),
            );
        }
        Metric::join(&parts)
    }
}
