//! Faults of layered blobs.

use super::super::Fault;
use super::super::common::{Kind, Sample};
use super::super::writer::Header;
use super::{data, fault, header_len};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

/// A layer of a tensor of 20 rows and 15 columns.
fn layer(dtype: Dtype) -> Vec<u8> {
    Sample::make(dtype, &[20, 15], Kind::Gaussian, 310).encode(Goal::Bits(4.0), Effort::Fast)
}

/// A blob of layers.
fn layered(dtype: Dtype, count: u8, layers: &[Vec<u8>]) -> Vec<u8> {
    header(dtype, count).join(layers)
}

fn header(dtype: Dtype, count: u8) -> Header {
    Header {
        magic: *b"TNFD",
        version: 1,
        codec: 4,
        dtype: dtype.id(),
        dims: 2,
        shape: vec![20, 15],
        steps: vec![0],
        params: vec![count],
        pad: 0,
    }
}

/// A second layer that is spoilt, or another.
fn second(make: impl Fn() -> Vec<u8> + 'static) -> impl Fn() -> Vec<u8> {
    move || layered(Dtype::Bf16, 2, &[layer(Dtype::F32), make()])
}

pub fn layers() -> Vec<Fault> {
    let two = || vec![layer(Dtype::F32), layer(Dtype::F32)];
    let many = |count: u8, there: usize| move || layered(Dtype::F32, count, &vec![layer(Dtype::F32); there]);
    let (shape, codec) = ("shape of a layer", "codec of a layer");
    vec![
        data("layers_0", "number of layers", "no layers", many(0, 0)),
        data("layers_1", "number of layers", "one layer is none", many(1, 1)),
        data("layers_9", "number of layers", "one more than there may be", many(9, 9)),
        data("layers_missing", "directory", "fewer layers than it says", many(3, 2)),
        data("layers_more", "directory", "more layers than it says", many(2, 3)),
        data("layers_integers", "layers of a dtype", "no dtype of levels", move || {
            layered(Dtype::I32, 2, &two())
        }),
        data(
            "layers_dtype",
            "dtype of a layer",
            "layers are of working values",
            second(|| layer(Dtype::Bf16)),
        ),
        data("layers_f64", "dtype of a layer", "f64 in a tensor of bf16", second(|| layer(Dtype::F64))),
        data(
            "layers_shape",
            shape,
            "as many values, another shape",
            second(|| {
                Sample::make(Dtype::F32, &[15, 20], Kind::Gaussian, 311).encode(Goal::Bits(4.0), Effort::Fast)
            }),
        ),
        data(
            "layers_nested",
            codec,
            "layers of layers",
            second(|| {
                let s = Sample::make(Dtype::F32, &[20, 15], Kind::Gaussian, 312);
                let options = EncodeOptions::new(Goal::Bits(3.0)).with_residual(Goal::Bits(3.0));
                tenfold::encode(&s.view(), &options).unwrap()
            }),
        ),
        data(
            "layers_pictures",
            codec,
            "pictures are no layer",
            second(|| Header { codec: 17, ..header(Dtype::F32, 2) }.join(&[])),
        ),
        data(
            "layers_behind",
            "bytes after the last tile",
            "bytes behind a layer",
            second(|| [layer(Dtype::F32), vec![0; 4]].concat()),
        ),
        data(
            "layers_cut",
            "not a whole blob",
            "a layer without its end",
            second(|| {
                let mut layer = layer(Dtype::F32);
                layer.truncate(layer.len() - 4);
                layer
            }),
        ),
        data("layers_nothing", "not a whole blob", "a layer of no bytes", second(Vec::new)),
        data("layers_no_blob", "not a whole blob", "a layer that is no blob", second(|| vec![7; 40])),
        data(
            "layers_checksum",
            "checksum",
            "a layer's own checksum",
            second(|| {
                let mut layer = layer(Dtype::F32);
                let at = header_len(&layer);
                layer[at] ^= 1;
                layer
            }),
        ),
        data("layers_outer_checksum", "tile checksum", "the directory's checksum of a layer", || {
            let mut blob = layered(Dtype::F32, 2, &[layer(Dtype::F32), layer(Dtype::F32)]);
            let header = header_len(&blob);
            blob[header - 8] ^= 1;
            let sum = crc32fast::hash(&blob[..header - 4]);
            blob[header - 4..header].copy_from_slice(&sum.to_le_bytes());
            blob
        }),
        fault("layers_steps", "unsupported", "preparation step 1", "no step stands before layers", || {
            let header = Header { steps: vec![1, 1, 5, 4, 1, 0, 0, 0], ..header(Dtype::F32, 2) };
            header.join(&[layer(Dtype::F32), layer(Dtype::F32)])
        }),
    ]
}
