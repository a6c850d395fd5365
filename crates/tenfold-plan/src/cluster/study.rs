//! The four scenarios beside one another: over area, over model size, and under other assumptions.

use serde::Serialize;

use super::energy::{Bit, energy_gain};
use super::inputs::{Inputs, Work};
use super::search::{Budget, Front, best_within, front, least_area};
use super::system::{Configuration, outcome};

/// Performance at which areas are compared, over that of the smallest cluster without compression.
pub const PERFORMANCE: f64 = 2.6;

/// How tensors are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Without compression.
    Raw,
    /// Through the video engines that GPUs have.
    Video,
    /// Through codecs with dies of their own.
    Codec,
    /// Through tenfold on the GPU's cores.
    Cores,
}

impl Scenario {
    /// All four.
    pub const ALL: [Scenario; 4] = [Scenario::Raw, Scenario::Video, Scenario::Codec, Scenario::Cores];

    /// Name for people.
    pub fn name(self, inputs: &Inputs) -> &str {
        match self {
            Scenario::Raw => "no compression",
            Scenario::Video => &inputs.video.name,
            Scenario::Codec => &inputs.codec.name,
            Scenario::Cores => &inputs.cores.name,
        }
    }
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    /// What was asked.
    pub inputs: Inputs,
    /// What the cluster does.
    pub work: Work,
    /// Its budget.
    pub budget: Budget,
    /// pJ of a bit and gain over no compression, for each scenario.
    pub energy: Vec<(Scenario, Bit, f64)>,
    /// Configurations of all scenarios.
    pub configurations: usize,
    /// One front a scenario.
    pub fronts: Vec<Front>,
    /// Tokens a second of the smallest cluster without compression: performance 1.
    pub unit: f64,
    /// Performance within the area over no compression, by scenario.
    pub at_area: Vec<(Scenario, Option<f64>)>,
    /// Area of no compression over that of each scenario at a performance of 2.6.
    pub at_performance: Vec<(Scenario, Option<f64>)>,
    /// Energy over model size.
    pub sizes: Vec<SizeRow>,
    /// One assumption changed at a time.
    pub sensitivity: Vec<Assumption>,
}

/// Energy of one model size.
#[derive(Debug, Clone, Serialize)]
pub struct SizeRow {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub parameters: f64,
    /// Share of the energy that goes into communication without compression.
    pub share: f64,
    /// Tokens a joule over no compression, by scenario.
    pub efficiency: Vec<(Scenario, f64)>,
}

/// What codecs of their own gain under another assumption.
#[derive(Debug, Clone, Serialize)]
pub struct Assumption {
    /// What is different.
    pub what: String,
    /// Performance within the area over no compression.
    pub at_area: Option<f64>,
    /// Area of no compression over theirs at a performance of 2.6.
    pub at_performance: Option<f64>,
}

impl Study {
    /// Searches all scenarios.
    pub fn new(inputs: Inputs, work: Work, budget: Budget) -> Study {
        let fronts = Scenario::ALL.map(|scenario| front(&inputs, work, scenario, &budget)).to_vec();
        let gains = Gains::new(&fronts, &budget);
        let by = |f: &dyn Fn(&Front) -> Option<f64>| {
            fronts.iter().map(|front| (front.scenario, f(front))).collect()
        };
        Study {
            work,
            budget,
            energy: energy(&inputs),
            configurations: fronts.iter().map(|f| f.configurations).sum(),
            unit: gains.unit,
            at_area: by(&|front| gains.at_area(front)),
            at_performance: by(&|front| gains.at_performance(front)),
            sizes: sizes(&inputs, work, &budget),
            sensitivity: sensitivity(&inputs, work, &budget),
            inputs,
            fronts,
        }
    }
}

/// What scenarios are compared with.
struct Gains<'a> {
    raw: &'a Front,
    area: f64,
    unit: f64,
}

