//! When each stage worked on what, and the same as a trace for Perfetto or `chrome://tracing`.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Summary;

/// Most spans that are kept; later ones only count. A trace of more is of no use to people and would take memory without bound.
const MOST_SPANS: usize = 1 << 18;

/// A piece of work of one stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The stage.
    pub stage: Cow<'static, str>,
    /// Which of its workers.
    pub worker: u32,
    /// What was worked on.
    pub item: String,
    /// Since the timeline began.
    pub begin: Duration,
    /// Since the timeline began.
    pub end: Duration,
    /// Bytes that went through.
    pub bytes: u64,
}

/// A record of spans; clones are the same record.
#[derive(Debug, Clone)]
pub struct Timeline {
    start: Instant,
    room: usize,
    record: Arc<Mutex<Record>>,
}

#[derive(Debug, Default)]
struct Record {
    spans: Vec<Span>,
    left_out: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline::with_room(MOST_SPANS)
    }
}

impl Timeline {
    /// An empty record that begins now.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// An empty record that begins now and keeps so many spans: none of them where nobody asks, as for work without end.
    pub fn with_room(spans: usize) -> Timeline {
        Timeline { start: Instant::now(), room: spans.min(MOST_SPANS), record: Arc::default() }
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does a piece of work and records it. `work` gives its result and the bytes that went through.
    pub fn measure<T, E>(
        &self,
        stage: impl Into<Cow<'static, str>>,
        worker: u32,
        item: impl Into<String>,
        work: impl FnOnce() -> Result<(T, u64), E>,
    ) -> Result<T, E> {
        let begin = self.now();
        let (result, bytes) = work()?;
        self.push(Span { stage: stage.into(), worker, item: item.into(), begin, end: self.now(), bytes });
        Ok(result)
    }

    /// Records a span.
    pub fn push(&self, span: Span) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if record.spans.len() < self.room {
            record.spans.push(span);
        } else {
            record.left_out += 1;
        }
    }

    /// Spans that are kept.
    pub fn len(&self) -> usize {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The spans so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<Span> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// What the stages did so far.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.spans())
    }

    /// Writes the spans as a Chrome trace: JSON that Perfetto opens. Each stage is a process there, each worker a thread.
    pub fn write_trace(&self, out: &mut dyn Write) -> io::Result<()> {
        let spans = self.spans();
        let mut stages: Vec<&str> = Vec::new();
        for span in &spans {
            if !stages.contains(&&*span.stage) {
                stages.push(&span.stage);
            }
        }
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let names = stages.iter().enumerate().map(
            |(i, stage)| json!({"ph": "M", "name": "process_name", "pid": i + 1, "args": {"name": stage}}),
        );
        let events = spans.iter().map(|span| {
            let pid = stages.iter().position(|stage| *stage == span.stage).map_or(0, |i| i + 1);
            json!({
                "ph": "X", "name": span.item, "cat": span.stage, "pid": pid, "tid": span.worker,
                "ts": micros(span.begin), "dur": micros(span.end.saturating_sub(span.begin)),
                "args": {"bytes": span.bytes},
            })
        });
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        for (i, event) in names.chain(events).enumerate() {
            let comma = if i == 0 { "\n" } else { ",\n" };
            write!(out, "{comma}{event}")?;
        }
        let left_out = self.record.lock().unwrap_or_else(PoisonError::into_inner).left_out;
        writeln!(out, "\n],\"otherData\":{{\"left_out\":\"{left_out}\"}}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_beyond_the_room_only_count() {
        let timeline = Timeline::with_room(1);
        for name in ["first".to_owned(), "second".to_owned()] {
            timeline.measure(name, 0, "", || Ok::<_, ()>(((), 0))).unwrap();
        }
        assert_eq!((timeline.len(), timeline.is_empty(), &*timeline.spans()[0].stage), (1, false, "first"));
        let mut out = Vec::new();
        timeline.write_trace(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("\"left_out\":\"1\""));
    }

    #[test]
    fn a_trace_is_json_with_an_event_for_each_span() {
        let timeline = Timeline::new();
        for item in ["a \"quoted\"", "b"] {
            timeline.measure("read", 3, item, || Ok::<_, ()>(((), 7))).unwrap();
        }
        let failed: Result<(), ()> = timeline.measure("send", 0, "c", || Err(()));
        assert_eq!(failed, Err(()));
        let mut out = Vec::new();
        timeline.write_trace(&mut out).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(events[0]["args"]["name"], "read");
        assert_eq!((&events[1]["name"], &events[1]["tid"]), (&json!("a \"quoted\""), &json!(3)));
        assert_eq!(events[2]["args"]["bytes"], 7);
    }
}
