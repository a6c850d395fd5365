//! Every command does what its help says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod common;

use common::Bench;

#[test]
fn a_model_goes_there_and_back() {
    let bench = Bench::new();
    let text = bench.ok(&["compress", "model.safetensors", "-o", "small.safetensors", "--lossless"]);
    assert!(text.contains("2 of 3 tensors compressed"), "{text}");
    assert_eq!(bench.ok(&["decompress", "small.safetensors", "-o", "back.safetensors"]), "");
    let read = |name| std::fs::read(bench.path(name)).unwrap();
    assert_eq!(read("model.safetensors"), read("back.safetensors"));
    let text = bench.ok(&["verify", "small.safetensors"]);
    assert!(text.contains("2 of 3 tensors are compressed"), "{text}");
    let text = bench.ok(&["compare", "model.safetensors", "small.safetensors", "--fail-above", "0"]);
    assert!(text.contains("3 of 3 tensors are identical"), "{text}");
}

#[test]
fn every_goal_is_taken() {
    let bench = Bench::new();
    let goals: [&[&str]; 9] = [
        &["--bits", "3.5"],
        &["--ratio", "8"],
        &["--mse", "1e-5"],
        &["--nmse", "0.02"],
        &["--max-error", "0.01"],
        &["--max-bytes", "30000"],
        &["--step", "0.01"],
        &["--round-bits", "8"],
        &["--lossless"],
    ];
    for goal in goals {
        let mut args = vec!["compress", "model.safetensors", "-o", "small.safetensors", "--force", "--quiet"];
        args.extend(goal);
        assert_eq!(bench.ok(&args), "", "quiet is quiet");
    }
}

#[test]
fn options_reach_the_plan() {
    let bench = Bench::new();
    std::fs::write(
        bench.path("recipe.toml"),
        "[default]\nbits = 3\n[[tensor]]\nmatch = '*.0.*'\nlossless = true\n",
    )
    .unwrap();
    let base = ["compress", "model.safetensors", "-o", "small.safetensors", "--json", "--force"];
    let goals = |more: &[&str]| -> Vec<String> {
        let report = bench.json(&[&base[..], more].concat());
        let rows = report["tensors"].as_array().unwrap();
        rows.iter().map(|row| row["goal"].as_str().unwrap_or("none").to_owned()).collect()
    };
    assert_eq!(goals(&["--recipe", "recipe.toml"]), ["lossless", "bits=3.0000", "none"]);
    assert_eq!(goals(&["--recipe", "recipe.toml", "--bits", "5"]), ["lossless", "bits=5.0000", "none"]);
    assert_eq!(
        goals(&["--bits", "4", "--alloc", "ramp=1", "--effort", "fast"]),
        ["bits=3.5000", "bits=4.5000", "none"]
    );
    let chosen = ["--lossless", "--include", "norm*", "--exclude", "*.1.*", "--threads", "1"];
    assert_eq!(goals(&chosen), ["lossless", "none", "lossless"]);
}

#[test]
fn json_has_the_documented_fields() {
    let bench = Bench::new();
    let report =
        bench.json(&["compress", "model.safetensors", "-o", "small.safetensors", "--bits", "4", "--json"]);
    let seen = bench.json(&["inspect", "small.safetensors", "--json"]);
    for report in [&report, &seen] {
        for key in ["tensors", "values", "original_bytes", "stored_bytes", "bits_per_value", "ratio"] {
            assert!(report["total"][key].is_number() && report["compressed"][key].is_number(), "{key}");
        }
        let row = &report["tensors"][0];
        for key in ["values", "original_bytes", "stored_bytes", "bits_per_value", "ratio", "tiles"] {
            assert!(row[key].is_number(), "{key}");
        }
        for key in ["name", "file", "dtype", "codec"] {
            assert!(row[key].is_string(), "{key}");
        }
        assert_eq!(row["shape"], serde_json::json!([64, 96]));
        for key in ["step", "states", "classes"] {
            assert!(row.get(key).is_some(), "{key}");
        }
    }
    assert_eq!(report["total"], seen["total"]);
    let verified = bench.json(&["verify", "small.safetensors", "--json"]);
    assert_eq!((&verified["tensors"], &verified["blobs"]), (&3.into(), &2.into()));
    let diff = bench.json(&["compare", "model.safetensors", "small.safetensors", "--json"]);
    for key in ["mse", "nmse", "max_error", "cosine", "special_mismatches", "values"] {
        assert!(diff["total"][key].is_number() && diff["tensors"][0][key].is_number(), "{key}");
    }
    for key in ["only_in_first", "only_in_second", "not_comparable"] {
        assert!(diff[key].is_array(), "{key}");
    }
}

