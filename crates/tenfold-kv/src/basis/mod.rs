//! Bases for rows of keys, values and hidden states: from captured tensors to a file beside the model.
//!
//! `capture` reads rows, `sets` says which belong together, `moments` sums them up, `components` finds the principal components, `gain` says what they are
//! worth on rows that they were not made from, `stored` and `press` compress them, `complete` adds what they do not span, `file` keeps
//! them, and `fit` does all of that in turn, with `measure` for each group of layers.

mod algebra;
mod capture;
mod complete;
mod components;
mod file;
mod fit;
mod gain;
mod kind;
mod measure;
mod metric;
mod metrics;
mod model;
mod moments;
mod options;
mod press;
mod report;
mod rope;
mod sets;
mod stored;
mod water;

pub use capture::{Captured, Names};
pub use components::Components;
pub use file::{BasisFile, Group, MOST_COLUMNS};
pub use fit::{Fitted, fit, fit_sets};
pub use gain::{AtRate, Gain, Weighted, leave_one_out, leave_one_out_each};
pub use kind::Kind;
pub use metric::{Metric, RIDGE};
pub use model::{fingerprint_model, model_bytes};
pub use moments::Moments;
pub use options::{FitOptions, Grouping, Keys, Rank};
pub use report::{GroupReport, Report, SetReport, Summary};
pub use rope::RopeSpec;
pub use sets::{MOST_SETS, Set, check_sets};
pub use water::{distortion, level, rate};
