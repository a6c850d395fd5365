//! What goes right: values, lanes, and decoders that are used again.

use std::thread;
use std::time::Duration;

use tenfold::prepare::{Hadamard, Transform};
use tenfold::{DecodeOptions, Dtype, Tensor};
use tenfold_cuda::Buffer;
use tenfold_video::{Scaling, Standard};

use super::blobs::{FORMAT, Recipe, decode, decode_as, decoder, device, parameter_sets, result, submit};
use super::fake::{Fault, access_unit, sample, turn, world};
use crate::nvdec::LaneSettings;

#[test]
fn tensors_are_those_of_the_cpu() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    assert_eq!(decoder.counters().lanes, 3, "one for each engine");
    for (dtype, rows, columns, scaling) in [
        (Dtype::Bf16, 100, 256, Some(Scaling::Tensor)),
        (Dtype::F32, 1000, 300, Some(Scaling::Rows(7))),
        (Dtype::F16, 777, 211, Some(Scaling::Columns)),
        (Dtype::F64, 300, 256, Some(Scaling::Columns)),
        (Dtype::U8, 600, 333, None),
        (Dtype::Bf16, 1, 1, Some(Scaling::Tensor)),
        (Dtype::Bf16, 0, 12, Some(Scaling::Tensor)),
    ] {
        let recipe = Recipe::new(dtype, rows, columns, scaling);
        let found = decode(&decoder, &recipe).unwrap();
        assert!(found == recipe.tensor().data, "{dtype} {rows} × {columns} {scaling:?}");
        // The same by way of the host.
        assert_eq!(decoder.decode(&recipe.blob(), &DecodeOptions::default()).unwrap(), recipe.tensor());
    }
    drop(decoder);
}

#[test]
fn elements_that_no_sample_holds_and_rotations_come_back() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    let mut recipe = Recipe::new(Dtype::Bf16, 500, 256, Some(Scaling::Rows(100)));
    recipe.specials = vec![(0, vec![0x80, 0x7f]), (70_000, vec![0xc1, 0xff]), (127_999, vec![0x80, 0xff])];
    assert!(decode(&decoder, &recipe).unwrap() == recipe.tensor().data);
    // As f32 the same samples keep more of their value.
    let wide = decode_as(&decoder, &recipe.blob(), Dtype::F32).unwrap();
    assert_eq!(wide[..4], f32::INFINITY.to_le_bytes());
    recipe.transforms = vec![Transform::Hadamard(Hadamard::new(6, 3).unwrap())];
    recipe.dtype = Dtype::F32;
    recipe.specials = vec![(9, f32::NAN.to_le_bytes().to_vec())];
    let found = decode(&decoder, &recipe).unwrap();
    let wanted = recipe.tensor();
    let reals =
        |data: &[u8]| Tensor { data: data.to_vec(), ..wanted.clone() }.view().unwrap().to_f64().unwrap();
    let (found, wanted) = (reals(&found), reals(&wanted.data));
    let largest = wanted.iter().filter(|v| v.is_finite()).fold(0.0, |a: f64, v| a.max(v.abs()));
    for (i, (a, b)) in found.iter().zip(&wanted).enumerate() {
        let close = (a - b).abs() <= 8.0 * largest / f64::from(1 << 18);
        assert!(if i == 9 { a.is_nan() } else { close }, "value {i}: {a} {b}");
    }
}

#[test]
fn pictures_are_shared_out_and_decoders_used_again() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    // Eight pictures for three lanes, then one picture at a time: no further decoder is needed.
    let large = Recipe::new(Dtype::Bf16, 8 * 256, 256, Some(Scaling::Tensor));
    assert!(decode(&decoder, &large).unwrap() == large.tensor().data);
    assert_eq!(decoder.counters().created, 3);
    let small = Recipe::new(Dtype::Bf16, 64, 256, Some(Scaling::Tensor));
    for _ in 0..10 {
        assert!(decode(&decoder, &small).unwrap() == small.tensor().data);
    }
    let counters = decoder.counters();
    assert_eq!((counters.created, counters.open, counters.reused, counters.pictures), (3, 3, 10, 18));
    assert_eq!(world().most_open, 3);
    drop(decoder);
    assert_eq!(world().open, 0);
}

#[test]
fn a_tensor_submitted_meanwhile_gets_decoders_of_its_own() {
    let _turn = turn(Fault::Slow(Duration::from_millis(50)));
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    let recipe = Recipe::new(Dtype::Bf16, 3 * 256, 256, Some(Scaling::Tensor));
    let (blob, wanted) = (recipe.blob(), recipe.tensor().data);
    let memory: Vec<Buffer> = (0..4).map(|_| Buffer::new(&device, wanted.len()).unwrap()).collect();
    let pending: Vec<_> = memory.iter().map(|m| submit(&decoder, &blob, m, Dtype::Bf16)).collect();
    for (pending, memory) in pending.into_iter().zip(&memory) {
        assert!(result(pending, memory) == wanted);
    }
    // Two for each engine, and no more for the third and the fourth.
    assert_eq!((decoder.counters().lanes, decoder.counters().created), (3, 6));
}

#[test]
fn idle_decoders_do_not_keep_more_memory_than_they_may() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default().with_idle_bytes(0));
    let recipe = Recipe::new(Dtype::Bf16, 600, 256, Some(Scaling::Tensor));
    assert!(decode(&decoder, &recipe).unwrap() == recipe.tensor().data);
    assert_eq!(decoder.counters().open, 0);
}

#[test]
fn many_are_on_their_way_at_once() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default().with_lanes(2));
    let free = device.free_memory().unwrap();
    thread::scope(|scope| {
        for t in 0..3 {
            let decoder = &decoder;
            scope.spawn(move || {
                let recipe = Recipe::new(Dtype::F16, 200 + 100 * t, 256, Some(Scaling::Columns));
                let (blob, wanted) = (recipe.blob(), recipe.tensor().data);
                let memory: Vec<Buffer> =
                    (0..6).map(|_| Buffer::new(decoder.device(), wanted.len()).unwrap()).collect();
                let pending: Vec<_> = memory.iter().map(|m| submit(decoder, &blob, m, Dtype::F16)).collect();
                for (i, (p, m)) in pending.into_iter().zip(&memory).enumerate() {
                    // Some are given up.
                    if i == 2 {
                        drop(p);
                        continue;
                    }
                    assert!(result(p, m) == wanted);
                }
            });
        }
    });
    // What stays are places for checksums, a page each or two.
    assert!(free - device.free_memory().unwrap() < 1 << 20);
}

#[test]
fn samples_come_to_the_host() {
    let _turn = turn(Fault::Nothing);
    let device = device();
    let decoder = decoder(&device, LaneSettings::default());
    let units: Vec<Vec<u8>> = (5..10).map(access_unit).collect();
    let views: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; 5 * FORMAT.samples()];
    decoder.decode_samples(Standard::H265, &FORMAT, &parameter_sets(), &views, &mut out).unwrap();
    for (seed, picture) in (5..).zip(out.chunks(FORMAT.samples())) {
        assert!(picture.iter().enumerate().all(|(i, &s)| s == sample(seed, i as u32, 8)), "{seed}");
    }
    assert!(decoder.decode_samples(Standard::H265, &FORMAT, &parameter_sets(), &views, &mut [0; 7]).is_err());
}
