//! Coders that give every bit back.

use ::tenfold::{Effort, Goal};

use super::{Row, boxed};
use crate::peers::{Lz4, Pco, SplitZstd, Tenfold, ZipNn, Zstd};

pub(super) const ROWS: &[Row] = &[
    // Not `lossless`: that selects the whole kind.
    ("tenfold-lossless", "tenfold lossless", |_| vec![boxed(Tenfold::new(Goal::Lossless, Effort::Balanced))]),
    ("zstd", "zstd", |_| vec![boxed(Zstd { level: 3 })]),
    ("lz4", "LZ4", |_| vec![boxed(Lz4)]),
    ("split-zstd", "byte split + zstd", |_| vec![boxed(SplitZstd { level: 3 })]),
    ("zipnn", "ZipNN", |_| vec![boxed(ZipNn)]),
    ("pco", "pco", |_| vec![boxed(Pco)]),
];
