//! `--check`: sends for real and holds the forecast against it.

use tenfold_plan::measure::{Kind, Moving};
use tenfold_plan::pipe::LaneRates;
use tenfold_plan::pipe::{self, Cargo};
use tenfold_plan::{
    Check, Hosts, Link, Overlap, Payload, Plan, Rates, choose, forecast, forecast_raw, lanes_name,
};

use super::Subject;
use crate::args::SendArgs;

/// Seconds that the slowest run takes, about.
const LONGEST: f64 = 5.0;

/// Sends each kind raw and as the plan chooses, or where it chooses raw, in the fastest other way.
pub(super) fn run(
    args: &SendArgs,
    plan: &mut Plan,
    subjects: &[Subject],
    moving: &Moving,
    cores: usize,
) -> anyhow::Result<()> {
    let links: Vec<Link> =
        plan.kinds.first().map_or(Vec::new(), |k| k.links.iter().map(|l| l.link).collect());
    if args.to.is_none() {
        plan.notes.push(
            "Checks send through a link inside this machine, without latency: both ends share its cores, and their forecasts know that.".into(),
        );
    }
    for subject in subjects.iter().filter(|subject| !subject.kind.chunks.is_empty()) {
        for link in &links {
            let bench = Bench::new(args, link, moving, plan.hosts, cores)?;
            plan.checks.extend(bench.run(args, subject)?);
        }
    }
    Ok(())
}

/// A link as a check has it, and the ends.
struct Bench {
    link: Link,
    hosts: Hosts,
    stated: Link,
}

impl Bench {
    fn new(
        args: &SendArgs,
        link: &Link,
        moving: &Moving,
        hosts: Hosts,
        cores: usize,
    ) -> anyhow::Result<Bench> {
        if args.to.is_some() {
            return Ok(Bench { link: *link, hosts, stated: *link });
        }
        // No link inside this machine is faster than the machine.
        let here = Link::new(link.bytes_per_second.min(moving.bytes_per_second))?;
        Ok(Bench { link: here, hosts: Hosts::shared(cores).with_io(moving.cpu / 2.0), stated: *link })
    }

    fn run(&self, args: &SendArgs, subject: &Subject) -> anyhow::Result<Vec<Check>> {
        let Subject { kind, ways } = subject;
        let count = self.count(args, kind);
        // The pieces are sent over and over.
        let bytes: u64 = (0..count).map(|i| kind.chunks[i % kind.chunks.len()].data.len() as u64).sum();
        let payload = Payload::new(bytes).with_chunk(bytes.div_ceil(count as u64)).with_lanes(true);
        let rates: Vec<Rates> = ways.iter().map(|(_, rates)| rates.clone()).collect();
        let choice = choose(&self.link, &payload, &rates, &self.hosts);
        let coded =
            |way: usize| forecast(&self.link, &payload, &rates[way], &self.hosts, Overlap::Pipelined).seconds;
        let other = choice.way.or_else(|| (0..rates.len()).min_by(|&a, &b| coded(a).total_cmp(&coded(b))));

        let mut checks = Vec::new();
        let raw = forecast_raw(&self.link, &payload, &self.hosts).seconds;
        let cargo = Cargo { chunks: &kind.chunks, count, coding: None };
        checks.push(self.check(args, &kind.name, "raw", choice.way.is_none(), raw, &cargo)?);
        if let Some(way) = other {
            let mut coding = ways[way].0.coding();
            let (mut name, mut seconds) = (rates[way].name.clone(), coded(way));
            if let Some(share) = choice.coded {
                coding.lanes = Some(self.lanes(&payload, &rates[way], coding.workers));
                (name, seconds) = (lanes_name(&name, share), choice.forecast.seconds);
            }
            let cargo = Cargo { coding: Some(coding), ..cargo };
            checks.push(self.check(args, &kind.name, &name, choice.way.is_some(), seconds, &cargo)?);
        }
        Ok(checks)
    }

    /// What both lanes do, for the sender to start with.
    fn lanes(&self, payload: &Payload, way: &Rates, workers: usize) -> LaneRates {
        let (_, chunk) = payload.chunks();
        let all = |one: f64| chunk * workers as f64 / one;
        let (encode, decode) = (way.encode.seconds(chunk), way.decode.seconds(chunk));
        let mut codec = all(encode).min(all(decode));
        if self.hosts.shared {
            codec = codec.min(chunk * self.hosts.sender as f64 / ((encode + decode) * way.cores).max(1e-12));
        }
        LaneRates { codec, ratio: way.ratio(chunk), link: self.link.bytes_per_second }
    }

    fn check(
        &self,
        args: &SendArgs,
        kind: &str,
        way: &str,
        chosen: bool,
        forecast: f64,
        cargo: &Cargo<'_>,
    ) -> anyhow::Result<Check> {
        let (sent, back) = match &args.to {
            // The answer's way back is no part of sending.
            Some(address) => (pipe::run_to(address, cargo)?, self.link.latency),
            None => (pipe::run_here(cargo, Some(self.stated.bytes_per_second))?, 0.0),
        };
        Ok(Check::new(kind, way, chosen, &self.stated, sent.plain, forecast, sent.seconds - back))
    }

    /// Pieces to send: as many as stated, fewer over a slow link.
    fn count(&self, args: &SendArgs, kind: &Kind) -> usize {
        let bytes = (args.check_bytes as f64).min(self.link.bytes_per_second * LONGEST);
        // A small number of pieces, at least two.
        ((bytes / kind.chunk as f64).ceil() as usize).clamp(2, 1 << 16)
    }
}
