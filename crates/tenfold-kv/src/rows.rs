//! Rows of one layer as blobs of their own: hidden states between the stages of a pipeline.

use std::sync::Arc;

use tenfold::engine::{Cpu, Engine, Stop};
use tenfold::prepare::{Basis, Rotation, Transform};
use tenfold::{DecodeOptions, Effort, EncodeOptions, Goal, Tensor, TensorView};

use crate::basis::{BasisFile, Kind};
use crate::error::Result;

/// Encodes and decodes rows of one layer behind its basis.
///
/// ```
/// use std::sync::Arc;
/// use tenfold::prepare::Basis;
/// use tenfold::{Goal, TensorView};
/// use tenfold_kv::RowCodec;
/// let basis = Arc::new(Basis::orthonormal(&[0.0; 2], &[0.6, 0.8, 0.8, -0.6])?);
/// let codec = RowCodec::new(basis);
/// let rows: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin()).collect();
/// let blob = codec.encode(&TensorView::from_slice(&rows, &[8, 256, 2])?, Goal::Bits(4.0))?;
/// assert_eq!(codec.decode(&blob)?.shape, [8, 256, 2]);
/// # Ok::<(), tenfold_kv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RowCodec {
    basis: Arc<Basis>,
    known: Vec<Arc<Basis>>,
    effort: Effort,
    threads: usize,
    stop: Stop,
}

impl RowCodec {
    /// Rows that have this basis.
    pub fn new(basis: Arc<Basis>) -> Self {
        RowCodec { basis, known: Vec::new(), effort: Effort::default(), threads: 0, stop: Stop::default() }
    }

    /// Hidden states before a layer, as a file has a basis for them. It is completed: what the file's vectors do not span is coded
    /// too.
    pub fn hidden(file: &BasisFile, layer: usize) -> Result<Self> {
        let group = file.group(Kind::Hidden, layer)?;
        // Blobs of earlier versions have the basis as it is stored.
        Ok(RowCodec { known: vec![group.basis.clone()], ..RowCodec::new(group.whole()?) })
    }

    /// Sets the effort.
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Sets the number of threads; 0 means all cores.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the switch that ends the work early.
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// The basis.
    pub fn basis(&self) -> &Arc<Basis> {
        &self.basis
    }

    /// Encodes a tensor whose last dimension is the basis's.
    pub fn encode(&self, rows: &TensorView<'_>, goal: Goal) -> Result<Vec<u8>> {
        let options = EncodeOptions::new(goal)
            .with_effort(self.effort)
            .with_threads(self.threads)
            .with_stop(self.stop.clone())
            .with_transforms(vec![Transform::Basis(Rotation::named(&self.basis))]);
        Ok(tenfold::encode(rows, &options)?)
    }

    /// Decodes a blob that it has made.
    pub fn decode(&self, blob: &[u8]) -> Result<Tensor> {
        Ok(tenfold::decode(blob, &self.decode_options())?)
    }

    /// Decodes into memory of the tensor's size.
    pub fn decode_into(&self, blob: &[u8], out: &mut [u8]) -> Result<()> {
        Ok(Cpu.decode_into(blob, &self.decode_options(), out)?)
    }

    fn decode_options(&self) -> DecodeOptions {
        let options = DecodeOptions::default().with_threads(self.threads).with_stop(self.stop.clone());
        options.with_bases(std::iter::once(&self.basis).chain(&self.known).cloned().collect())
    }
}
