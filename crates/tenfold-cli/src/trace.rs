//! What stages did when: the file of `--trace`, and the summary in reports.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};
use tenfold_archive::{Summary, Timeline};

/// Writes a timeline as a Chrome trace, if it was asked for.
pub fn write(path: Option<&Path>, timeline: &Timeline) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let named = |error: std::io::Error| {
        let text = format!("{}: {error}", path.display());
        std::io::Error::new(error.kind(), text)
    };
    let mut file = BufWriter::new(File::create(path).map_err(named)?);
    timeline.write_trace(&mut file).and_then(|()| file.flush()).map_err(named)?;
    Ok(())
}

/// A summary as reports have it in JSON.
pub fn json(summary: &Summary) -> Value {
    json!({"seconds": summary.seconds, "overlap": summary.overlap(), "stages": summary.stages})
}

/// A summary for people who asked for a trace.
pub fn text(path: Option<&Path>, timeline: &Timeline) -> String {
    path.map_or(String::new(), |_| format!("{}\n", timeline.summary()))
}
