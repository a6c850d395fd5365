//! Factors of a curvature on a device: the twin of `calibrated/factors.rs`, in f64.

use std::sync::Arc;

use tenfold::calibrated::{Curvature, Steps};

use crate::abi::{self, CType, FACTOR_PANEL, FACTOR_ROWS, FACTOR_SHARED, FACTOR_THREADS, FactorArgs, Kernel};
use crate::codec::DeviceCodec;
use crate::driver::{Matrix, Product, Shape, Strides};
use crate::encode::FedBlock;
use crate::error::{Error, Result};
use crate::memory::{Memory, Taken};
use crate::pieces::bytes_of;
use crate::prepare::PRODUCT_BYTES;

/// Factors, and the steps that follow from them.
pub(super) struct Factors<P> {
    pub(super) steps: Arc<Steps>,
    /// What columns are multiplied by.
    pub(super) columns: Taken<P>,
    /// First column, columns, and how they answer to each other's errors.
    blocks: Vec<(usize, usize, Taken<P>)>,
}

impl<P> Factors<P> {
    pub(super) fn fed_blocks(&self) -> Vec<FedBlock> {
        let block = |(first, cols, feed): &(usize, usize, Taken<P>)| FedBlock {
            first: *first,
            cols: *cols,
            feed: feed.slice(),
        };
        self.blocks.iter().map(block).collect()
    }
}

/// A block that is factored, and what its kernels take.
pub(super) struct Factored<P> {
    matrix: Taken<P>,
    args: FactorArgs,
}

/// The steps, and every block.
type AllFactored<P> = (Arc<Steps>, Vec<Factored<P>>);

impl<M: Memory> DeviceCodec<'_, M> {
    /// E[x·xᵀ] of a curvature on the device, block by block.
    pub(super) fn upload_inputs(&self, curvature: &Curvature) -> Result<Vec<Taken<M::Piece>>> {
        curvature.inputs().iter().map(|inputs| self.upload_values(inputs.values())).collect()
    }

    /// Factors every block; the steps follow from all of them.
    pub(super) fn factor(
        &self,
        curvature: &Curvature,
        inputs: &[Taken<M::Piece>],
    ) -> tenfold::engine::Result<AllFactored<M::Piece>> {
        curvature.check_damping()?;
        self.device.driver.can_multiply()?;
        let mut counts = Vec::with_capacity(curvature.cols());
        let mut factored = Vec::new();
        for (block, on_device) in curvature.inputs().iter().zip(inputs) {
            let n = block.cols();
            let matrix = self.take(bytes_of(n, n, size_of::<f64>())?)?;
            // A word, then the pivots at a multiple of their size.
            let found = self.take(8 + n * size_of::<f64>())?;
            let args = FactorArgs {
                inputs: on_device.slice().into(),
                matrix: matrix.slice().into(),
                cols: n as u64,
                damping: 1.0 + curvature.damping(),
                floor: block.floor(),
                bad: found.slice().into(),
                pivots: (found.slice().address + 8).into(),
                ..FactorArgs::ZERO
            };
            // SAFETY: memory of ours, kept until the wait in `read`.
            unsafe { self.queue_factor(&args, n)? };
            let found = self.read(found.slice())?;
            let (bad, pivots) = found.split_at(8);
            let bad = u32::from_le_bytes([bad[0], bad[1], bad[2], bad[3]]) as usize;
            if bad > 0 {
                return Err(curvature.not_positive_definite(counts.len() + n - bad));
            }
            counts.extend(pivots.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b).powi(2)));
            factored.push(Factored { matrix, args });
        }
        Ok((curvature.steps(&counts)?, factored))
    }

    /// The same, and how columns answer to errors.
    pub(super) fn factor_for(
        &self,
        curvature: &Curvature,
        inputs: &[Taken<M::Piece>],
    ) -> tenfold::engine::Result<Factors<M::Piece>> {
        let (steps, factored) = self.factor(curvature, inputs)?;
        let columns = self.upload_values(&steps.column_factors())?;
        let mut blocks = Vec::new();
        let mut first = 0;
        for Factored { matrix, args } in factored {
            let n = args.cols as usize;
            let feed = self.take(bytes_of(n, n, size_of::<f32>())?)?;
            let factors = columns.slice().part(first * size_of::<f32>(), n * size_of::<f32>())?;
            let args = FactorArgs { factors: factors.into(), feed: feed.slice().into(), ..args };
            let squares = n.div_ceil(32).pow(2);
            // SAFETY: memory of ours; the matrix goes back only to later work on the same stream.
            unsafe { self.device.launch(abi::factor_turn, self.blocks(squares), &args, self.stream)? };
            drop(matrix);
            blocks.push((first, n, feed));
            first += n;
        }
        Ok(Factors { steps, columns, blocks })
    }

    /// Queues a factor, panel by panel: what the columns before account for is taken off, the corner is factored, and the rows below
    /// are divided by it.
    ///
    /// # Safety
    /// Addresses are good for matrices of `n` columns until the stream has passed this.
    unsafe fn queue_factor(&self, args: &FactorArgs, n: usize) -> Result<()> {
        let scratch = self.take(PRODUCT_BYTES)?;
        let zero = [0u8; 8];
        let launch = |kernel: Kernel<FactorArgs>, shape: Shape, args: &FactorArgs| {
            // SAFETY: the caller's.
            unsafe { self.device.launch(kernel, shape, args, self.stream) }
        };
        // SAFETY: the caller's. What is copied is there until the stream has passed, which is waited for.
        unsafe { self.device.driver.copy_in(args.bad.get(), zero.as_ptr(), zero.len(), self.stream)? };
        self.device.driver.synchronize(self.stream)?;
        launch(abi::factor_damp, self.blocks(n.saturating_mul(n).div_ceil(FACTOR_THREADS as usize)), args)?;
        for first in (0..n).step_by(FACTOR_PANEL as usize) {
            let width = (n - first).min(FACTOR_PANEL as usize);
            let args = FactorArgs { first: first as u64, ..*args };
            let rows = args.matrix.get() + (first * n * size_of::<f64>()) as u64;
            if first > 0 {
                let product = Product {
                    left: rows,
                    right: rows,
                    to: rows + (first * size_of::<f64>()) as u64,
                    rows: n - first,
                    inner: first,
                    columns: width,
                    of: Matrix::F64,
                    out: Matrix::F64,
                    workspace: scratch.slice(),
                    strides: Some(Strides { left: n, right: n, to: n }),
                    turned: true,
                    added: Some(-1.0),
                    ..Product::NONE
                };
                // SAFETY: the caller's; columns that are read and written do not overlap.
                unsafe { self.device.driver.multiply(&product, self.stream)? };
            }
            launch(abi::factor_corner, Shape::new(1, FACTOR_THREADS, 0), &args)?;
            let below = n - first - width;
            if below > 0 {
                let blocks = u32::try_from(below.div_ceil(FACTOR_ROWS as usize)).map_err(|_| {
                    Error::InvalidArgument("a curvature of more inputs than a device factors".into())
                })?;
                launch(abi::factor_below, Shape::new(blocks, FACTOR_ROWS, FACTOR_SHARED), &args)?;
            }
        }
        launch(abi::factor_pivots, self.blocks(n.div_ceil(FACTOR_THREADS as usize)), args)
    }
}
