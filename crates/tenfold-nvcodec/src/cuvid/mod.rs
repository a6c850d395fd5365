//! The interface of `libnvcuvid`: layouts, and the functions bound to a loaded library.

#[doc(hidden)]
pub mod abi;
mod api;
mod codes;

pub(crate) use api::Cuvid;
pub(crate) use codes::check;
