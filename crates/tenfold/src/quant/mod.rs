//! Integers from reals: the trellis both sides walk, and the encoder's search for good levels.

pub(crate) mod cost;
pub(crate) mod machine;
pub(crate) mod scalar;
pub(crate) mod trellis;

#[cfg(test)]
mod tests;
