//! Rows of one layer as blobs of their own: hidden states between the stages of a pipeline.

use std::sync::Arc;

use tenfold::engine::{Cpu, Engine, Stop};
use tenfold::prepare::{Basis, Rotation, Transform, choose};
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
    /// Further bases that rows may have.
    others: Vec<Arc<Basis>>,
    /// Bases of blobs that it only decodes.
    known: Vec<Arc<Basis>>,
    effort: Effort,
    threads: usize,
    stop: Stop,
}

impl RowCodec {
    /// Rows that have this basis.
    pub fn new(basis: Arc<Basis>) -> Self {
        let (others, known) = (Vec::new(), Vec::new());
        RowCodec { basis, others, known, effort: Effort::default(), threads: 0, stop: Stop::default() }
    }

    /// Hidden states before a layer, as a file has bases for them. They are completed: what the file's vectors do not span is coded
    /// too. Of a file with bases for several sets, each blob has the one that takes the fewest bits.
    pub fn hidden(file: &BasisFile, layer: usize) -> Result<Self> {
        let mut codec = RowCodec::new(file.group(Kind::Hidden, layer)?.whole()?);
        for set in file.sets() {
            let group = file.group_of(set, Kind::Hidden, layer)?;
            let whole = group.whole()?;
            if whole != codec.basis {
                codec.others.push(whole);
            }
            // Blobs of earlier versions have the basis as it is stored.
            codec.known.push(group.basis.clone());
        }
        Ok(codec)
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

    /// The basis; the first, if there are several.
    pub fn basis(&self) -> &Arc<Basis> {
        &self.basis
    }

    /// Encodes a tensor whose last dimension is the basis's.
    pub fn encode(&self, rows: &TensorView<'_>, goal: Goal) -> Result<Vec<u8>> {
        let mut options = EncodeOptions::new(goal)
            .with_effort(self.effort)
            .with_threads(self.threads)
            .with_stop(self.stop.clone());
        let chains: Vec<Vec<Transform>> =
            self.bases().map(|basis| vec![Transform::Basis(Rotation::named(basis))]).collect();
        options = match &chains[..] {
            [one] => options.with_transforms(one.clone()),
            _ => {
                let chosen = choose(rows, &options, &chains)?;
                options.with_transforms(chosen)
            }
        };
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
        options.with_bases(self.bases().chain(&self.known).cloned().collect())
    }

    /// What rows may have.
    fn bases(&self) -> impl Iterator<Item = &Arc<Basis>> {
        std::iter::once(&self.basis).chain(&self.others)
    }
}
