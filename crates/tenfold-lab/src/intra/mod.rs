//! A small intra codec in the manner of H.265, of which every stage can be switched off.
//!
//! Real codecs do not let one take away their entropy coder or their transform, so the question what each
//! stage gives on a tensor needs a codec of its own. Structure follows H.265 intra: blocks of 4 to 32 in a
//! quadtree, 35 prediction modes, DCT, dead-zone quantiser, adaptive binary arithmetic coder; bytes are
//! real and decode to exactly what the encoder says. It is a tool of study and races nobody.
//!
//! | file | stage |
//! |---|---|
//! | `predict` | planar, DC and 33 angular modes from decoded neighbours |
//! | `motion` | prediction from the previous picture |
//! | `transform` | integer DCT of 4, 8, 16, 32 |
//! | `quantise` | continuous step, levels by rounding or by rate and distortion |
//! | `cabac`, `bits` | the two ways a binary decision becomes bytes, behind `bins` |
//! | `scan`, `levels`, `block` | which decisions describe levels and blocks, for encoder and decoder alike |
//! | `frame` | what of a picture is decoded, and how a block is added to it |
//! | `search` | the encoder's choice by rate and distortion |
//! | `coder` | the walk over blocks that encoder and decoder share |
//! | `codec`, `stream` | pictures to bytes and back |

mod bins;
mod bits;
mod block;
mod cabac;
mod codec;
mod coder;
mod error;
mod frame;
mod levels;
mod motion;
mod picture;
mod predict;
mod quantise;
mod scan;
mod search;
mod settings;
mod stream;
mod transform;

pub use block::{Block, Kind};
pub use codec::{Encoded, decode, encode};
pub use error::IntraError;
pub use picture::Picture;
pub use settings::{Settings, Stages};
pub use transform::coefficients;

#[cfg(test)]
mod tests;
