//! What host and device share: the arguments of kernels, numbers that both compute with, and the kernels' names.
//!
//! All of it is described once, here. `make ptx` writes the description for C to `kernels/abi.h`, with the sizes and
//! offsets that Rust has; the compiler of the kernels checks these, and a test checks that the file is current. A
//! [`Kernel`] is launched with the type of arguments that its prototype in the header has.

mod assemble;
mod chain;
mod ctype;
mod decode;
mod delta;
mod feed;
mod fingerprint;
mod header;
mod kernel;
mod layers;
mod levels;
mod lossless;
mod multiply;
mod pictures;
mod pool;
mod rate;
mod search;

pub(crate) use assemble::*;
pub(crate) use chain::*;
pub(crate) use ctype::{Address, CType, Const, Each, Named, Rate, Uint2, Void, shared_structs};
pub(crate) use decode::*;
pub(crate) use delta::*;
pub(crate) use feed::*;
pub(crate) use fingerprint::*;
pub(crate) use header::{Fields, Header};
pub(crate) use kernel::{ByFloat, ByReal, BySize, Kernel};
pub(crate) use layers::*;
pub(crate) use levels::*;
pub(crate) use lossless::*;
pub(crate) use multiply::*;
pub(crate) use pictures::*;
pub(crate) use pool::*;
pub(crate) use rate::*;
pub(crate) use search::*;

use crate::status;
use ctype::shared_constants;
use kernel::{kernels, names};

fn describe() -> Header {
    let mut header = Header::default();
    header.text.push_str("// Made by `make ptx` from `src/abi/`; do not edit.\n#pragma once\n");
    header.start_part("Numbers.");
    for part in [
        assemble::write_constants,
        decode::write_constants,
        lossless::write_constants,
        search::write_constants,
        rate::write_constants,
        levels::write_constants,
        feed::write_constants,
        chain::write_constants,
        layers::write_constants,
        multiply::write_constants,
        pictures::write_constants,
        pool::write_constants,
        delta::write_constants,
        fingerprint::write_constants,
    ] {
        part(&mut header);
    }
    header.start_part("Structures, each after those that it is made of.");
    header.declare_elsewhere();
    for part in [
        status::write_structs,
        assemble::write_structs,
        decode::write_structs,
        lossless::write_structs,
        rate::write_structs,
        levels::write_structs,
        feed::write_structs,
        chain::write_structs,
        layers::write_structs,
        multiply::write_structs,
        pictures::write_structs,
        pool::write_structs,
        delta::write_structs,
        fingerprint::write_structs,
    ] {
        part(&mut header);
    }
    header.start_part("Kernels.");
    for part in [
        assemble::write_prototypes,
        decode::write_prototypes,
        lossless::write_prototypes,
        rate::write_prototypes,
        levels::write_prototypes,
        feed::write_prototypes,
        chain::write_prototypes,
        layers::write_prototypes,
        multiply::write_prototypes,
        pictures::write_prototypes,
        pool::write_prototypes,
        delta::write_prototypes,
        fingerprint::write_prototypes,
    ] {
        part(&mut header);
    }
    header
}

/// The header's text.
pub fn header() -> String {
    describe().text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ptx;

    /// Every kernel of a module with the bytes of its argument: one structure by value.
    fn parameters(text: &str) -> impl Iterator<Item = (String, usize)> {
        text.split(".visible .entry ").skip(1).map(|entry| {
            let (name, rest) = entry.split_once('(').unwrap();
            let (list, _) = rest.split_once(')').unwrap();
            assert_eq!(list.matches(".param").count(), 1, "{name} takes one argument");
            let (_, size) = list.trim().rsplit_once('[').unwrap();
            (name.into(), size.trim_end_matches(']').parse().unwrap())
        })
    }

    #[test]
    fn kernels_are_those_of_the_ptx_and_take_what_they_are_given() {
        let texts: Vec<_> = ptx::MODULES.iter().map(|m| m.unpack().unwrap().into_string().unwrap()).collect();
        let compiled: BTreeMap<_, _> = texts.iter().flat_map(|text| parameters(text)).collect();
        let declared: BTreeMap<_, _> =
            describe().kernels.into_iter().map(|(n, size)| (n.into(), size)).collect();
        assert_eq!(declared, compiled);
    }
}
