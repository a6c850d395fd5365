//! Which tensors are compressed and with which goal: the default rule, globs, recipes, shared budgets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use std::collections::BTreeMap;

use common::*;
use safetensors::tensor::Dtype;
use tempfile::tempdir;
use tenfold::Goal;
use tenfold::engine::ErrorKind;
use tenfold_archive::{Alloc, CompressOptions, Error, Recipe, Report, Silent, compress};

fn squeeze(model: &[Made], options: &CompressOptions) -> Result<Report, Error> {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.safetensors"), dir.path().join("b.safetensors"));
    write_standard(&a, model, &[]);
    compress(&a, &b, options, &Silent)
}

/// Goals by name; tensors left as they were are not there.
fn goals(report: &Report) -> BTreeMap<String, String> {
    report.tensors.iter().filter_map(|row| Some((row.name.clone(), row.goal.clone()?))).collect()
}

#[test]
fn a_recipe_sets_goals_by_tensor() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("recipe.toml");
    let text = "[default]\nbits = 3.5\n\n[[tensor]]\nmatch = 'layers.0.*'\nnmse = 1e-2\neffort = 'fast'\n\n\
                [[tensor]]\nmatch = '*norm*'\nlossless = true\ninclude = true\n";
    std::fs::write(&path, text).unwrap();
    let options = CompressOptions::default().with_recipe(Recipe::read(&path).unwrap());
    let goals = goals(&squeeze(&small_model(), &options).unwrap());
    let expected =
        [("layers.0.weight", "nmse=0.01"), ("layers.1.weight", "bits=3.5000"), ("norm.weight", "lossless")];
    assert_eq!(goals, expected.map(|(k, v)| (k.to_string(), v.to_string())).into());
}

#[test]
fn the_command_line_s_goal_goes_before_the_default_of_a_recipe() {
    let recipe = Recipe::parse("[default]\nskip = true").unwrap();
    let report = squeeze(&small_model(), &CompressOptions::default().with_recipe(recipe.clone())).unwrap();
    assert_eq!(report.compressed.tensors, 0);
    let report = squeeze(&small_model(), &CompressOptions::new(Goal::Lossless).with_recipe(recipe)).unwrap();
    assert_eq!(report.compressed.tensors, 2);
}

#[test]
fn a_recipe_knows_every_goal() {
    for (text, goal) in [
        ("bits = 4", "bits=4.0000"),
        ("ratio = 8.0", "ratio=8"),
        ("mse = 1e-4", "mse=0.0001"),
        ("nmse = 0.01", "nmse=0.01"),
        ("max_error = 0.5", "max_error=0.5"),
        ("max_bytes = 16000", "max_bytes=16000"),
        ("step = 0.25", "step=2.500000e-1"),
        ("round_bits = 8", "round_bits=8"),
        ("lossless = true", "lossless"),
    ] {
        let recipe = Recipe::parse(&format!("[default]\n{text}")).unwrap();
        let report = squeeze(&small_model(), &CompressOptions::default().with_recipe(recipe)).unwrap();
        assert_eq!(goals(&report)["layers.0.weight"], goal);
    }
    let error = Recipe::parse("[default]\nbitz = 3").unwrap_err();
    assert!(Goal::NAMES.iter().all(|goal| error.contains(goal.name)), "{error}");
}

#[test]
fn a_recipe_with_a_mistake_is_refused_by_name() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("my-recipe.toml");
    let cases = [
        ("[default]\nbitz = 3", "bitz"),
        ("[defaults]\nbits = 3", "defaults"),
        ("[[tensor]]\nbits = 3", "match"),
        ("[[tensor]]\nmatch = 'a'", "no goal"),
        ("[[tensor]]\nmatch = 'a'\nbits = 3\nskip = true", "more than one"),
        ("[[tensor]]\nmatch = '[a'\nbits = 3", "[a"),
        ("[[tensor]]\nmatch = 'a'\nbits = 'three'", "bits"),
        ("[[tensor]]\nmatch = 'a'\nlossless = 3", "lossless"),
        ("[[tensor]]\nmatch = 'a'\nmax_bytes = -3", "max_bytes"),
        ("[[tensor]]\nmatch = 'a'\nbits = 3\neffort = 'max'", "max"),
        ("[default]\nmatch = 'a'\nbits = 3", "match"),
    ];
    for (text, part) in cases {
        std::fs::write(&path, text).unwrap();
        let error = Recipe::read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
        let message = error.to_string();
        assert!(message.contains("my-recipe.toml") && message.contains(part), "{message}");
    }
}

