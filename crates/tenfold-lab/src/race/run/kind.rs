//! What a tensor is in its model; guessed from names, because files do not say.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a tensor is in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TensorKind {
    /// Parameters.
    Weights,
    /// Keys and values of attention.
    Kv,
    /// What flows between layers.
    Activations,
    /// What flows back.
    Gradients,
    /// None of these, or unknown.
    Other,
}

impl TensorKind {
    /// Every kind, in the order of tables.
    pub const ALL: [TensorKind; 5] = [
        TensorKind::Weights,
        TensorKind::Kv,
        TensorKind::Activations,
        TensorKind::Gradients,
        TensorKind::Other,
    ];

    /// Name on a command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            TensorKind::Weights => "weights",
            TensorKind::Kv => "kv",
            TensorKind::Activations => "activations",
            TensorKind::Gradients => "gradients",
            TensorKind::Other => "other",
        }
    }

    /// A guess. A gradient is also called `….weight.grad` and a key may come from `k_proj.weight`, so what
    /// is special is asked for first, in the tensor's name and in the file's, and weights last.
    pub fn guess(file: &str, tensor: &str) -> Self {
        let (file, tensor) = (file.to_lowercase(), tensor.to_lowercase());
        let special = |name: &str| {
            let word = |w: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == w);
            if name.contains("grad") {
                Some(TensorKind::Gradients)
            } else if word("kv") || name.contains("kvcache") || name.contains("past_key") || word("cache") {
                Some(TensorKind::Kv)
            } else if name.contains("activation") || name.contains("hidden_state") || word("acts") {
                Some(TensorKind::Activations)
            } else {
                None
            }
        };
        let parameter = ["weight", "embed", "proj", "model"];
        let plain = || {
            let found = parameter.iter().any(|w| tensor.contains(w) || file.contains(w));
            if found { TensorKind::Weights } else { TensorKind::Other }
        };
        special(&tensor).or_else(|| special(&file)).unwrap_or_else(plain)
    }
}

impl fmt::Display for TensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses() {
        for (file, tensor, kind) in [
            ("weights", "encoder.layer.1.output.dense.weight", TensorKind::Weights),
            ("model", "layers.0.k_proj.weight", TensorKind::Weights),
            ("model-00001-of-2", "lm_head", TensorKind::Weights),
            ("gradients", "step20.h.weight.grad", TensorKind::Gradients),
            ("model", "step20.h.weight.grad", TensorKind::Gradients),
            ("kv", "layers.8.k[0:256]", TensorKind::Kv),
            ("kv_smollm2_bf16", "layers.2.v", TensorKind::Kv),
            ("dump", "past_key_values.3", TensorKind::Kv),
            ("activations", "layers.2.hidden[0:256]", TensorKind::Activations),
            ("x", "y", TensorKind::Other),
        ] {
            assert_eq!(TensorKind::guess(file, tensor), kind, "{file} {tensor}");
        }
    }
}
