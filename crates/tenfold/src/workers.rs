//! Runs work over tiles on one thread or many. Results come back in order, so the bytes of a blob do not depend on the
//! number of threads.

use std::sync::Arc;

use rayon::prelude::*;

use crate::engine::Stop;
use crate::engine::threads::pool;
use crate::error::Result;

/// Where work runs, and whether it goes on: each tile asks before it starts.
#[derive(Clone)]
pub(crate) struct Workers {
    place: Place,
    stop: Stop,
}

#[derive(Clone)]
enum Place {
    /// On the calling thread.
    Here,
    /// In the caller's rayon pool.
    Ambient,
    /// In a pool of our own.
    Own(Arc<rayon::ThreadPool>),
}

impl Workers {
    /// 0 threads: the ambient pool. 1: the calling thread.
    pub(crate) fn new(threads: usize, stop: &Stop) -> Result<Workers> {
        let place = match threads {
            0 => Place::Ambient,
            1 => Place::Here,
            n => Place::Own(pool(n)?),
        };
        Ok(Workers { place, stop: stop.clone() })
    }

    /// The calling thread, to the end.
    pub(crate) fn current_thread() -> Workers {
        Workers { place: Place::Here, stop: Stop::default() }
    }

    /// The calling thread, as long as these go on.
    pub(crate) fn into_current_thread(self) -> Workers {
        Workers { place: Place::Here, ..self }
    }

    /// `f(0)`, `f(1)`, … in order. `init` makes a scratch space for each worker.
    pub(crate) fn map<S, T: Send>(
        &self,
        count: usize,
        init: impl Fn() -> S + Sync + Send,
        f: impl Fn(&mut S, usize) -> T + Sync + Send,
    ) -> Result<Vec<T>> {
        let f = |scratch: &mut S, i: usize| self.stop.check().map(|()| f(scratch, i));
        let spread = || (0..count).into_par_iter().map_init(&init, f).collect();
        let results: Vec<Result<T>> = match &self.place {
            Place::Own(pool) if count > 1 => pool.install(spread),
            Place::Ambient if count > 1 => spread(),
            _ => {
                let mut scratch = init();
                (0..count).map(|i| f(&mut scratch, i)).collect()
            }
        };
        results.into_iter().collect()
    }

    /// Runs `f` on each piece; the first error in order wins. `init` makes a scratch space for each worker.
    pub(crate) fn for_pieces<P: Send, S>(
        &self,
        pieces: Vec<P>,
        init: impl Fn() -> S + Sync + Send,
        f: impl Fn(&mut S, usize, P) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        let f = |scratch: &mut S, i: usize, piece: P| {
            self.stop.check()?;
            f(scratch, i, piece)
        };
        let spread = |pieces: Vec<P>| -> Vec<Result<()>> {
            pieces.into_par_iter().enumerate().map_init(&init, |s, (i, p)| f(s, i, p)).collect()
        };
        let results = match &self.place {
            Place::Own(pool) if pieces.len() > 1 => pool.install(|| spread(pieces)),
            Place::Ambient if pieces.len() > 1 => spread(pieces),
            _ => {
                let mut scratch = init();
                pieces.into_iter().enumerate().map(|(i, p)| f(&mut scratch, i, p)).collect()
            }
        };
        results.into_iter().collect()
    }
}
