//! What happened when, as JSON that the tracing page of Chrome (`chrome://tracing`) and Perfetto show.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Spans of several threads, by the track that they belong to.
pub(super) struct Trace {
    start: Instant,
    events: Mutex<Vec<Event>>,
}

struct Event {
    track: String,
    name: String,
    /// Microseconds.
    from: f64,
    length: f64,
}

impl Trace {
    pub fn new() -> Trace {
        Trace { start: Instant::now(), events: Mutex::new(Vec::new()) }
    }

    /// Does something, and keeps when; returns the seconds it took too.
    pub fn span<T>(&self, track: &str, name: &str, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let from = self.start.elapsed().as_secs_f64();
        let done = work()?;
        let to = self.start.elapsed().as_secs_f64();
        let event =
            Event { track: track.into(), name: name.into(), from: from * 1e6, length: (to - from) * 1e6 };
        // A list is whole after every push.
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        Ok((done, to - from))
    }

    /// All of it, tracks in the order in which they first had something.
    fn to_json(&self) -> Value {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tracks: Vec<&str> = Vec::new();
        for event in events.iter().filter(|e| !e.track.is_empty()) {
            if !tracks.contains(&event.track.as_str()) {
                tracks.push(&event.track);
            }
        }
        let number = |track: &str| tracks.iter().position(|t| *t == track).unwrap_or(tracks.len());
        let names = tracks.iter().enumerate().map(|(i, track)| {
            json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": track}})
        });
        let spans = events.iter().map(|e| {
            json!({"ph": "X", "name": e.name, "pid": 0, "tid": number(&e.track), "ts": e.from, "dur": e.length})
        });
        json!({"displayTimeUnit": "ms", "traceEvents": names.chain(spans).collect::<Vec<_>>()})
    }

    /// Writes a file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(&self.to_json()).context("the trace does not serialise")?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn spans_of_several_threads_are_kept_by_track() {
        let trace = Trace::new();
        std::thread::scope(|scope| {
            for (track, times) in [("products", 3), ("pictures", 2)] {
                let trace = &trace;
                scope.spawn(move || {
                    for i in 0..times {
                        let (found, seconds) = trace.span(track, &format!("call {i}"), || Ok(i)).unwrap();
                        assert!(found == i && seconds >= 0.0);
                    }
                });
            }
        });
        assert!(trace.span("products", "fails", || anyhow::bail!("no")).map(|((), _)| ()).is_err());
        let json = trace.to_json();
        let events = json["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 5, "what failed is no span");
        let names: Vec<&Value> = events.iter().filter(|e| e["ph"] == "M").collect();
        assert_eq!(names.len(), 2);
        for track in names {
            let of = events.iter().filter(|e| e["ph"] == "X" && e["tid"] == track["tid"]).count();
            assert_eq!(of, if track["args"]["name"] == "products" { 3 } else { 2 });
        }
    }
}
