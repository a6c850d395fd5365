//! The video engines of each GPU: what they decode and encode, how many there are, how many may use them.

use serde::Serialize;
use tenfold_cuda::Device;
use tenfold_nvcodec::nvenc::{self, Encodes, Sessions};
use tenfold_nvcodec::{Decodes, Error};

use super::Entry;

/// A kind of pictures that video engines decode, in JSON.
#[derive(Serialize)]
pub(super) struct Pictures {
    codec: &'static str,
    chroma: &'static str,
    depth: u8,
    engines: u32,
    min_width: u32,
    min_height: u32,
    max_width: u32,
    max_height: u32,
    max_blocks: u32,
    /// Whether tenfold has blobs of such pictures.
    used: bool,
}

/// The engines that encode a standard, in JSON.
#[derive(Serialize)]
pub(super) struct Encoders {
    engines: u32,
    min_width: u32,
    min_height: u32,
    max_width: u32,
    max_height: u32,
    depths: Vec<u8>,
    monochrome: bool,
    lossless: bool,
    /// Sessions that could be opened now, and whether the driver refused another.
    sessions: u32,
    sessions_limited: bool,
}

/// The engines that decode JPEG, in JSON.
#[derive(Serialize)]
pub(super) struct Jpeg {
    engines: u32,
    cores: u32,
}

/// Sessions that are opened to find the driver's limit.
const MOST_SESSIONS: u32 = 16;

/// Entries for the engines of each device, or entries that say why there are none.
pub(super) fn entries() -> Vec<Entry> {
    let count = Device::count().unwrap_or(0);
    if count == 0 {
        let why = || Err("not available: no CUDA device".to_string());
        return vec![
            Entry::new("nvdec", "nvdec", "decoder", None, why()),
            Entry::new("nvenc", "nvenc", "encoder", None, why()),
            Entry::new("nvjpeg", "nvjpeg", "decoder", Some("JPEG".into()), why()),
        ];
    }
    (0..count).flat_map(of_device).collect()
}

fn of_device(number: u32) -> Vec<Entry> {
    let device = Device::open(number).map_err(Error::from);
    let mut all = decoders(number, device.as_ref().map_err(Error::clone).and_then(tenfold_nvcodec::decodes));
    let encodes = device.as_ref().map_err(Error::clone).and_then(|device| {
        let encodes = nvenc::encodes(device)?;
        Ok((encodes, nvenc::sessions(device, MOST_SESSIONS)?))
    });
    all.extend(encoders(number, encodes));
    let jpeg = device.as_ref().map_err(Error::clone).and_then(tenfold_nvcodec::jpeg_engines);
    let detail = match &jpeg {
        Ok(found) => Ok(format!("device {number}: {}", count_engines(found.engines))),
        Err(error) => Err(format!("device {number}: {}", reason(error))),
    };
    let jpeg = jpeg.ok().map(|found| Jpeg { engines: found.engines, cores: found.cores });
    all.push(Entry { jpeg, ..Entry::new("nvjpeg", "nvjpeg", "decoder", Some("JPEG".into()), detail) });
    all
}

/// Why there is none; what is not there by its own word says so already.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    if text.starts_with("not available") { text } else { format!("not available: {text}") }
}

fn count_engines(count: u32) -> String {
    match count {
        1 => "1 engine".into(),
        count => format!("{count} engines"),
    }
}

/// An entry for each codec.
fn decoders(number: u32, found: Result<Vec<Decodes>, Error>) -> Vec<Entry> {
    let entry = |standard, detail| Entry::new("nvdec", "nvdec", "decoder", standard, detail);
    match found {
        Err(error) => vec![entry(None, Err(format!("device {number}: {}", reason(&error))))],
        Ok(kinds) if kinds.is_empty() => {
            vec![entry(None, Err(format!("device {number}: not available: it has no video decoder")))]
        }
        Ok(kinds) => kinds
            .chunk_by(|a, b| a.codec == b.codec)
            .map(|kinds| {
                let detail = Ok(format!("device {number}: {}", about_pictures(kinds)));
                let decodes = Some(kinds.iter().map(pictures).collect());
                Entry { decodes, ..entry(Some(kinds[0].codec.to_string()), detail) }
            })
            .collect(),
    }
}