#[test]
fn a_goal_is_needed_and_has_to_make_sense() {
    let error = squeeze(&small_model(), &CompressOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no goal"), "{error}");
    let error = squeeze(&small_model(), &CompressOptions::new(Goal::Bits(-1.0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Caller);
    let error = squeeze(&small_model(), &CompressOptions::new(Goal::Lossless).with_include("[")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Caller);
    let error =
        squeeze(&small_model(), &CompressOptions::new(Goal::Lossless).with_alloc(Alloc::Step)).unwrap_err();
    assert!(error.to_string().contains("needs bits"), "{error}");
}

#[test]
fn integers_are_never_lossy() {
    let model = [bytes("int", Dtype::I32, &[64, 64]), floats("float", &[64, 64], 1.0)];
    let report = squeeze(&model, &CompressOptions::new(Goal::Bits(2.0))).unwrap();
    assert_eq!(goals(&report).into_keys().collect::<Vec<_>>(), ["float"]);
    let report = squeeze(&model, &CompressOptions::new(Goal::Bits(2.0)).with_include("*")).unwrap();
    assert_eq!(goals(&report)["int"], "lossless");
}

#[test]
fn a_ramp_gives_later_layers_more_and_meets_the_average() {
    let mut model: Vec<Made> =
        (0..6).map(|l| floats(&format!("model.layers.{l}.w"), &[64, 64 + 16 * l], 1.0)).collect();
    model.push(floats("lm_head.weight", &[64, 64], 1.0));
    let report =
        squeeze(&model, &CompressOptions::new(Goal::Bits(4.0)).with_alloc(Alloc::Ramp(0.3))).unwrap();
    let goals = goals(&report);
    let bits = |name: &str| goals[name].strip_prefix("bits=").unwrap().parse::<f64>().unwrap();
    assert_eq!(bits("lm_head.weight"), 4.0);
    let (mut sum, mut values) = (0.0, 0.0);
    for l in 0..6 {
        let n = (64 * (64 + 16 * l)) as f64;
        sum += n * bits(&format!("model.layers.{l}.w"));
        values += n;
        if l > 0 {
            let rise = bits(&format!("model.layers.{l}.w")) - bits(&format!("model.layers.{}.w", l - 1));
            assert!((rise - 0.3).abs() < 1e-3);
        }
    }
    assert!((sum / values - 4.0).abs() < 1e-3);
}

#[test]
fn allocations_are_read_from_text() {
    assert_eq!("equal".parse(), Ok(Alloc::Equal));
    assert_eq!("step".parse(), Ok(Alloc::Step));
    assert_eq!("ramp=-0.25".parse(), Ok(Alloc::Ramp(-0.25)));
    for bad in ["", "ramp", "ramp=", "ramp=x", "ramp=inf", "steps", "equal=1"] {
        assert!(bad.parse::<Alloc>().is_err(), "{bad}");
    }
}

#[test]
fn one_step_for_all_meets_the_average_and_gives_large_tensors_more() {
    let scales = [0.01, 0.02, 0.05, 0.1, 0.4];
    let model: Vec<Made> = scales.iter().map(|&s| floats(&format!("w{s}"), &[128, 256], s)).collect();
    for bits in [1.5, 3.0, 5.0] {
        let report =
            squeeze(&model, &CompressOptions::new(Goal::Bits(bits)).with_alloc(Alloc::Step)).unwrap();
        let off = report.compressed.bits_per_value / bits - 1.0;
        assert!(off.abs() < 0.01, "{bits} bits asked, {} given", report.compressed.bits_per_value);
        assert!(report.tensors.iter().all(|row| row.step == report.tensors[0].step));
        let rates: Vec<f64> = report.tensors.iter().map(|row| row.bits_per_value).collect();
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]) && rates[0] < rates[4], "{rates:?}");
    }
}
