//! Files with bases for several sets: each page and each blob of hidden states has the one that suits it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{rows, write};
use tenfold::{Goal, TensorView};
use tenfold_archive::Silent;
use tenfold_kv::RowCodec;
use tenfold_kv::basis::{BasisFile, FitOptions, Grouping, Rank, Set, fit_sets};
use tenfold_kv::page::{Layer, Page, PageCodec};

/// What deviates in one kind of text is still in the other.
const PROSE: [f64; 8] = [9.0, 7.0, 0.01, 0.01, 5.0, 0.01, 0.01, 0.01];
const CODE: [f64; 8] = [0.01, 0.01, 9.0, 7.0, 0.01, 5.0, 0.01, 0.01];
const MEANS: [[f64; 8]; 2] = [[1.0; 8], [-20.0; 8]];

fn file(each: bool) -> BasisFile {
    let dir = tempfile::tempdir().unwrap();
    let set = |name: &str, deviations: &[f64; 8], means: &[f64; 8]| {
        let path = dir.path().join(format!("{name}.safetensors"));
        let taken = [1, 2, 3].map(|seed| rows(400, means, deviations, seed));
        let names = ["layers.0.k_before_rope", "layers.0.v", "layers.0.hidden"];
        let tensors: Vec<_> = names.iter().zip(&taken).map(|(n, t)| (*n, vec![400, 8], &t[..])).collect();
        write(&path, &tensors);
        Set::new(name, vec![path])
    };
    let mut options = FitOptions::default();
    (options.each, options.rank, options.grouping) = (each, Rank::Count(3), Grouping::Layers(1));
    let sets = [set("prose", &PROSE, &MEANS[0]), set("code", &CODE, &MEANS[1])];
    fit_sets(&sets, &options, &Silent).unwrap().file
}

fn bytes(file: &BasisFile, values: &[f32]) -> usize {
    let codec = PageCodec::new(PageCodec::groups_of(file, (1.0, 1.0)).unwrap()).unwrap();
    let view = TensorView::from_slice(values, &[64, 8]).unwrap();
    let page = Page { layers: vec![Layer { keys: view, values: view }], positions: None };
    let made = codec.encode(&page, Goal::Step(0.05)).unwrap();
    let (keys, _) = codec.reader(&made).unwrap().layer(0).unwrap();
    let off = |(a, b): (&f32, &f32)| (a - b).abs();
    let found = keys.to_vec::<f32>().unwrap();
    assert!(values.iter().zip(&found).map(off).fold(0.0, f32::max) < 0.1);
    made.len()
}

#[test]
fn pages_of_each_kind_take_fewer_bytes_than_with_a_basis_of_all() {
    let (each, common) = (file(true), file(false));
    assert_eq!(each.sets(), [Some("prose"), Some("code")]);
    for (deviations, means) in [(PROSE, MEANS[0]), (CODE, MEANS[1])] {
        let values = rows(64, &means, &deviations, 9);
        let (own, shared) = (bytes(&each, &values), bytes(&common, &values));
        assert!(own < shared, "{own} and {shared} bytes");
    }
}

#[test]
fn hidden_states_of_each_kind_too() {
    let (each, common) = (file(true), file(false));
    for (deviations, means) in [(PROSE, MEANS[0]), (CODE, MEANS[1])] {
        let values = rows(256, &means, &deviations, 9);
        let view = TensorView::from_slice(&values, &[256, 8]).unwrap();
        let sizes = [&each, &common].map(|file| {
            let codec = RowCodec::hidden(file, 0).unwrap();
            let blob = codec.encode(&view, Goal::Step(0.05)).unwrap();
            assert_eq!(codec.decode(&blob).unwrap().shape, [256, 8]);
            blob.len()
        });
        assert!(sizes[0] < sizes[1], "{sizes:?}");
    }
}
