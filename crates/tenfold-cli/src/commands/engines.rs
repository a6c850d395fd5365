//! `tenfold engines`.

use std::process::ExitCode;

use serde::Serialize;
use tenfold_video::codec::Abilities;

use crate::args::EnginesArgs;
use crate::print;

#[derive(Serialize)]
struct Entry {
    engine: &'static str,
    name: &'static str,
    role: &'static str,
    standard: Option<String>,
    available: bool,
    /// What it can do, or why it cannot.
    detail: String,
}

pub fn run(args: EnginesArgs) -> anyhow::Result<ExitCode> {
    let entries = entries();
    if args.json {
        print::json(&entries)?;
    } else {
        print::out(&table(&entries))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn entries() -> Vec<Entry> {
    let detail = "lossless and lossy, every goal".to_string();
    let mut all =
        vec![Entry { engine: "cpu", name: "native", role: "codec", standard: None, available: true, detail }];
    for encoder in tenfold_video::encoders() {
        let found = encoder.abilities();
        all.push(Entry {
            engine: "video",
            name: encoder.name(),
            role: "encoder",
            standard: Some(encoder.standard().to_string()),
            available: found.is_ok(),
            detail: found.map_or_else(|e| e.to_string(), |a| abilities(&a)),
        });
    }
    for decoder in tenfold_video::decoders() {
        let found = decoder.probe();
        all.push(Entry {
            engine: "video",
            name: decoder.name(),
            role: "decoder",
            standard: Some(decoder.standard().to_string()),
            available: found.is_ok(),
            detail: found.map_or_else(|e| e.to_string(), |()| String::new()),
        });
    }
    all
}

fn abilities(a: &Abilities) -> String {
    let depths: Vec<String> = a.depths.iter().map(u8::to_string).collect();
    let exact = if a.lossless { ", lossless samples" } else { "" };
    format!("{} bits, qp {} to {}{exact}", depths.join("/"), a.qp.start(), a.qp.end())
}

fn table(entries: &[Entry]) -> String {
    let mut text = String::new();
    for e in entries {
        let here = if e.available { "yes" } else { "no" };
        let standard = e.standard.as_deref().unwrap_or("-");
        let line =
            format!("{:<6} {standard:<6} {:<8} {:<8} {here:<4} {}", e.engine, e.role, e.name, e.detail);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if entries.len() == 1 {
        text.push_str("video  this build has no codecs; build with --features video (the system's FFmpeg)\n");
    }
    text
}
