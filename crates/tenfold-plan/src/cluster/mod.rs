//! A cluster with codecs in its chips, after sections 6 and 7 of "Video codecs are secretly tensor codecs" (MICRO 2025):
//! GPUs, network cards and codecs share an area; what is the fastest cluster, and what does it take in energy?
//!
//! | file | holds |
//! |---|---|
//! | `inputs` | the model, the GPU, the card, the codecs, from TOML with their sources |
//! | `energy` | energy of a bit that is sent |
//! | `system` | one configuration: time, energy, area, power and memory of a step |
//! | `search` | all configurations, their Pareto fronts, and what a budget buys |
//! | `study` | the four scenarios beside one another, over model sizes, and under other assumptions |
//! | `draw` | both drawings and the page |
//!
//! The paper does not publish how it models computing and overlap. This model states its own assumptions in its inputs
//! (`[workload]`), and [`Study::sensitivity`] shows what each is worth.

mod draw;
mod energy;
mod inputs;
mod search;
mod study;
mod system;

pub use draw::{cluster_page, energy_chart, performance_chart};
pub use energy::{Bit, energy_gain};
pub use inputs::{Codec, Energy, Gpu, Inputs, Model, Nic, OwnCores, VideoEngine, Work, WorkInputs};
pub use search::{Budget, Front, Point, best_within, front, least_area};
pub use study::{Assumption, PERFORMANCE, Scenario, SizeRow, Study};
pub use system::{Configuration, Outcome, outcome};
