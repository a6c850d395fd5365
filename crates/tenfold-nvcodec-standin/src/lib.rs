//! Stands in for `libnvcuvid`, `libnvidia-encode` and `libnvjpeg` in tests, where no GPU is.
//!
//! It exports what these libraries export, as much of it as tenfold calls. Every call is held against the rules of the
//! interface: version words, order, handles that live, buffers that are free. What breaks a rule is recorded as a violation and
//! answered with an error. What keeps them works: pictures are coded and decoded by this build's software codecs, and "device"
//! memory is the process's own, as in the CUDA emulator.
//!
//! A test loads it with [`Standin::load`], reads violations and counts, and makes it misbehave.

pub mod control;
pub mod cuvid;
mod faults;
mod host;
mod nvenc;
pub mod nvjpeg;
mod software;
mod streams;

pub use faults::Fault;
pub use host::Standin;
