//! `tenfold engines --selftest`: do this card's video engines work?

use serde::Serialize;
use tenfold_cuda::Device;
use tenfold_nvcodec::selftest::{self, Line, Outcome, Workload};

use crate::exit;
use crate::print;

#[derive(Serialize)]
struct Entry {
    /// What `--device` takes.
    device: u32,
    codec: String,
    test: String,
    /// ok, skipped or failed.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<f64>,
    /// What was found, or why it was skipped or failed.
    detail: String,
}

/// Tests each device. A failure, or nothing to test, is in the exit code.
pub fn run(json: bool) -> anyhow::Result<u8> {
    let count = Device::count()?;
    let mut all = Vec::new();
    let mut code = if count == 0 { exit::ENVIRONMENT } else { exit::SUCCESS };
    for number in 0..count {
        let lines = selftest::run(&Device::open(number)?, Workload::default());
        code = code.max(judge(&lines));
        all.extend(lines.into_iter().map(|line| entry(number, line)));
    }
    if json {
        print::json(&all)?;
    } else {
        print::out(&table(&all))?;
    }
    Ok(code)
}

/// The exit code for a device.
fn judge(lines: &[Line]) -> u8 {
    let failed = lines.iter().any(|l| matches!(l.outcome, Outcome::Failed(_)));
    match (selftest::passed(lines), failed) {
        (true, _) => exit::SUCCESS,
        (_, true) => exit::DATA,
        // All was skipped: there are no engines.
        _ => exit::ENVIRONMENT,
    }
}

fn entry(device: u32, line: Line) -> Entry {
    let (result, milliseconds, detail) = match line.outcome {
        Outcome::Passed { milliseconds, note } => ("ok", Some(milliseconds), note),
        Outcome::Skipped(why) => ("skipped", None, why),
        Outcome::Failed(why) => ("failed", None, why),
    };
    Entry { device, codec: line.codec, test: line.test, result, milliseconds, detail }
}

fn table(all: &[Entry]) -> String {
    let mut text = String::new();
    for e in all {
        let time = e.milliseconds.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
        let line =
            format!("{} {:<5} {:<34} {:<7} {time:>11} {}", e.device, e.codec, e.test, e.result, e.detail);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    match all.is_empty() {
        true => "no CUDA device: there is nothing to test\n".into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(outcome: Outcome) -> Line {
        Line { codec: "H.265".into(), test: "NVENC, 8 bits".into(), outcome }
    }

    #[test]
    fn the_exit_code_says_what_was_found() {
        let good = line(Outcome::Passed { milliseconds: 1.25, note: "2.50 bits a sample".into() });
        let (none, bad) =
            (line(Outcome::Skipped("no engine".into())), line(Outcome::Failed("other samples".into())));
        assert_eq!(judge(&[good.clone(), none.clone()]), exit::SUCCESS);
        assert_eq!(judge(&[good.clone(), bad.clone()]), exit::DATA);
        assert_eq!(judge(std::slice::from_ref(&none)), exit::ENVIRONMENT);
        let text = table(&[entry(0, good), entry(0, none), entry(1, bad)]);
        assert!(
            text.contains("0 H.265 NVENC, 8 bits") && text.contains("1.2 ms 2.50 bits a sample"),
            "{text}"
        );
        assert!(
            text.contains("skipped") && text.contains("failed") && text.contains("other samples"),
            "{text}"
        );
        assert!(table(&[]).contains("nothing to test"));
    }
}
