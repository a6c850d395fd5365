//! What to measure, free of any command-line library.

use std::path::PathBuf;

use tenfold::Effort;
use tenfold_archive::SharedEngine;

/// The benches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Gap to the Gaussian bound.
    Gap,
    /// Real tensors beside peers.
    Files,
    /// Obedience of goals.
    Rate,
    /// Lossless ratio and speed.
    Lossless,
    /// Encoding and decoding speed beside peers.
    Speed,
    /// Caps of key-value pages.
    Pages,
    /// Speed of a CUDA device beside plain copies on it.
    Cuda,
}

impl What {
    /// Name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            What::Gap => "gap",
            What::Files => "files",
            What::Rate => "rate",
            What::Lossless => "lossless",
            What::Speed => "speed",
            What::Pages => "pages",
            What::Cuda => "cuda",
        }
    }
}

/// Parts of the bench of a CUDA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaPart {
    /// Blobs to tensors, made up and real.
    Decode,
    /// Tensors to blobs.
    Encode,
    /// Pages of a cache behind a basis, both ways.
    Pages,
    /// Blobs that lie on the host.
    Host,
}

/// What to measure and how long. Start from [`BenchArgs::new`]; every field has a working default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BenchArgs {
    /// Which bench.
    pub what: What,
    /// Safetensors files (`files`: at least one; `pages`, `cuda`: any number).
    pub files: Vec<PathBuf>,
    /// Rates in bits a value. Default: empty, that is the rates of the bench's own figures.
    pub bits: Vec<f64>,
    /// Efforts. Default: all three.
    pub efforts: Vec<Effort>,
    /// Sizes of made-up tensors; all but `cuda` take the first alone. `gap`, `speed`: side of the square, default
    /// 4096. `lossless`: values, default 64 Mi. `rate`: values of the largest tensors, default 4 Mi. `pages`: how many,
    /// default 100,000. `cuda`: values,
    /// default 512 Mi, 64 Mi and 16 Mi.
    pub sizes: Vec<usize>,
    /// Threads for what is not measured at a stated number of threads; 0 (the default) means all cores.
    pub threads: usize,
    /// What encodes and decodes (`gap`, `files`, `rate`). Default: the CPU.
    pub engine: SharedEngine,
    /// Number of the CUDA device (`cuda`). Default: 0.
    pub device: u32,
    /// Parts to measure (`cuda`). Default: all.
    pub parts: Vec<CudaPart>,
    /// NVIDIA's nvCOMP, version 6 (`libnvcomp.so.6`), to be measured too (`cuda`). Default: none.
    pub nvcomp: Option<PathBuf>,
    /// Repetitions of which the median counts. Default: 5, for `cuda` 25.
    pub repeats: usize,
    /// Whether to run the video codecs. Default: true.
    pub peers: bool,
    /// Smaller tensors and fewer cases, for a look or a test. Default: false. Verdicts then mean little.
    pub quick: bool,
    /// No progress bars. Default: false.
    pub quiet: bool,
    /// Where to write the report. Default: nowhere.
    pub json: Option<PathBuf>,
    /// The command line as the user typed it, kept in the report. Default: this process's own.
    pub command: String,
}

impl BenchArgs {
    /// Arguments of a bench, everything at its default.
    pub fn new(what: What) -> Self {
        BenchArgs {
            what,
            files: Vec::new(),
            bits: Vec::new(),
            efforts: vec![Effort::Fast, Effort::Balanced, Effort::Best],
            sizes: Vec::new(),
            threads: 0,
            engine: SharedEngine::default(),
            device: 0,
            parts: vec![CudaPart::Decode, CudaPart::Encode, CudaPart::Pages, CudaPart::Host],
            nvcomp: None,
            repeats: if what == What::Cuda { 25 } else { 5 },
            peers: true,
            quick: false,
            quiet: false,
            json: None,
            command: default_command(),
        }
    }

    /// The first stated size, or a bench's own.
    pub(super) fn size_or(&self, own: usize) -> usize {
        self.sizes.first().copied().unwrap_or(own)
    }

    /// The stated rates, or a bench's own.
    pub(super) fn bits_or(&self, own: &[f64]) -> Vec<f64> {
        if self.bits.is_empty() { own.to_vec() } else { self.bits.clone() }
    }
}

/// The process's arguments, the program by its bare name: where it was installed is nobody's concern.
pub(crate) fn default_command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit(['/', '\\']).next().unwrap_or_default().to_string();
    }
    words.join(" ")
}