impl<'a> Gains<'a> {
    /// The first front is that without compression.
    fn new(fronts: &'a [Front], budget: &Budget) -> Gains<'a> {
        let unit = fronts[0].points.first().map_or(f64::NAN, |p| p.outcome.tokens_per_second);
        Gains { raw: &fronts[0], area: budget.area, unit }
    }

    fn at_area(&self, front: &Front) -> Option<f64> {
        let speed = |front| best_within(front, self.area).map(|p| p.outcome.tokens_per_second);
        Some(speed(front)? / speed(self.raw)?)
    }

    fn at_performance(&self, front: &Front) -> Option<f64> {
        let area = |front| least_area(front, PERFORMANCE * self.unit).map(|p| p.area);
        Some(area(self.raw)? / area(front)?)
    }
}

fn energy(inputs: &Inputs) -> Vec<(Scenario, Bit, f64)> {
    let nccl = inputs.energy.nccl;
    let (video, codec, cores) = (&inputs.video, &inputs.codec, &inputs.cores);
    let own = cores.energy(&inputs.gpu);
    let bits = [
        Bit::raw(nccl),
        Bit::coded(nccl, video.ratio, video.pj_encode, video.pj_decode),
        Bit::coded(nccl, codec.ratio, codec.pj_encode, codec.pj_decode),
        Bit::coded(nccl, cores.ratio, own.0, own.1),
    ];
    Scenario::ALL.into_iter().zip(bits).map(|(s, bit)| (s, bit, energy_gain(bits[0], bit))).collect()
}

/// For each size the cluster that is the fastest without compression, and what each scenario takes on it, with a codec a GPU;
/// sizes that fit nowhere are left out.
fn sizes(inputs: &Inputs, work: Work, budget: &Budget) -> Vec<SizeRow> {
    let row = |size: &super::inputs::Model| {
        let inputs = Inputs { model: size.clone(), ..inputs.clone() };
        let front = front(&inputs, work, Scenario::Raw, budget);
        let best = best_within(&front, budget.area)?;
        let raw = best.outcome;
        let same = Configuration { codecs: best.configuration.gpus(), ..best.configuration };
        let gain = |scenario| {
            Some((scenario, outcome(&inputs, work, scenario, &same)?.efficiency() / raw.efficiency()))
        };
        let efficiency = Scenario::ALL.into_iter().filter_map(gain).collect();
        Some(SizeRow { name: size.name.clone(), parameters: size.parameters, share: raw.share(), efficiency })
    };
    inputs.model.sizes.iter().filter_map(row).collect()
}

type Change = (String, Box<dyn Fn(&mut Inputs)>);

fn sensitivity(inputs: &Inputs, work: Work, budget: &Budget) -> Vec<Assumption> {
    let mut changes: Vec<Change> = vec![("as stated".into(), Box::new(|_| {}))];
    let mut add = |what: String, change: Box<dyn Fn(&mut Inputs)>| changes.push((what, change));
    for overlap in [0.0, 0.5, 1.0] {
        add(format!("overlap {overlap}"), Box::new(move |i| i.workload.overlap = overlap));
    }
    for tokens in [2048.0, 4096.0, 16384.0, 65536.0] {
        add(format!("{tokens} tokens a rank"), Box::new(move |i| i.workload.tokens = tokens));
    }
    for microbatch in [64.0, 256.0, 2048.0] {
        add(
            format!("microbatches of {microbatch} tokens"),
            Box::new(move |i| i.workload.microbatch = microbatch),
        );
    }
    for utilisation in [0.3, 0.6, 0.9] {
        add(format!("utilisation {utilisation}"), Box::new(move |i| i.workload.utilisation = utilisation));
    }
    for flops in [71e12, 142e12, 284e12] {
        add(format!("{} TFLOP/s a GPU", flops / 1e12), Box::new(move |i| i.gpu.flops = flops));
    }
    for ratio in [2.0, 5.0, 10.0] {
        add(format!("ratio {ratio}"), Box::new(move |i| i.codec.ratio = ratio));
    }
    add(
        "half a card a GPU and fewer, too".into(),
        Box::new(|i| i.nic.each = vec![0.125, 0.25, 0.5, 1.0, 2.0, 4.0]),
    );
    add("one card a GPU".into(), Box::new(|i| i.nic.each = vec![1.0]));
    // 0.78 W at 97.8 pJ a bit is 8 Gb/s: a die that does 100 Gb/s would be 12.5 times as large.
    add("codecs of 8 Gb/s, as their power implies".into(), Box::new(|i| i.codec.gbps = 7.975));
    let one = |(what, change): Change| {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        let fronts = [Scenario::Raw, Scenario::Codec].map(|scenario| front(&inputs, work, scenario, budget));
        let gains = Gains::new(&fronts, budget);
        Assumption {
            what,
            at_area: gains.at_area(&fronts[1]),
            at_performance: gains.at_performance(&fronts[1]),
        }
    };
    changes.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn study() -> Study {
        Study::new(Inputs::llama_7b().unwrap(), Work::Training, Budget { area: 50_000.0, power: None })
    }

    fn of(list: &[(Scenario, Option<f64>)], scenario: Scenario) -> f64 {
        list.iter().find(|(s, _)| *s == scenario).and_then(|(_, v)| *v).unwrap()
    }

    #[test]
    fn the_published_figures_come_out_under_the_stated_assumptions() {
        let study = study();
        assert!(study.configurations > 2000, "{}", study.configurations);
        let (faster, smaller) =
            (of(&study.at_area, Scenario::Codec), of(&study.at_performance, Scenario::Codec));
        assert!((1.65..1.75).contains(&faster), "{faster}");
        assert!((1.55..1.66).contains(&smaller), "{smaller}");
        assert_eq!(of(&study.at_area, Scenario::Raw), 1.0);
        // Video engines of 1.1 GB/s behind cards of 12.5: slower than no compression.
        assert!(of(&study.at_area, Scenario::Video) < 1.0);
    }

    #[test]
    fn a_front_rises_and_keeps_to_its_budget() {
        for front in study().fronts {
            assert!(front.points.len() > 3);
            for pair in front.points.windows(2) {
                assert!(pair[0].area < pair[1].area);
                assert!(pair[0].outcome.tokens_per_second < pair[1].outcome.tokens_per_second);
            }
            assert!(front.points.iter().all(|p| p.area <= 50_000.0));
        }
        let budget = Budget { area: 50_000.0, power: Some(3000.0) };
        let few = front(&Inputs::llama_7b().unwrap(), Work::Training, Scenario::Codec, &budget);
        assert!(!few.points.is_empty() && few.points.iter().all(|p| p.outcome.power() <= 3000.0));
    }

    #[test]
    fn efficiency_grows_with_the_share_of_communication() {
        let mut sizes = study().sizes;
        assert!(sizes.len() >= 3);
        sizes.sort_by(|a, b| a.share.total_cmp(&b.share));
        let codec: Vec<f64> = sizes
            .iter()
            .map(|row| row.efficiency.iter().find(|e| e.0 == Scenario::Codec).unwrap().1)
            .collect();
        assert!(codec.windows(2).all(|pair| pair[0] <= pair[1]), "{codec:?}");
        assert!(codec.iter().all(|gain| *gain >= 1.0 && *gain < 4.32), "{codec:?}");
        assert!(codec.last().is_some_and(|gain| *gain > 2.0), "{codec:?}");
    }

    #[test]
    fn what_hides_behind_computing_gains_nothing() {
        let mut inputs = Inputs::llama_7b().unwrap();
        inputs.workload.overlap = 1.0;
        inputs.workload.tokens = 1e6;
        let study = Study::new(inputs, Work::Training, Budget { area: 20_000.0, power: None });
        let gain = of(&study.at_area, Scenario::Codec);
        assert!((0.95..=1.0).contains(&gain), "{gain}");
    }

    #[test]
    fn inputs_that_no_cluster_has_are_refused() {
        let text = Inputs::text();
        assert!(Inputs::parse(&text.replace("area = 398.0", "area = -1.0")).is_err());
        assert!(Inputs::parse(&text.replace("overlap = 0.0", "overlap = 1.5")).is_err());
        assert!(Inputs::parse(&text.replace("layers = 32,", "layers = 0,")).is_err());
        assert!(Inputs::parse(&text.replace("overlap = 0.0", "lap = 0.0")).is_err());
        assert!(Inputs::parse("").is_err());
    }
}
