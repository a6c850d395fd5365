//! The client's half of HTTP: requests with timeouts, redirects that keep a token at home, answers that are checked.

mod client;
mod headers;
mod url;

pub(crate) use client::{Answer, Client, Failure};
#[cfg(feature = "stores")]
pub(crate) use client::{Transport, causes, transport};
pub(crate) use headers::{ContentRange, hash_of_tag};
pub(crate) use url::{child, encode, is_http, parse};
