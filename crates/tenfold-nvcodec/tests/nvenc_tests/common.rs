//! A device with a stand-in for its engines, one test at a time.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenfold::Effort;
use tenfold_cuda::Device;
use tenfold_nvcodec_standin::Standin;
use tenfold_video::Standard;
use tenfold_video::codec::{Chroma, Coded, Format, Quality, Settings};

pub const ALL: [Standard; 3] = [Standard::H264, Standard::H265, Standard::Av1];

/// A test's turn. Ends with nothing open and no rule broken.
pub struct Turn {
    standin: &'static Standin,
    _turn: MutexGuard<'static, ()>,
}

pub fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let standin = Standin::load();
    standin.reset();
    Turn { standin, _turn: turn }
}

impl Deref for Turn {
    type Target = Standin;

    fn deref(&self) -> &Standin {
        self.standin
    }
}

impl Turn {
    /// Waits until all that was closed is gone, and looks what is left.
    pub fn check(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        let left = || {
            let c = self.counts();
            [c.sessions, c.registered, c.mapped, c.buffers, c.locked, c.decoders, c.parsers, c.maps]
        };
        while left() != [0; 8] && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(left(), [0; 8], "sessions, registered, mapped, buffers, locked, decoders, parsers, maps");
        assert_eq!(self.violations(), Vec::<String>::new());
    }
}

pub fn device() -> Device {
    Device::emulated(1 << 30)
}

/// Whether this build codes pictures of a standard in software, as the stand-in must.
pub fn runs(standard: Standard) -> bool {
    let encoders = tenfold_video::encoders();
    let encodes =
        encoders.iter().any(|e| e.standard() == standard && e.name() != "nvenc" && e.abilities().is_ok());
    let runs = encodes && software(standard).is_some();
    if !runs {
        println!("skipped: this build has no software codec for {standard}");
    }
    runs
}

/// A standard that runs, if there is one.
pub fn any() -> Option<Standard> {
    [Standard::H265, Standard::H264, Standard::Av1].into_iter().find(|s| runs(*s))
}

pub fn software(standard: Standard) -> Option<&'static dyn tenfold_video::codec::Decoder> {
    let all = tenfold_video::decoders().into_iter();
    all.into_iter().find(|d| {
        let software = ["libav", "dav1d", "aom", "rav1d"].contains(&d.name());
        d.standard() == standard && software && d.probe().is_ok()
    })
}

/// Settings for pictures of 256 × 192.
pub fn settings(standard: Standard, depth: u8) -> Settings {
    let qp = if standard == Standard::Av1 { 80 } else { 20 };
    Settings {
        format: Format { width: 256, height: 192, depth, chroma: Chroma::Constant },
        quality: Quality::Qp(qp),
        effort: Effort::Fast,
        inter: false,
    }
}

/// Noise about the middle.
pub fn picture(format: &Format, seed: u64) -> Vec<u16> {
    let mut rng = StdRng::seed_from_u64(seed);
    let middle = 1u16 << (format.depth - 1);
    let reach = middle / 8;
    (0..format.samples()).map(|_| middle + rng.random_range(0..reach) - rng.random_range(0..reach)).collect()
}

pub fn decode(standard: Standard, format: &Format, coded: &Coded) -> Vec<u16> {
    let units: Vec<&[u8]> = coded.pictures.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; format.samples() * units.len()];
    let decoder = software(standard).expect("a software decoder");
    decoder.decode(format, &coded.parameter_sets, &units, &mut out).unwrap();
    out
}

/// Root mean squared error over the largest sample.
pub fn distance(a: &[u16], b: &[u16], depth: u8) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (squares / a.len() as f64).sqrt() / f64::from(1u32 << depth)
}
