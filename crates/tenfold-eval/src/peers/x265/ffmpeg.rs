//! The `ffmpeg` command: raw gray pictures in, H.265 out, and back.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::super::PeerError;
use super::Geometry;

/// x265's ladder of effort; only what the figures need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The default.
    Medium,
    /// Two steps further.
    Slow,
}

impl Preset {
    /// Name on x265's command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Medium => "medium",
            Preset::Slow => "slow",
        }
    }
}

/// How the encoder runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Preset.
    pub preset: Preset,
    /// Bits of a sample: 8, 10 or 12.
    pub depth: u8,
    /// Further x265 parameters, `key=value` joined by colons.
    pub extra: String,
}

impl Settings {
    /// 8-bit samples and no further parameters.
    pub fn new(preset: Preset) -> Self {
        Settings { preset, depth: 8, extra: String::new() }
    }

    /// Intra only, one thread, and nothing that trades squared error for looks: no loop filters,
    /// psycho-visual terms or adaptive quantiser, no padding messages in the stream.
    fn parameters(&self, qp: u32) -> String {
        let mut p = format!(
            "qp={qp}:keyint=1:min-keyint=1:bframes=0:scenecut=0:no-sao=1:no-deblock=1:psy-rd=0:psy-rdoq=0:\
             aq-mode=0:cutree=0:no-strong-intra-smoothing=1:no-info=1:pools=none:frame-threads=1:no-wpp=1:\
             log-level=error"
        );
        if !self.extra.is_empty() {
            p.push(':');
            p.push_str(&self.extra);
        }
        p
    }
}

/// Largest quantiser.
pub(super) const MAX_QP: u32 = 51;

fn pixel_format(depth: u8) -> Result<&'static str, PeerError> {
    match depth {
        8 => Ok("gray"),
        10 => Ok("gray10le"),
        12 => Ok("gray12le"),
        _ => Err(PeerError::Unsupported(format!("samples of {depth} bits"))),
    }
}

/// Whether `ffmpeg` with libx265 is installed; asked once.
pub fn probe() -> Result<(), PeerError> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let out = Command::new("ffmpeg").args(["-hide_banner", "-encoders"]).stdin(Stdio::null()).output();
        out.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("libx265"))
    });
    if *found { Ok(()) } else { Err(PeerError::NotAvailable("install ffmpeg with libx265".to_string())) }
}

/// Codes frames at a quantiser.
pub(super) fn encode(
    samples: &[u16],
    geometry: &Geometry,
    settings: &Settings,
    qp: u32,
) -> Result<Vec<u8>, PeerError> {
    probe()?;
    let format = pixel_format(settings.depth)?;
    let size = format!("{}x{}", geometry.width, geometry.height);
    let mut command = quiet();
    command.args(["-f", "rawvideo", "-pix_fmt", format, "-video_size", &size, "-framerate", "25"]);
    command.args(["-i", "pipe:0", "-c:v", "libx265", "-preset", settings.preset.name(), "-pix_fmt", format]);
    command.args(["-x265-params", &settings.parameters(qp), "-f", "hevc", "pipe:1"]);
    pipe(command, &pack(samples, settings.depth))
}

/// Decodes frames.
pub(super) fn decode(hevc: &[u8], geometry: &Geometry, depth: u8) -> Result<Vec<u16>, PeerError> {
    probe()?;
    let mut command = quiet();
    command.args(["-threads", "1", "-f", "hevc", "-i", "pipe:0", "-f", "rawvideo"]);
    command.args(["-pix_fmt", pixel_format(depth)?, "pipe:1"]);
    let raw = pipe(command, hevc)?;
    let samples = unpack(&raw, depth);
    if samples.len() != geometry.samples() {
        return Err(PeerError::Corrupt(format!(
            "{} samples instead of {}",
            samples.len(),
            geometry.samples()
        )));
    }
    Ok(samples)
}

fn quiet() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostdin", "-loglevel", "error"]);
    command
}

fn pack(samples: &[u16], depth: u8) -> Vec<u8> {
    if depth == 8 {
        samples.iter().map(|&s| s as u8).collect()
    } else {
        samples.iter().flat_map(|s| s.to_le_bytes()).collect()
    }
}

fn unpack(raw: &[u8], depth: u8) -> Vec<u16> {
    if depth == 8 {
        raw.iter().map(|&b| u16::from(b)).collect()
    } else {
        raw.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect()
    }
}

/// Feeds a command and returns what it prints. Writing has its own thread: a full pipe in one
/// direction must not stop the other.
fn pipe(mut command: Command, input: &[u8]) -> Result<Vec<u8>, PeerError> {
    let failed = |e: std::io::Error| PeerError::Failed(format!("ffmpeg: {e}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let mut stdout =
        child.stdout.take().ok_or_else(|| PeerError::Failed("no pipe from ffmpeg".to_string()))?;
    let (mut out, mut log) = (Vec::new(), String::new());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // If ffmpeg stops early the pipe breaks; its exit status tells.
            if let Some(mut pipe) = stdin {
                let _ = pipe.write_all(input);
            }
        });
        let log = &mut log;
        scope.spawn(move || {
            if let Some(mut pipe) = stderr {
                let _ = pipe.read_to_string(log);
            }
        });
        stdout.read_to_end(&mut out)
    })
    .map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(out) } else { Err(PeerError::Failed(format!("ffmpeg: {}", log.trim()))) }
}
