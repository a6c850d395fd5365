//! `tenfold engines`.

mod video;

use serde::Serialize;
use tenfold_cuda::{Device, Properties};
use tenfold_video::codec::Abilities;

use self::video::{Encoders, Jpeg, Pictures};
use crate::args::EnginesArgs;
use crate::exit;
use crate::print;

#[derive(Serialize)]
struct Entry {
    engine: &'static str,
    name: &'static str,
    role: &'static str,
    standard: Option<String>,
    available: bool,
    /// What it can do, or why it is unavailable.
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Gpu>,
    /// What the video engines of a GPU decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    decodes: Option<Vec<Pictures>>,
    /// The engines that encode a standard, and how many programs may use them.
    #[serde(skip_serializing_if = "Option::is_none")]
    encodes: Option<Encoders>,
    /// The engines that decode JPEG.
    #[serde(skip_serializing_if = "Option::is_none")]
    jpeg: Option<Jpeg>,
}

impl Entry {
    /// Without what only some have; unavailable where the detail is a reason.
    fn new(
        engine: &'static str,
        name: &'static str,
        role: &'static str,
        standard: Option<String>,
        detail: Result<String, String>,
    ) -> Entry {
        Entry {
            engine,
            name,
            role,
            standard,
            available: detail.is_ok(),
            detail: detail.unwrap_or_else(|why| why),
            device: None,
            decodes: None,
            encodes: None,
            jpeg: None,
        }
    }
}

/// A CUDA device, in JSON.
#[derive(Serialize)]
struct Gpu {
    /// What `--device` takes.
    number: u32,
    name: String,
    capability: String,
    memory: u64,
    multiprocessors: u32,
}

pub fn run(args: EnginesArgs) -> anyhow::Result<u8> {
    let entries = entries();
    if args.json {
        print::json(&entries)?;
    } else {
        print::out(&table(&entries))?;
    }
    Ok(exit::SUCCESS)
}

fn entries() -> Vec<Entry> {
    let mut all = vec![native("cpu", true, "lossless and lossy, every goal".to_string(), None)];
    all.extend(cuda());
    all.extend(video::entries());
    for encoder in tenfold_video::encoders() {
        let found = encoder.abilities();
        let standard = Some(encoder.standard().to_string());
        let detail = found.map(|a| abilities(&a)).map_err(|e| e.to_string());
        all.push(Entry::new("video", encoder.name(), "encoder", standard, detail));
    }
    for decoder in tenfold_video::decoders() {
        let found = decoder.probe();
        let standard = Some(decoder.standard().to_string());
        let detail = found.map(|()| String::new()).map_err(|e| e.to_string());
        all.push(Entry::new("video", decoder.name(), "decoder", standard, detail));
    }
    all
}

/// An entry for tenfold's own codec.
fn native(engine: &'static str, available: bool, detail: String, device: Option<Gpu>) -> Entry {
    let detail = if available { Ok(detail) } else { Err(detail) };
    Entry { device, ..Entry::new(engine, "native", "codec", None, detail) }
}

/// An entry for each device, or one that says why there is no device.
fn cuda() -> Vec<Entry> {
    let none = |why: String| vec![native("cuda", false, why, None)];
    match Device::count() {
        Err(error) => none(error.to_string()),
        Ok(0) => none("no CUDA device: the driver finds none".to_string()),
        Ok(count) => (0..count)
            .map(|number| match Device::describe(number) {
                Ok(found) => native("cuda", true, about(number, &found), Some(gpu(number, found))),
                Err(error) => native("cuda", false, format!("device {number}: {error}"), None),
            })
            .collect(),
    }
}

fn about(number: u32, found: &Properties) -> String {
    let (major, minor) = found.capability;
    format!(
        "device {number}: {}, compute capability {major}.{minor}, {} multiprocessors, {}",
        found.name,
        found.multiprocessors,
        print::bytes(found.memory)
    )
}

fn gpu(number: u32, found: Properties) -> Gpu {
    let (major, minor) = found.capability;
    Gpu {
        number,
        name: found.name,
        capability: format!("{major}.{minor}"),
        memory: found.memory,
        multiprocessors: found.multiprocessors,
    }
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
    if !entries.iter().any(|e| e.engine == "video" && e.name != "nvdec") {
        text.push_str("video  this build has no video codecs; build it with --features video (needs the system's FFmpeg)\n");
    }
    text
}