#[test]
fn residuals_become_layers() {
    let bench = Bench::new();
    let base =
        ["compress", "model.safetensors", "-o", "small.safetensors", "--bits", "3", "--json", "--force"];
    bench.json(&base);
    let plain = bench.json(&["compare", "model.safetensors", "small.safetensors", "--json"]);
    bench.json(&[&base[..], &["--residual-bits", "3"]].concat());
    let seen = bench.json(&["inspect", "small.safetensors", "--json"]);
    assert_eq!(seen["tensors"][0]["codec"], "layered");
    assert_eq!(seen["tensors"][0]["layers"].as_array().unwrap().len(), 2);
    let diff = bench.json(&["compare", "model.safetensors", "small.safetensors", "--json"]);
    assert!(diff["total"]["mse"].as_f64() < plain["total"]["mse"].as_f64().map(|mse| mse / 20.0));
}

#[test]
fn tables_line_up_and_end_in_totals() {
    let bench = Bench::new();
    bench.ok(&["compress", "model.safetensors", "-o", "small.safetensors", "--bits", "4"]);
    for (args, footers) in [
        (vec!["inspect", "small.safetensors"], 2),
        (vec!["inspect", "model.safetensors"], 2),
        (vec!["compare", "model.safetensors", "small.safetensors"], 2),
    ] {
        let text = bench.ok(&args);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 3 + 1 + footers, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 120), "{text}");
        let width = lines[0].chars().count();
        assert!(lines[1..4].iter().all(|line| line.chars().count() == width), "{text}");
    }
}

#[test]
fn completions_come_for_every_shell() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(bench.ok(&["completions", shell]).contains("decompress"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let bench = Bench::new();
    clap_mangen::generate_to(tenfold_cli::command(), bench.dir.path()).unwrap();
    for command in ["compress", "decompress", "inspect", "verify", "compare", "basis-fit", "bench", "engines"]
    {
        let page = std::fs::read_to_string(bench.path(&format!("tenfold-{command}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains("\\-\\-help"), "{page}");
    }
    let page = std::fs::read_to_string(bench.path("tenfold.1")).unwrap();
    assert!(page.contains("Exit codes:") && page.contains("tenfold\\-compress(1)"), "{page}");
}

#[test]
fn help_tells_of_exit_codes_and_shows_examples() {
    let bench = Bench::new();
    assert!(bench.ok(&["--help"]).contains("Exit codes:"));
    for command in ["compress", "decompress", "inspect", "verify", "compare", "bench", "completions"] {
        let text = bench.ok(&[command, "--help"]);
        assert!(text.contains("Example"), "{command}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
    assert!(bench.ok(&["--version"]).starts_with("tenfold "));
}

#[test]
fn importance_reaches_the_blobs_and_mistakes_are_named() {
    let bench = Bench::new();
    let vectors = [("layers.0.weight", 96usize), ("layers.1.weight", 96)];
    let write = |file: &str, vectors: &[(&str, usize)]| {
        let mut at = 0;
        let entry = |&(name, n): &(&str, usize)| {
            let (from, to) = (at, at + 4 * n);
            at = to;
            format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{n}],\"data_offsets\":[{from},{to}]}}")
        };
        let header = format!("{{{}}}", vectors.iter().map(entry).collect::<Vec<_>>().join(","));
        let squares = vectors.iter().flat_map(|v| (0..v.1).flat_map(|j| (1.0 + j as f32).to_le_bytes()));
        let length = (header.len() as u64).to_le_bytes();
        let bytes: Vec<u8> = length.into_iter().chain(header.bytes()).chain(squares).collect();
        std::fs::write(bench.path(file), bytes).unwrap();
    };
    write("channels.safetensors", &vectors);
    let base = ["compress", "model.safetensors", "-o", "small.safetensors", "--force", "--json"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let report = bench.json(&with(&["--bits", "4", "--importance", "channels.safetensors"]));
    let names: Vec<&str> =
        report["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    for tensor in report["tensors"].as_array().unwrap() {
        let weighted = vectors.iter().any(|v| v.0 == tensor["name"]);
        assert_eq!(tensor["transforms"] == serde_json::json!(["column weights"]), weighted, "{names:?}");
    }
    let bits = report["compressed"]["bits_per_value"].as_f64().unwrap();
    assert!((bits / 4.0 - 1.0).abs() < 0.02, "{bits}");
    bench.ok(&["verify", "small.safetensors"]);

    write("narrow.safetensors", &[("layers.0.weight", 95)]);
    write("other.safetensors", &[("layer.weight", 96)]);
    let cases = [("narrow.safetensors", "95"), ("other.safetensors", "layer.weight"), ("missing", "missing")];
    for (file, says) in cases {
        let args = [&base[..], &["--bits", "4", "--importance", file]].concat();
        let output = bench.run(&args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(says), "{text}");
    }
    let text = bench.fails(2, &with(&["--lossless", "--importance", "channels.safetensors"]));
    assert!(text.contains("--lossless"), "{text}");
    // A device takes it too, where there is one: number 999 is not.
    let cuda = ["--engine", "cuda", "--device", "999"];
    bench.fails(6, &with(&[&["--bits", "4", "--importance", "channels.safetensors"][..], &cuda].concat()));
    bench.fails(6, &with(&[&["--bits", "4", "--prepare", "means+hadamard"][..], &cuda].concat()));
}
