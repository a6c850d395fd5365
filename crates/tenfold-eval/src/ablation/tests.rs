//! The ablation on small real tensors.

use std::path::{Path, PathBuf};

use super::*;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn quick(name: &str) -> AblationArgs {
    let mut args = AblationArgs::new(vec![testdata(name)]);
    args.quick = true;
    args.quiet = true;
    args.size = Some(8192);
    args
}

fn bits(report: &Report, tensor: &str, case: &str, pictures: &str) -> f64 {
    let found = report.rows.iter().find(|r| {
        r["tensor"].as_str().unwrap().contains(tensor)
            && r["case"] == case
            && r["pictures"].as_str().unwrap().contains(pictures)
    });
    found.unwrap_or_else(|| panic!("no row for {tensor}, {case}, {pictures}"))["bits"].as_f64().unwrap()
}

#[test]
fn stages_of_weights_come_out_in_the_papers_order_of_size() {
    let mut args = quick("weights.safetensors");
    args.only = Some("attention.output".to_string());
    let mut out = Vec::new();
    let report = run(&args, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let at = |case: &str| bits(&report, "attention.output", case, "one picture");
    assert!((at("samples") - 8.0).abs() < 0.1, "{}", at("samples"));
    assert!((at("+quantiser") - 4.0).abs() < 0.1, "{}", at("+quantiser"));
    // The bound for a Gaussian at 0.03 is 2.53 bits; entropy coding gives most of what is left.
    assert!(at("+entropy") < at("+quantiser") - 0.8, "{text}");
    assert!(at("+prediction") > 2.4 && at("+prediction") < 3.1, "{text}");
    assert!(at("-entropy") > at("+prediction") + 0.8, "{text}");
    assert_eq!(at("-prediction"), at("+transform"));
    // Inter-frame gives nothing here and may cost its flags.
    let inter = bits(&report, "attention.output", "+inter", "bands");
    let intra = bits(&report, "attention.output", "intra", "bands");
    assert!((inter - intra).abs() < 0.05, "{intra} {inter}");
    for row in &report.rows {
        if row["case"] != "samples" {
            let nmse = row["nmse"].as_f64().unwrap();
            assert!(nmse <= 0.03 && nmse > 0.0285, "{row}");
        }
    }
    assert!(text.contains("entropy coding -") && text.contains("all values"), "{text}");
}

#[test]
fn sequences_of_layers_are_found() {
    let mut args = quick("kv.safetensors");
    args.only = Some(".k[".to_string());
    args.size = Some(4096);
    let report = run(&args, &mut Vec::new()).unwrap();
    let tensors = report.rows.iter().find(|r| r["pictures"] == "2 tensors").unwrap();
    assert_eq!(tensors["tensor"], "layers.8.k[0:256], layers.22.k[0:256]");
}

#[test]
fn report_and_pictures_are_written() {
    let dir = std::env::temp_dir().join(format!("tenfold-ablation-{}", std::process::id()));
    let mut args = quick("gradients.safetensors");
    args.only = Some("step300.e".to_string());
    args.size = Some(4096);
    args.pictures = Some(dir.join("pictures"));
    std::fs::create_dir_all(&dir).unwrap();
    args.json = Some(dir.join("report.json"));
    args.command = "tenfold eval ablation".to_string();
    run(&args, &mut Vec::new()).unwrap();
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("report.json")).unwrap()).unwrap();
    assert_eq!(kept["bench"], "ablation");
    assert!(kept["rows"].as_array().unwrap().len() >= 8);
    let names =
        ["sheet", "blocks", "best-samples", "best-prediction", "typical-residual", "typical-coefficients"];
    for name in names.into_iter().chain(["typical-levels"]) {
        let path = dir.join(format!("pictures/step300.e.weight.grad.{name}.png"));
        let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert!(info.width > 200 && info.height > 60, "{name}");
        let pixels: std::collections::BTreeSet<&[u8]> = pixels.chunks_exact(3).collect();
        assert!(pixels.len() > 3, "{name} has {} colours", pixels.len());
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn bad_arguments_are_refused() {
    let message = |args: &AblationArgs| run(args, &mut Vec::new()).unwrap_err().to_string();
    assert!(message(&AblationArgs::new(vec![])).contains("at least one"));
    assert!(message(&AblationArgs::new(vec![PathBuf::from("/nonexistent/x")])).contains("cannot read"));
    let mut args = quick("kv.safetensors");
    args.nmse = f64::NAN;
    assert!(message(&args).contains("between 0 and 1"));
    args.nmse = 0.03;
    args.depth = 7;
    assert!(message(&args).contains("8 to 12"));
    args.depth = 8;
    args.only = Some("no such tensor".to_string());
    assert!(message(&args).contains("no tensor"));
}
