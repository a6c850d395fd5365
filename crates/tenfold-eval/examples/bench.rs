//! Runs a bench: `bench gap|files|rate|lossless|speed [FILE…] [--bits 2,2.5] [--efforts fast,best]
//! [--size N] [--threads N] [--repeats N] [--no-peers] [--quick] [--json PATH]`.
//! The same functions stand behind `tenfold bench`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tenfold::Effort;
use tenfold_eval::bench::{self, BenchArgs};

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let what = words
        .next()
        .context("name a bench: gap, files, rate, lossless or speed")?;
    let mut args = BenchArgs::new(what.parse().map_err(anyhow::Error::msg)?);
    while let Some(word) = words.next() {
        let mut next = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--bits" => args.bits = next()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--efforts" => args.efforts = next()?.split(',').map(effort).collect::<Result<_>>()?,
            "--size" => args.size = Some(next()?.parse()?),
            "--threads" => args.threads = next()?.parse()?,
            "--repeats" => args.repeats = next()?.parse()?,
            "--json" => args.json = Some(next()?.into()),
            "--no-peers" => args.peers = false,
            "--quick" => args.quick = true,
            _ if word.starts_with("--") => bail!("there is no option {word}"),
            _ => args.files.push(word.into()),
        }
    }
    let report = bench::run(&args, &mut std::io::stdout().lock())?;
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn effort(name: &str) -> Result<Effort> {
    let all = [Effort::Fast, Effort::Balanced, Effort::Best];
    all.into_iter()
        .find(|e| e.name() == name)
        .with_context(|| format!("there is no effort '{name}'"))
}
