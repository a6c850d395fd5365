//! `tenfold serve` and `tenfold pull`.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;
use tenfold::Goal;
use tenfold::engine::{GoalNumber, Stop};
use tenfold_link::pull::{PullOptions, pull};
use tenfold_link::serve::{EncodeLimits, ServeOptions, Server, manifest_of};

use super::read_options;
use crate::args::{EffortArg, PullArgs, ServeArgs};
use crate::exit::{self, Usage};
use crate::progress::Bar;
use crate::{print, trace};

pub fn serve(args: ServeArgs, quiet: bool) -> anyhow::Result<u8> {
    if args.manifest {
        print::json(&manifest_of(&args.folder)?)?;
        return Ok(exit::SUCCESS);
    }
    let mut options = ServeOptions::default();
    options.token = args.token_file.as_deref().map(token).transpose()?;
    options.tls = args.cert.zip(args.key);
    options.connections = args.connections;
    options.idle = Duration::from_secs_f64(args.idle.min(86_400.0));
    options.encode = args.cache.map(|folder| {
        let mut limits = EncodeLimits::new(folder);
        limits.cache_bytes = args.cache_bytes;
        limits
    });
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let stop = interrupted()?;
    let server = Server::start(&args.folder, &args.listen.to_string(), options)?;
    if !quiet {
        print::out(&format!("serving {} at {scheme}://{}/\n", args.folder.display(), server.addr()))?;
    }
    while !stop.is_stopped() {
        std::thread::sleep(Duration::from_millis(100));
    }
    server.shutdown();
    Ok(exit::SUCCESS)
}

fn options(args: &PullArgs) -> anyhow::Result<PullOptions> {
    let mut options = PullOptions::default();
    options.decode = args.decode;
    options.include = args.include.clone();
    options.rows = args.rows.clone();
    options.token = args.token_file.as_deref().map(token).transpose()?;
    options.ca = args.ca.clone();
    options.connections = args.connections;
    options.retries = args.retries;
    options.stall = Duration::from_secs_f64(args.stall.min(86_400.0));
    options.overwrite = args.force;
    options.read = read_options(&args.decoding)?;
    options.max_memory = args.max_memory;
    options.query = args.goal.0.map(|goal| query(goal, args.effort));
    if options.query.is_none() && (args.effort.is_some() || args.bandwidth.is_some()) {
        return Err(Usage("--effort and --bandwidth go with a goal, such as --bits 3".into()).into());
    }
    options.bandwidth = args.bandwidth.map(|megabits| megabits * 1e6 / 8.0);
    options.stop = interrupted()?;
    Ok(options)
}

pub fn run_pull(args: PullArgs, quiet: bool) -> anyhow::Result<u8> {
    let options = options(&args)?;
    let begin = Instant::now();
    let bar = Bar::new(quiet);
    let result = pull(&args.url, &args.output, &options, &bar);
    drop(bar);
    let traced = trace::write(args.trace.as_deref(), &options.timeline);
    if let Err(error @ tenfold_link::Error::Stopped) = &result {
        eprintln!("tenfold: {error}");
        return Ok(exit::INTERRUPTED);
    }
    let pulled = result.map_err(|error| match error {
        tenfold_link::Error::OutputExists(path) => {
            Usage(format!("{} already exists; use --force to replace it", path.display())).into()
        }
        error => anyhow::Error::from(error),
    })?;
    traced?;
    let (seconds, summary) = (begin.elapsed().as_secs_f64(), options.timeline.summary());
    if args.json {
        print::json(&json!({
            "files": pulled.files, "fetched": pulled.fetched, "written": pulled.written, "unchecked": pulled.unchecked,
            "seconds": seconds, "summary": trace::json(&summary),
        }))?;
    } else if !quiet {
        print::out(&format!(
            "{}: {} fetched, {} written, ratio {:.2}; {seconds:.1} s, {}\n",
            args.output.display(),
            print::bytes(pulled.fetched),
            print::bytes(pulled.written),
            pulled.written as f64 / pulled.fetched.max(1) as f64,
            print::rate(pulled.fetched as f64 / seconds.max(1e-9)),
        ))?;
        if pulled.unchecked > 0 {
            let bytes = print::bytes(pulled.unchecked);
            print::out(&format!(
                "nothing vouches for {bytes}: the server has no {}\n",
                tenfold_link::MANIFEST
            ))?;
        }
        print::out(&trace::text(args.trace.as_deref(), &options.timeline))?;
    }
    Ok(exit::SUCCESS)
}

/// The query that asks a server for a goal.
fn query(goal: Goal, effort: Option<EffortArg>) -> String {
    let effort = match effort {
        Some(EffortArg::Fast) => "fast",
        Some(EffortArg::Best) => "best",
        Some(EffortArg::Balanced) | None => "balanced",
    };
    let known = Goal::NAMES.iter().find(|known| known.name == goal.name());
    let number = known.filter(|known| !matches!(known.number, GoalNumber::Nothing)).and(goal.number());
    let value = number.map_or(String::new(), |number| format!("={number}"));
    format!("{}{value}&effort={effort}", goal.name())
}

/// The token that a file holds, without white space around it.
fn token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Usage(format!("{}: the file holds no token", path.display())).into());
    }
    Ok(token.to_owned())
}

/// A switch that Ctrl-C turns on. A second Ctrl-C ends the process at once.
fn interrupted() -> anyhow::Result<Stop> {
    static SWITCH: OnceLock<Stop> = OnceLock::new();
    let stop = SWITCH.get_or_init(Stop::new);
    tenfold_link::on_interrupt(stop.clone())?;
    Ok(stop.clone())
}
