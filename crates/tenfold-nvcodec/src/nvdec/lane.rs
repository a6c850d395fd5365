//! What a lane does with its life.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tenfold_cuda::OwnedStream;

use super::cache::Cache;
use super::lanes::Shared;
use super::session::{Bench, run};
use super::stream::cancelled;

/// Takes shares of streams until the lanes are closed.
pub(super) fn live(shared: &Arc<Shared>, me: usize, cuda: OwnedStream) {
    let mut cache = Cache::new(shared.idle_bytes);
    while let Some((stream, numbers)) = shared.next(me) {
        shared.hear(me, Instant::now());
        let bench = Bench {
            api: shared.api,
            device: &shared.device,
            counts: &shared.counts,
            cuda: cuda.stream(),
            caps: &|kind| shared.caps(kind),
            heard: &|now| shared.hear(me, now),
        };
        let answer = match stream.is_cancelled() {
            true => Err(cancelled()),
            false => run(&bench, &mut cache, &stream, &numbers),
        };
        shared.pictures.fetch_add(if answer.is_ok() { numbers.len() } else { 0 }, Ordering::Relaxed);
        shared.done(me, &stream, numbers.len());
        stream.finish(answer);
    }
}
