//! `tenfold compare`.

use std::io::IsTerminal;

use tenfold_archive::{Comparison, TensorDiff};

use super::read_options;
use crate::args::CompareArgs;
use crate::exit;
use crate::print;
use crate::progress::Bar;
use crate::table::Table;

const HEADINGS: [&str; 8] = ["tensor", "dtype", "shape", "mse", "nmse", "max error", "cosine", "specials"];

pub fn run(args: CompareArgs, quiet: bool) -> anyhow::Result<u8> {
    let options = read_options(&args.decode)?;
    let bar = Bar::new(quiet);
    let comparison = tenfold_archive::compare(&args.first, &args.second, options, &bar)?;
    drop(bar);
    if args.json {
        print::json(&comparison)?;
    } else {
        print::out(&table(&comparison))?;
    }
    match args.fail_above.and_then(|limit| failure(&comparison, limit)) {
        Some(reason) => {
            eprintln!("tenfold: {reason}");
            Ok(exit::DATA)
        }
        None => Ok(exit::SUCCESS),
    }
}

/// Why the models differ by more than the limit.
fn failure(comparison: &Comparison, limit: f64) -> Option<String> {
    let missing = [
        ("only in A", &comparison.only_in_first),
        ("only in B", &comparison.only_in_second),
        ("not comparable", &comparison.not_comparable),
    ];
    if let Some((what, names)) = missing.iter().find(|(_, names)| !names.is_empty()) {
        return Some(format!("{} tensors are {what}, such as {:?}", names.len(), names[0]));
    }
    let over = |diff: &&TensorDiff| diff.special_mismatches > 0 || diff.nmse.is_nan() || diff.nmse > limit;
    let worst = comparison.tensors.iter().filter(over).max_by(|a, b| a.nmse.total_cmp(&b.nmse))?;
    let count = comparison.tensors.iter().filter(over).count();
    Some(format!("{count} tensors exceed nmse {limit}; the worst is {:?} at {:.3e}", worst.name, worst.nmse))
}

fn table(comparison: &Comparison) -> String {
    let mut table = Table::new(&HEADINGS, std::io::stdout().is_terminal());
    for diff in &comparison.tensors {
        table.row(cells(diff, print::shape(&diff.shape)));
    }
    table.footer(cells(&comparison.total, String::new()));
    let mut text = table.render();
    let identical = comparison.tensors.iter().filter(|diff| diff.identical).count();
    text.push_str(&format!("{identical} of {} tensors are identical\n", comparison.tensors.len()));
    list(&mut text, "only in A", &comparison.only_in_first);
    list(&mut text, "only in B", &comparison.only_in_second);
    list(&mut text, "not comparable", &comparison.not_comparable);
    text
}

fn cells(diff: &TensorDiff, shape: String) -> Vec<String> {
    vec![
        diff.name.clone(),
        diff.dtype.clone(),
        shape,
        print::scientific(diff.mse),
        print::scientific(diff.nmse),
        print::scientific(diff.max_error),
        format!("{:.6}", diff.cosine),
        if diff.special_mismatches == 0 { "-".into() } else { diff.special_mismatches.to_string() },
    ]
}

fn list(text: &mut String, what: &str, names: &[String]) {
    if !names.is_empty() {
        text.push_str(&format!("{what}: {}\n", names.join(", ")));
    }
}
