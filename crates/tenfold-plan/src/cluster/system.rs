//! One configuration: what a step takes.
//!
//! A data-parallel rank is a pipeline of `stages` GPUs. The slowest stage has ⌈layers / stages⌉ of the layers. It works
//! through the rank's tokens in m microbatches, and the pipeline fills and drains: (1 + (stages − 1) / m) times its time.
//! Training counts 6 FLOP a parameter and token and sends gradients around a ring, 2 (ranks − 1) / ranks of the stage's
//! share of them, and hidden states forth and their gradients back. Inference counts 2 FLOP and sends hidden states forth.
//! `overlap` of the shorter of computing and communicating hides behind the longer.

use serde::Serialize;

use super::energy::Bit;
use super::inputs::{Inputs, Work};
use super::study::Scenario;

/// One choice of all that is free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Configuration {
    /// Data-parallel ranks.
    pub ranks: u32,
    /// Stages of the pipeline.
    pub stages: u32,
    /// Network cards.
    pub nics: f64,
    /// Codecs with dies of their own.
    pub codecs: f64,
}

impl Configuration {
    /// GPUs.
    pub fn gpus(&self) -> f64 {
        f64::from(self.ranks) * f64::from(self.stages)
    }

    /// Area of all dies, in mm².
    pub fn area(&self, inputs: &Inputs) -> f64 {
        self.gpus() * inputs.gpu.area + self.nics * inputs.nic.area + self.codecs * inputs.codec.area
    }
}

/// What a configuration does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Seconds of a step.
    pub seconds: f64,
    /// Of these, seconds that a GPU computes.
    pub computing: f64,
    /// Seconds that its share of cards and codecs takes for what it sends.
    pub communicating: f64,
    /// Joules of a step in GPUs that compute.
    pub joules_computing: f64,
    /// Joules of a step in the network and in codecs.
    pub joules_communicating: f64,
}

impl Outcome {
    /// Tokens a joule.
    pub fn efficiency(&self) -> f64 {
        self.tokens_per_second * self.seconds / (self.joules_computing + self.joules_communicating)
    }

    /// Share of the energy that goes into communication.
    pub fn share(&self) -> f64 {
        self.joules_communicating / (self.joules_computing + self.joules_communicating)
    }

    /// Watts, averaged over a step.
    pub fn power(&self) -> f64 {
        (self.joules_computing + self.joules_communicating) / self.seconds
    }
}

/// What a configuration does in a scenario; nothing if the model does not fit into its memory.
pub fn outcome(inputs: &Inputs, work: Work, scenario: Scenario, of: &Configuration) -> Option<Outcome> {
    let (model, load, gpu) = (&inputs.model, &inputs.workload, &inputs.gpu);
    let (ranks, stages) = (f64::from(of.ranks), f64::from(of.stages));
    let share = f64::from(model.layers.div_ceil(of.stages)) / f64::from(model.layers);
    let (flop, memory) = match work {
        Work::Training => (6.0, load.training_bytes),
        Work::Inference => (2.0, load.inference_bytes),
    };
    if memory * model.parameters * share > gpu.memory {
        return None;
    }
    let parts = (load.tokens / load.microbatch).max(1.0);
    let flops = flop * model.parameters * load.tokens;
    let busy = flops * share / (gpu.flops * load.utilisation);
    let bubble = 1.0 + (stages - 1.0) / parts;

    // Bytes that one GPU sends in a step; all but the last stage hand hidden states on, all but the first their gradients back.
    let hidden = if of.stages > 1 { load.tokens * model.hidden * load.wire_bytes } else { 0.0 };
    let sent = match work {
        Work::Training => {
            2.0 * (ranks - 1.0) / ranks * model.parameters * share * load.wire_bytes + 2.0 * hidden
        }
        Work::Inference => hidden,
    };
    // The same of the whole cluster: shares add up to one, and there are as many hops as stages, less one.
    let hops = load.tokens * model.hidden * load.wire_bytes * (stages - 1.0);
    let all = ranks
        * match work {
            Work::Training => 2.0 * (ranks - 1.0) / ranks * model.parameters * load.wire_bytes + 2.0 * hops,
            Work::Inference => hops,
        };
    let line = of.nics / of.gpus() * inputs.nic.gbps * 1e9 / 8.0;
    let nccl = inputs.energy.nccl;
    let (communicating, on_cores, bit) = match scenario {
        Scenario::Raw => (sent / line, 0.0, Bit::raw(nccl)),
        Scenario::Video => {
            let video = &inputs.video;
            let engine = video.encode_rate.min(video.decode_rate);
            let bit = Bit::coded(nccl, video.ratio, video.pj_encode, video.pj_decode);
            ((sent / video.ratio / line).max(sent / engine), 0.0, bit)
        }
        Scenario::Codec => {
            let codec = &inputs.codec;
            let engine = of.codecs / of.gpus() * codec.gbps * 1e9 / 8.0;
            let bit = Bit::coded(nccl, codec.ratio, codec.pj_encode, codec.pj_decode);
            ((sent / codec.ratio / line).max(sent / engine), 0.0, bit)
        }
        Scenario::Cores => {
            let cores = &inputs.cores;
            let (encode, decode) = cores.energy(gpu);
            let bit = Bit::coded(nccl, cores.ratio, encode, decode);
            let rate = |rate: f64| sent / (rate * cores.share);
            // What the GPU codes it cannot compute meanwhile.
            (sent / cores.ratio / line, rate(cores.encode_rate) + rate(cores.decode_rate), bit)
        }
    };
    let computing = busy * bubble + on_cores;
    let seconds = computing.max(communicating) + (1.0 - load.overlap) * computing.min(communicating);
    Some(Outcome {
        tokens_per_second: load.tokens * ranks / seconds,
        seconds,
        computing,
        communicating,
        // A GPU that waits, or sends, is not counted: the network's energy is that of whole boards.
        joules_computing: ranks * flops / (gpu.flops * load.utilisation) * gpu.power,
        joules_communicating: all * 8.0 * bit.total() * 1e-12,
    })
}
