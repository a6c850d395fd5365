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
    args.size = Some(6144);
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
fn weights_from_file_to_table_report_and_pictures() {
    let dir = std::env::temp_dir().join(format!("tenfold-ablation-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut args = quick("weights.safetensors");
    args.only = Some("attention.output".to_string());
    args.json = Some(dir.join("report.json"));
    args.pictures = Some(dir.join("pictures"));
    args.command = "tenfold-lab ablation".to_string();
    let mut out = Vec::new();
    let report = run(&args, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    stages_come_out_in_the_papers_order_of_size(&report, &text);
    assert!(text.contains("entropy coding -") && text.contains("all values"), "{text}");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("report.json")).unwrap()).unwrap();
    assert_eq!(kept["bench"], "ablation");
    assert_eq!(kept["rows"].as_array().unwrap().len(), 11);
    pictures_show_something(&dir.join("pictures"), "encoder.layer.1.attention.output.dense.weight");
    std::fs::remove_dir_all(&dir).unwrap();
}

fn stages_come_out_in_the_papers_order_of_size(report: &Report, text: &str) {
    let at = |case: &str| bits(report, "attention.output", case, "one picture");
    assert!((at("samples") - 8.0).abs() < 0.1, "{text}");
    assert!(at("+quantiser") < 5.1, "{text}");
    // The bound for a Gaussian at 0.03 is 2.53 bits; entropy coding gives most of what is left.
    assert!(at("+entropy") < at("+quantiser") - 0.8, "{text}");
    assert!(at("+prediction") > 2.4 && at("+prediction") < 3.2, "{text}");
    assert!(at("-entropy") > at("+prediction") + 0.8, "{text}");
    assert_eq!(at("-prediction"), at("+transform"));
    // Inter-frame gives nothing here and may cost its flags.
    let (intra, inter) = (
        bits(report, "attention.output", "intra", "bands"),
        bits(report, "attention.output", "+inter", "bands"),
    );
    assert!((inter - intra).abs() < 0.08, "{text}");
    for row in &report.rows {
        let nmse = row["nmse"].as_f64().unwrap();
        assert!(nmse <= 0.03, "{row}");
        // Levels of fixed length may be cheapest below the error that is allowed.
        assert!(nmse > 0.028 || row["entropy"] == false, "{row}");
    }
}

fn pictures_show_something(dir: &Path, tensor: &str) {
    let parts = ["samples", "prediction", "residual", "coefficients", "levels"];
    let blocks = ["best", "typical"].iter().flat_map(|block| parts.map(|part| format!("{block}-{part}")));
    for name in blocks.chain(["sheet".to_string(), "blocks".to_string()]) {
        let file = std::fs::File::open(dir.join(format!("{tensor}.{name}.png"))).unwrap();
        let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert!(info.width > 200 && info.height > 60, "{name}");
        let colours: std::collections::BTreeSet<&[u8]> = pixels.chunks_exact(3).collect();
        // A frame around one value has two; a prediction may be flat.
        let least = if name.contains("prediction") { 2 } else { 4 };
        assert!(colours.len() >= least, "{name} has {} colours", colours.len());
    }
}

#[test]
fn sequences_of_layers_and_bands_are_found() {
    let mut args = quick("kv.safetensors");
    args.only = Some(".k[".to_string());
    let source = Source::load(&args.files[0], &args).unwrap();
    let names: Vec<&str> = source.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["layers.8.k[0:256]", "layers.22.k[0:256]"]);
    let texts: Vec<String> = source.sequences.iter().map(|s| s.arrangement.text()).collect();
    assert_eq!(texts, ["2 bands of rows", "2 bands of rows", "2 tensors"]);
    for sequence in &source.sequences {
        let samples: usize = sequence.pictures.iter().map(|p| p.samples().len()).sum();
        assert_eq!((samples, sequence.pictures.len()), (sequence.values(), 2));
    }
    // Names that differ in more than numbers: tensors of one shape.
    let args = quick("gradients.safetensors");
    let source = Source::load(&args.files[0], &args).unwrap();
    let found = source.sequences.iter().find(|s| s.arrangement == source::Arrangement::Tensors(3));
    assert!(found.is_some_and(|s| s.parts.len() == 3 && s.name.contains("step20.h")));
}

#[test]
fn an_error_below_that_of_the_samples_is_out_of_reach() {
    let mut args = quick("gradients.safetensors");
    args.only = Some("step20.h".to_string());
    args.size = Some(4096);
    args.nmse = 1e-9;
    let mut out = Vec::new();
    let report = run(&args, &mut out).unwrap();
    let reached: Vec<&serde_json::Value> = report.rows.iter().filter(|r| !r["bits"].is_null()).collect();
    assert!(reached.iter().all(|r| r["case"] == "samples"), "{reached:?}");
    assert!(report.notes.iter().any(|n| n.contains("out of reach")), "{:?}", report.notes);
    assert!(String::from_utf8(out).unwrap().contains("  -  "));
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
