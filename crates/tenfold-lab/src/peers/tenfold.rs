//! Our own codec as a peer among others.

use tenfold::{DecodeOptions, Effort, EncodeOptions, Goal, Tensor, TensorView};

use super::{Abilities, Fidelity, Peer, PeerError, Rate};

/// Ours, at any effort and goal.
#[derive(Debug, Clone)]
pub struct Tenfold {
    /// Goal, effort and threads.
    pub options: EncodeOptions,
}

impl Tenfold {
    /// Ours for a goal at an effort, with all cores.
    pub fn new(goal: Goal, effort: Effort) -> Self {
        Tenfold { options: EncodeOptions::new(goal).with_effort(effort) }
    }
}

impl Peer for Tenfold {
    fn name(&self) -> String {
        match self.options.goal {
            Goal::Lossless => "tenfold lossless".to_string(),
            _ => format!("tenfold {}", self.options.effort.name()),
        }
    }

    fn abilities(&self) -> Abilities {
        let (fidelity, rate) = match self.options.goal {
            Goal::Lossless => (Fidelity::Lossless, Rate::Free),
            _ => (Fidelity::Lossy, Rate::Any),
        };
        Abilities { fidelity, rate, timed: true }
    }

    fn on_threads(&self, threads: usize) -> Option<Box<dyn Peer>> {
        Some(Box::new(Tenfold { options: self.options.clone().with_threads(threads) }))
    }

    fn at_bits(&self, bits: f64) -> Option<Box<dyn Peer>> {
        let mut options = self.options.clone();
        options.goal = Goal::Bits(bits);
        Some(Box::new(Tenfold { options }))
    }

    fn encode(&self, view: &TensorView<'_>) -> Result<Vec<u8>, PeerError> {
        Ok(tenfold::encode(view, &self.options)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Tensor, PeerError> {
        let options = DecodeOptions::default().with_threads(self.options.threads);
        Ok(tenfold::decode(bytes, &options)?)
    }
}