/// One line for all kinds of pictures of a codec.
fn about_pictures(kinds: &[Decodes]) -> String {
    let first = &kinds[0];
    let layouts: Vec<String> = kinds
        .chunk_by(|a, b| a.chroma == b.chroma)
        .map(|same| {
            let depths: Vec<String> = same.iter().map(|k| k.depth.to_string()).collect();
            format!("{} in {} bits", same[0].chroma, depths.join("/"))
        })
        .collect();
    format!("{}, {}, {}", count_engines(first.engines), layouts.join(", "), sides(first.min, first.max))
}

fn sides(min: (u32, u32), max: (u32, u32)) -> String {
    format!("{}×{} to {}×{}", min.0, min.1, max.0, max.1)
}

fn pictures(kind: &Decodes) -> Pictures {
    Pictures {
        codec: kind.codec,
        chroma: kind.chroma,
        depth: kind.depth,
        engines: kind.engines,
        min_width: kind.min.0,
        min_height: kind.min.1,
        max_width: kind.max.0,
        max_height: kind.max.1,
        max_blocks: kind.max_blocks,
        used: kind.used,
    }
}

/// An entry for each standard.
fn encoders(number: u32, found: Result<(Vec<Encodes>, Sessions), Error>) -> Vec<Entry> {
    let entry = |standard, detail| Entry::new("nvenc", "nvenc", "encoder", standard, detail);
    match found {
        Err(error) => vec![entry(None, Err(format!("device {number}: {}", reason(&error))))],
        Ok((all, sessions)) => all
            .iter()
            .map(|found| {
                let detail = Ok(format!("device {number}: {}", about_encoder(found, sessions)));
                Entry {
                    encodes: Some(json(found, sessions)),
                    ..entry(Some(found.standard.to_string()), detail)
                }
            })
            .collect(),
    }
}

fn about_encoder(found: &Encodes, sessions: Sessions) -> String {
    let gray = if found.monochrome { "4:0:0, 4:2:0" } else { "4:2:0" };
    let depths = if found.ten_bits { "8/10" } else { "8" };
    let exact = if found.lossless { ", lossless" } else { "" };
    let free = match sessions {
        Sessions { free, limited: true, .. } => format!("{free} sessions at a time are free"),
        Sessions { free, .. } => format!("{free} sessions at a time or more"),
    };
    let (engines, sides) = (count_engines(found.engines), sides(found.min, found.max));
    format!("{engines}, {gray} in {depths} bits{exact}, {sides}, {free}")
}

fn json(found: &Encodes, sessions: Sessions) -> Encoders {
    Encoders {
        engines: found.engines,
        min_width: found.min.0,
        min_height: found.min.1,
        max_width: found.max.0,
        max_height: found.max.1,
        depths: if found.ten_bits { vec![8, 10] } else { vec![8] },
        monochrome: found.monochrome,
        lossless: found.lossless,
        sessions: sessions.free,
        sessions_limited: sessions.limited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_engines_says_why() {
        for entries in [
            decoders(1, Err(Error::NoEngine("X has none".into()))),
            encoders(1, Err(Error::NoEngine("X has none".into()))),
        ] {
            assert_eq!(entries.len(), 1);
            assert!(!entries[0].available);
            assert_eq!(entries[0].detail, "device 1: not available: X has none");
        }
        let silent = Error::Timeout { what: "no encoding session was free", seconds: 10 };
        assert!(reason(&silent).starts_with("not available: no encoding session"));
        assert!(!decoders(0, Ok(Vec::new()))[0].available);
    }
}
