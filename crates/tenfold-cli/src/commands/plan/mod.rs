//! `tenfold plan`: what to send how.

mod check;
mod cluster;
mod show;
mod ways;

use std::path::Path;
use std::time::Duration;

use tenfold_plan::measure::{self, Kind, Moving, Way};
use tenfold_plan::pipe;
use tenfold_plan::{Hosts, Link, Payload, Plan, Rates, page, usual_links};

use super::engine;
use crate::args::{EngineArg, EngineArgs, ListenArgs, PlanArgs, PlanCommand, SendArgs};
use crate::exit::{self, Usage};
use crate::print;

/// Bytes of each kind that are measured with, at most.
const SAMPLE: u64 = 16 << 20;
/// How long a measurement takes, about.
const EACH: Duration = Duration::from_millis(200);

pub fn run(args: PlanArgs, quiet: bool) -> anyhow::Result<u8> {
    match args.command {
        None => send(&args.send, quiet),
        Some(PlanCommand::Listen(args)) => listen(&args, quiet),
        Some(PlanCommand::Cluster(args)) => cluster::run(&args),
    }
}

/// A kind of tensors with the ways of coding that were measured for it.
struct Subject {
    kind: Kind,
    ways: Vec<(Way, Rates)>,
}

fn send(args: &SendArgs, quiet: bool) -> anyhow::Result<u8> {
    if args.goal.is_fixed() {
        return Err(Usage("--qp and --lossless-samples are for pictures: state another goal".into()).into());
    }
    if args.check && args.links.is_empty() && args.to.is_none() {
        return Err(Usage("--check needs a link: state --link or --to".into()).into());
    }
    let cores = cores(args.threads.threads);
    let moving = measure::moving(cores, EACH)?;
    let links = links(args)?;
    let receiver = args.receiver_threads.map_or(cores, |n| n as usize);
    // Of sender, relay and receiver the relay does half of the moving.
    let mut plan = Plan::new(Hosts::apart(cores, receiver).with_io(moving.cpu / 4.0));
    let kinds = match &args.input {
        Some(path) => {
            let cpu = EngineArgs { engine: EngineArg::Cpu, device: None };
            measure::kinds(path, &engine::reader(&cpu, None)?, args.chunk, SAMPLE)?
        }
        None => vec![measure::made_up(args.dtype, &args.shape.0, args.chunk, SAMPLE)?],
    };
    let mut subjects = Vec::new();
    for kind in kinds {
        let payload = Payload::new(kind.bytes).with_chunk(kind.chunk).with_lanes(true);
        let ways = match args.rates {
            Some([encode, decode, ratio]) => {
                plan.add(
                    &kind.name,
                    kind.tensors,
                    payload,
                    vec![Rates::stated("as stated", encode, decode, ratio)?],
                    &links,
                );
                continue;
            }
            None => ways::measure(args, &kind, cores, EACH, quiet)?,
        };
        let rates = ways.iter().map(|(_, rates)| rates.clone()).collect();
        plan.add(&kind.name, kind.tensors, payload, rates, &links);
        subjects.push(Subject { kind, ways });
    }
    plan.notes = notes(args, &moving);
    if args.check {
        check::run(args, &mut plan, &subjects, &moving, cores)?;
    }
    if let Some(path) = &args.html {
        write(path, &page::plan_page(&plan))?;
    }
    if args.json {
        print::json(&plan)?;
    } else {
        print::out(&show::plan(&plan))?;
    }
    Ok(if plan.checks.iter().all(|check| !check.chosen || check.is_near()) {
        exit::SUCCESS
    } else {
        exit::DATA
    })
}

fn links(args: &SendArgs) -> anyhow::Result<Vec<Link>> {
    let mut links = match &args.to {
        Some(address) => vec![measure::find_link(address, Duration::from_secs(1))?],
        None if args.links.is_empty() => usual_links()?,
        None => args.links.clone(),
    };
    if let Some(latency) = args.latency {
        links = links.into_iter().map(|link| link.with_latency(latency)).collect::<Result<_, _>>()?;
    }
    Ok(links)
}

fn notes(args: &SendArgs, moving: &Moving) -> Vec<String> {
    let mut notes = Vec::new();
    if args.rates.is_none() {
        notes.push(format!(
            "Engines were measured here with all threads busy; the receiver is taken to be as fast. This machine moves {} through its own network stack.",
            print::rate(moving.bytes_per_second)
        ));
    }
    if let Some(address) = &args.to {
        notes.push(format!("The link is that to {address}, as measured."));
    }
    notes
}

fn listen(args: &ListenArgs, quiet: bool) -> anyhow::Result<u8> {
    let engine = engine::reader(&args.engine, None)?;
    let listener = std::net::TcpListener::bind(&args.address)?;
    if !quiet {
        print::out(&format!("listening on {}\n", listener.local_addr()?))?;
    }
    let workers = if args.engine.engine == EngineArg::Cuda { 1 } else { cores(args.threads.threads) };
    pipe::listen(&listener, &engine, workers, args.connections, |received| match received {
        Ok(received) if !quiet && received.frames > 0 => {
            eprintln!("tenfold: {} in {} chunks", print::bytes(received.bytes), received.frames);
        }
        Ok(_) => {}
        Err(error) => eprintln!("tenfold: a connection ended: {error}"),
    })?;
    Ok(exit::SUCCESS)
}

fn cores(stated: usize) -> usize {
    if stated > 0 { stated } else { std::thread::available_parallelism().map_or(1, |n| n.get()) }
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    tenfold_archive::write_whole(path, text.as_bytes())?;
    Ok(())
}
