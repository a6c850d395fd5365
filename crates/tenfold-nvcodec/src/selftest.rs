//! Tests the video engines of a card: made-up pictures through NVENC and NVDEC, and through this build's software codecs, which
//! must agree.
//!
//! No machine that tenfold was developed on has an encoding engine; this is how a user finds out about theirs.

use std::time::Instant;

use tenfold::Effort;
use tenfold_cuda::Device;
use tenfold_video::codec::{Chroma, Coded, Format, Quality, Settings};
use tenfold_video::{Standard, decoders, encoders};

use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::nvenc::Encoder;

/// What is tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// Samples of a side. 1024.
    pub side: usize,
    /// Pictures. 16.
    pub pictures: usize,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload { side: 1024, pictures: 16 }
    }
}

impl Workload {
    /// Other pictures than those of the default.
    pub fn new(side: usize, pictures: usize) -> Workload {
        Workload { side, pictures }
    }
}

/// How a test went.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// As it should.
    Passed {
        /// Time of all pictures.
        milliseconds: f64,
        /// What was found beside.
        note: String,
    },
    /// There is nothing to test here, and why.
    Skipped(String),
    /// Not as it should.
    Failed(String),
}

/// One test.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The codec: H.264, H.265, AV1.
    pub codec: String,
    /// What was tested of it.
    pub test: String,
    /// How it went.
    pub outcome: Outcome,
}

/// One way to encode.
struct Mode {
    standard: Standard,
    depth: u8,
    lossless: bool,
}

const MODES: [Mode; 7] = [
    Mode { standard: Standard::H264, depth: 8, lossless: false },
    Mode { standard: Standard::H264, depth: 8, lossless: true },
    Mode { standard: Standard::H265, depth: 8, lossless: false },
    Mode { standard: Standard::H265, depth: 10, lossless: false },
    Mode { standard: Standard::H265, depth: 8, lossless: true },
    Mode { standard: Standard::Av1, depth: 8, lossless: false },
    Mode { standard: Standard::Av1, depth: 10, lossless: false },
];

/// Tests all that a device has.
pub fn run(device: &Device, workload: Workload) -> Vec<Line> {
    let (encoder, decoder) = (Encoder::new(device), Decoder::new(device));
    let mut lines = Vec::new();
    for mode in &MODES {
        let test = Test { mode, workload, lines: &mut lines };
        test.run(encoder.as_ref(), decoder.as_ref());
    }
    lines
}

/// Whether nothing failed, and something was tested.
pub fn passed(lines: &[Line]) -> bool {
    !lines.iter().any(|l| matches!(l.outcome, Outcome::Failed(_)))
        && lines.iter().any(|l| matches!(l.outcome, Outcome::Passed { .. }))
}

struct Test<'a> {
    mode: &'a Mode,
    workload: Workload,
    lines: &'a mut Vec<Line>,
}

