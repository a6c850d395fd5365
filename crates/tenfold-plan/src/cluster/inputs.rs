//! What the cluster model is told, in TOML.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The inputs that come along.
const LLAMA_7B: &str = include_str!("llama-7b.toml");

/// What a cluster does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Steps of training: three passes, gradients exchanged by all data-parallel ranks in a ring.
    Training,
    /// Prefill of prompts: one pass, hidden states handed on along the pipeline.
    Inference,
}

/// All inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The file says what each is, and where it is from.
pub struct Inputs {
    pub model: Model,
    pub workload: WorkInputs,
    pub gpu: Gpu,
    pub nic: Nic,
    pub energy: Energy,
    pub codec: Codec,
    pub video: VideoEngine,
    pub cores: OwnCores,
}

/// A model, and others for comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Model {
    pub name: String,
    pub parameters: f64,
    pub layers: u32,
    pub hidden: f64,
    #[serde(default)]
    pub sizes: Vec<Model>,
}

/// How the work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct WorkInputs {
    pub tokens: f64,
    pub microbatch: f64,
    pub utilisation: f64,
    pub overlap: f64,
    pub wire_bytes: f64,
    pub training_bytes: f64,
    pub inference_bytes: f64,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Gpu {
    pub name: String,
    pub area: f64,
    pub flops: f64,
    pub memory: f64,
    pub power: f64,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Nic {
    pub area: f64,
    pub gbps: f64,
    pub each: Vec<f64>,
}

/// Energy of the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Energy {
    pub nccl: f64,
}

/// A codec with a die of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Codec {
    pub name: String,
    pub area: f64,
    pub gbps: f64,
    pub pj_encode: f64,
    pub pj_decode: f64,
    pub ratio: f64,
    pub each: Vec<f64>,
}

/// The video engines that a GPU has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct VideoEngine {
    pub name: String,
    pub encode_rate: f64,
    pub decode_rate: f64,
    pub pj_encode: f64,
    pub pj_decode: f64,
    pub ratio: f64,
}

/// A codec that runs on the GPU's own cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct OwnCores {
    pub name: String,
    pub encode_rate: f64,
    pub decode_rate: f64,
    pub share: f64,
    pub ratio: f64,
    /// Measured; the GPU's power over its rate if it was not.
    #[serde(default)]
    pub pj_encode: Option<f64>,
    #[serde(default)]
    pub pj_decode: Option<f64>,
}

impl OwnCores {
    /// pJ a bit of encoding and of decoding: as measured, or what the whole board takes meanwhile, which is an upper bound.
    pub fn energy(&self, gpu: &Gpu) -> (f64, f64) {
        let board = |rate: f64| gpu.power / (rate * self.share * 8.0) * 1e12;
        (
            self.pj_encode.unwrap_or_else(|| board(self.encode_rate)),
            self.pj_decode.unwrap_or_else(|| board(self.decode_rate)),
        )
    }
}

impl Inputs {
    /// The inputs that come along: LLaMA 7B on GPUs like an RTX 3090.
    pub fn llama_7b() -> Result<Inputs> {
        Inputs::parse(LLAMA_7B)
    }

    /// Their text, with sources.
    pub fn text() -> &'static str {
        LLAMA_7B
    }

    /// Reads inputs.
    pub fn parse(text: &str) -> Result<Inputs> {
        let inputs: Inputs =
            toml::from_str(text).map_err(|e| Error::Inputs(format!("inputs of the cluster: {e}")))?;
        inputs.validate()?;
        Ok(inputs)
    }

    /// Refuses numbers that no cluster has.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("model.parameters", self.model.parameters),
            ("model.hidden", self.model.hidden),
            ("workload.tokens", self.workload.tokens),
            ("workload.microbatch", self.workload.microbatch),
            ("workload.utilisation", self.workload.utilisation),
            ("workload.wire_bytes", self.workload.wire_bytes),
            ("workload.training_bytes", self.workload.training_bytes),
            ("workload.inference_bytes", self.workload.inference_bytes),
            ("gpu.area", self.gpu.area),
            ("gpu.flops", self.gpu.flops),
            ("gpu.memory", self.gpu.memory),
            ("gpu.power", self.gpu.power),
            ("nic.area", self.nic.area),
            ("nic.gbps", self.nic.gbps),
            ("energy.nccl", self.energy.nccl),
            ("codec.area", self.codec.area),
            ("codec.gbps", self.codec.gbps),
            ("codec.ratio", self.codec.ratio),
            ("video.encode_rate", self.video.encode_rate),
            ("video.decode_rate", self.video.decode_rate),
            ("video.ratio", self.video.ratio),
            ("cores.encode_rate", self.cores.encode_rate),
            ("cores.decode_rate", self.cores.decode_rate),
            ("cores.share", self.cores.share),
            ("cores.ratio", self.cores.ratio),
        ];
        let sizes =
            self.model.sizes.iter().flat_map(|s| [("model.sizes", s.parameters), ("model.sizes", s.hidden)]);
        let each = self.nic.each.iter().map(|&n| ("nic.each", n));
        let codecs = self.codec.each.iter().map(|&n| ("codec.each", n));
        for (name, value) in positive.into_iter().chain(sizes).chain(each).chain(codecs) {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::Inputs(format!(
                    "inputs of the cluster: {name} must be positive, not {value}"
                )));
            }
        }
        if !(0.0..=1.0).contains(&self.workload.overlap) || self.workload.utilisation > 1.0 {
            return Err(Error::Inputs(
                "inputs of the cluster: overlap and utilisation are shares, at most 1".into(),
            ));
        }
        let layers = [self.model.layers].into_iter().chain(self.model.sizes.iter().map(|s| s.layers));
        if layers.into_iter().any(|n| n == 0 || n > 1000)
            || self.nic.each.len() > 32
            || self.codec.each.len() > 32
        {
            return Err(Error::Inputs(
                "inputs of the cluster: 1 to 1000 layers, and at most 32 numbers of cards and of codecs"
                    .into(),
            ));
        }
        Ok(())
    }
}
