//! All configurations within a budget, their Pareto front, and what the front says.

use serde::Serialize;

use super::inputs::{Inputs, Work};
use super::study::Scenario;
use super::system::{Configuration, Outcome, outcome};

/// What a cluster may take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// Area of all dies, in mm².
    pub area: f64,
    /// Watts, averaged over a step; unlimited if there are none.
    pub power: Option<f64>,
}

/// A configuration and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Area of all dies, in mm².
    pub area: f64,
    /// What it is.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// What it does.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The configurations of one scenario that no other beats in both area and speed.
#[derive(Debug, Clone, Serialize)]
pub struct Front {
    /// The scenario.
    pub scenario: Scenario,
    /// How many configurations there are within the budget.
    pub configurations: usize,
    /// The front, by area.
    pub points: Vec<Point>,
}

/// Searches all configurations within a budget.
pub fn front(inputs: &Inputs, work: Work, scenario: Scenario, budget: &Budget) -> Front {
    let codecs: &[f64] = if scenario == Scenario::Codec { &inputs.codec.each } else { &[0.0] };
    let mut all = Vec::new();
    for stages in 1..=inputs.model.layers {
        for ranks in 1.. {
            let gpus = f64::from(stages) * f64::from(ranks);
            if gpus * inputs.gpu.area > budget.area {
                break;
            }
            for each in &inputs.nic.each {
                for codecs in codecs {
                    let (nics, codecs) = ((gpus * each).ceil(), (gpus * codecs).ceil());
                    let configuration = Configuration { ranks, stages, nics, codecs };
                    let area = configuration.area(inputs);
                    if area > budget.area {
                        continue;
                    }
                    let Some(outcome) = outcome(inputs, work, scenario, &configuration) else { continue };
                    if budget.power.is_none_or(|most| outcome.power() <= most) {
                        all.push(Point { area, configuration, outcome });
                    }
                }
            }
        }
    }
    let configurations = all.len();
    let speed = |p: &Point| p.outcome.tokens_per_second;
    all.sort_by(|a, b| a.area.total_cmp(&b.area).then(speed(b).total_cmp(&speed(a))));
    let mut points: Vec<Point> = Vec::new();
    for point in all {
        if points.last().is_none_or(|best| speed(&point) > speed(best)) {
            points.push(point);
        }
    }
    Front { scenario, configurations, points }
}

/// The fastest within an area.
pub fn best_within(front: &Front, area: f64) -> Option<&Point> {
    front.points.iter().rev().find(|point| point.area <= area)
}

/// The smallest that is as fast.
pub fn least_area(front: &Front, tokens_per_second: f64) -> Option<&Point> {
    front.points.iter().find(|point| point.outcome.tokens_per_second >= tokens_per_second)
}