impl Test<'_> {
    fn run(mut self, encoder: Result<&Encoder, &Error>, decoder: Result<&Decoder, &Error>) {
        let pictures = self.make_pictures();
        let pictures: Vec<&[u16]> = pictures.iter().map(Vec::as_slice).collect();
        // 1. Streams of the encoding engine, or where it has none those of software.
        let coded = match self.encode(encoder, &pictures) {
            Some(coded) => coded,
            None => match self.encode_in_software(&pictures) {
                Some(coded) => coded,
                None => return,
            },
        };
        // 2. What software makes of them.
        let expected = self.decode_in_software(&coded, &pictures);
        // 3. What the decoding engine makes of them.
        self.decode(decoder, &coded, expected.as_deref(), &pictures);
    }

    fn settings(&self) -> Settings {
        let format = Format {
            width: self.workload.side,
            height: self.workload.side,
            depth: self.mode.depth,
            chroma: Chroma::Constant,
        };
        let qp = if self.mode.standard == Standard::Av1 { 100 } else { 24 };
        let quality = if self.mode.lossless { Quality::Lossless } else { Quality::Qp(qp) };
        Settings { format, quality, effort: Effort::Fast, inter: false }
    }

    fn push(&mut self, test: &str, outcome: Outcome) {
        let kept = if self.mode.lossless { ", lossless" } else { "" };
        let test = format!("{test}, {} bits{kept}", self.mode.depth);
        self.lines.push(Line { codec: self.mode.standard.to_string(), test, outcome });
    }

    /// Smooth waves and noise, as rotated weights look.
    fn make_pictures(&self) -> Vec<Vec<u16>> {
        let (side, depth) = (self.workload.side, u32::from(self.mode.depth));
        let mut state = 0x9e37_79b9_u32;
        let mut noise = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i64::from(state >> 27)
        };
        let (middle, unit) = (1 << (depth - 1), 1 << (depth - 8));
        let mut picture = |number: usize| {
            let mut samples = Vec::with_capacity(side * side);
            for y in 0..side {
                for x in 0..side {
                    let wave = ((x + 3 * number) as f64 / 19.0).sin() * (y as f64 / 23.0).cos();
                    let value = (wave * f64::from(middle) * 0.5) as i64 + unit * (noise() - 16);
                    samples.push((i64::from(middle) + value).clamp(0, i64::from(2 * middle) - 1) as u16);
                }
            }
            samples
        };
        (0..self.workload.pictures).map(&mut picture).collect()
    }

    fn encode(&mut self, encoder: Result<&Encoder, &Error>, pictures: &[&[u16]]) -> Option<Coded> {
        const NAME: &str = "NVENC";
        let can = match encoder.map_err(Error::clone).and_then(|e| e.can(self.mode.standard).map(|c| (e, c)))
        {
            Ok((encoder, can)) => (encoder, can),
            Err(why) => {
                self.push(NAME, Outcome::Skipped(why.to_string()));
                return None;
            }
        };
        let (encoder, can) = can;
        if (self.mode.lossless && !can.lossless) || (self.mode.depth > 8 && !can.ten_bits) {
            self.push(NAME, Outcome::Skipped("this engine does not have it".into()));
            return None;
        }
        let settings = self.settings();
        // The first call opens sessions, which is no part of the time.
        let made = encoder.encode(self.mode.standard, &settings, &pictures[..1]).and_then(|_| {
            let start = Instant::now();
            let coded = encoder.encode(self.mode.standard, &settings, pictures)?;
            Ok((coded, start.elapsed()))
        });
        match made {
            Ok((coded, time)) => {
                let bytes: usize = coded.pictures.iter().map(Vec::len).sum();
                let samples = settings.format.samples() * pictures.len();
                let note = format!("{:.2} bits a sample", bytes as f64 * 8.0 / samples as f64);
                self.push(NAME, Outcome::Passed { milliseconds: time.as_secs_f64() * 1e3, note });
                Some(coded)
            }
            Err(why) => {
                self.push(NAME, Outcome::Failed(why.to_string()));
                None
            }
        }
    }

    /// Streams for the decoding engine alone.
    fn encode_in_software(&mut self, pictures: &[&[u16]]) -> Option<Coded> {
        let settings = self.settings();
        let fits = |e: &&dyn tenfold_video::codec::Encoder| {
            let abilities = || e.abilities().is_ok_and(|a| a.lossless || !self.mode.lossless);
            e.standard() == self.mode.standard && e.name() != "nvenc" && abilities()
        };
        let found = encoders().into_iter().find(fits)?;
        found.encode(&settings, pictures).ok()
    }

    /// Samples as software decodes them. Held against the pictures that went in.
    fn decode_in_software(&mut self, coded: &Coded, pictures: &[&[u16]]) -> Option<Vec<u16>> {
        const NAME: &str = "software decoder";
        let standard = self.mode.standard;
        let all = decoders().into_iter();
        let found =
            all.into_iter().find(|d| d.standard() == standard && d.name() != "nvdec" && d.probe().is_ok());
        let Some(decoder) = found else {
            self.push(NAME, Outcome::Skipped("this build has none; see docs/video.md".into()));
            return None;
        };
        let format = self.settings().format;
        let mut out = vec![0; format.samples() * pictures.len()];
        let units: Vec<&[u8]> = coded.pictures.iter().map(Vec::as_slice).collect();
        let start = Instant::now();
        let answer = decoder.decode(&format, &coded.parameter_sets, &units, &mut out);
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let outcome = match answer {
            Err(why) => Outcome::Failed(why.to_string()),
            Ok(()) => self.judge(&out, pictures, milliseconds),
        };
        let good = matches!(outcome, Outcome::Passed { .. });
        self.push(&format!("{NAME} {}", decoder.name()), outcome);
        good.then_some(out)
    }

    fn decode(
        &mut self,
        decoder: Result<&Decoder, &Error>,
        coded: &Coded,
        expected: Option<&[u16]>,
        pictures: &[&[u16]],
    ) {
        const NAME: &str = "NVDEC";
        let decoder = match decoder {
            Ok(decoder) => decoder,
            Err(why) => return self.push(NAME, Outcome::Skipped(why.to_string())),
        };
        let format = self.settings().format;
        let mut out = vec![0; format.samples() * pictures.len()];
        let units: Vec<&[u8]> = coded.pictures.iter().map(Vec::as_slice).collect();
        let standard = self.mode.standard;
        let go = |n: usize, out: &mut [u16]| {
            let start = Instant::now();
            decoder.decode_samples(standard, &format, &coded.parameter_sets, &units[..n], out)?;
            Ok::<f64, Error>(start.elapsed().as_secs_f64() * 1e3)
        };
        // The first call opens decoders, which is no part of the time.
        let answer = go(1, &mut out[..format.samples()]).and_then(|_| go(units.len(), &mut out));
        let outcome = match answer {
            // A profile that engines do not read, such as lossless H.264, is no fault of theirs.
            Err(Error::Unsupported(why)) => Outcome::Skipped(why),
            Err(_) if standard == Standard::H264 && self.mode.lossless => {
                Outcome::Skipped("engines do not read lossless H.264".into())
            }
            Err(why) => Outcome::Failed(why.to_string()),
            Ok(_) if expected.is_some_and(|e| e != out) => {
                Outcome::Failed("its samples are not software's".into())
            }
            Ok(milliseconds) => self.judge(&out, pictures, milliseconds),
        };
        self.push(NAME, outcome);
    }

    /// Whether decoded samples are near those that were encoded, or the same where they must be.
    fn judge(&self, out: &[u16], pictures: &[&[u16]], milliseconds: f64) -> Outcome {
        let pairs = || pictures.iter().flat_map(|p| p.iter()).zip(out);
        if self.mode.lossless {
            return match pairs().all(|(a, b)| a == b) {
                true => Outcome::Passed { milliseconds, note: "every sample the same".into() },
                false => Outcome::Failed("lossless samples changed".into()),
            };
        }
        let squares = pairs().map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>();
        // In units of 8-bit samples.
        let unit = f64::from(1 << (self.mode.depth - 8));
        let error = (squares / out.len().max(1) as f64).sqrt() / unit;
        // The noise alone has a deviation of about 9; a wrong picture is ten times that away.
        match error < 9.0 {
            true => Outcome::Passed { milliseconds, note: format!("root mean squared error {error:.2}") },
            false => {
                Outcome::Failed(format!("root mean squared error {error:.2}: not the pictures that went in"))
            }
        }
    }
}
