//! Pages and pictures: one HTML file with its style and its drawings inside. It asks nothing of a network and runs no
//! program.

mod chart;
mod html;
mod plan;

pub use chart::{Axis, Chart, Scale, Series};
pub use html::{Document, escape};
pub use plan::plan_page;
