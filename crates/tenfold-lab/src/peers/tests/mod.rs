//! What every peer promises, tried on all that can run here. Peers that start another program for each call
//! have a test of their own; so has the crate of the video codecs.

mod corruption;
mod rates;
mod roundtrip;

use std::path::Path;

use tenfold::Tensor;

use super::{Family, Kind, Peer, families};
use crate::load;

/// Rates for coders that can be aimed.
const RATES: [f64; 3] = [2.0, 3.0, 5.0];

/// Families that can run here and are quick to call, with their members.
fn everybody() -> Vec<(&'static Family, Vec<Box<dyn Peer>>)> {
    let members = |f: &'static Family| (f, f.members(&RATES));
    let usable = |p: &dyn Peer| p.probe().is_ok() && p.abilities().timed;
    let quick = families().iter().filter(|f| f.kind != Kind::Video);
    quick.map(members).filter(|(_, m)| m.iter().all(|p| usable(&**p))).collect()
}

/// The first rows of a tensor of each file in `testdata/`.
fn real_tensors() -> Vec<(&'static str, Tensor)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let files = ["weights", "kv", "activations", "gradients"];
    let first = |name: &'static str| {
        let path = folder.join(format!("{name}.safetensors"));
        let mut tensor = load::floats(&path, 0).unwrap().swap_remove(0).tensor;
        let row = tensor.shape[1];
        tensor.shape[0] = 32;
        tensor.data.truncate(32 * row * tensor.dtype.size());
        (name, tensor)
    };
    files.map(first).into()
}

#[test]
fn all_kinds_but_the_missing_ones_are_tried() {
    let ids: Vec<&str> = everybody().iter().map(|(f, _)| f.id).collect();
    for id in ["fast", "balanced", "best", "rtn", "rtn-64-asym", "nf4", "mxfp", "hadamard-lloyd", "gguf"] {
        assert!(ids.contains(&id), "{id}");
    }
    for id in ["int-huffman", "mxfp-cabac", "zfp-rate", "zfp-accuracy", "zstd", "pco", "tenfold-lossless"] {
        assert!(ids.contains(&id), "{id}");
    }
    assert_eq!(ids.contains(&"sz3"), cfg!(feature = "scientific"));
}
