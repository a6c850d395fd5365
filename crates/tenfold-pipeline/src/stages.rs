//! Stages on threads, joined by bounded queues. The first error ends all of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded};
use tenfold::engine::Stop;

use super::{Budget, Held, Span, Timeline};

/// What a stage passes on.
struct Item<T> {
    /// Its place in the order of the source.
    number: u64,
    value: T,
    permit: Permit,
}

/// One of the items that may be under way at once; dropping it lets the source make another.
struct Permit(Receiver<()>);

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = self.0.try_recv();
    }
}

/// What the stages of a pipeline share.
struct Shared<E> {
    first: Mutex<Option<E>>,
    /// A child of the caller's.
    cancelled: Stop,
    stop: Stop,
    stopped: fn() -> E,
}

impl<E> Shared<E> {
    fn fail(&self, error: E) {
        // Before the switch: what the others report because of it must not come first.
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.cancelled.stop();
    }

    /// Whether work goes on. A caller's stop becomes an error.
    fn goes_on(&self) -> bool {
        if self.stop.is_stopped() {
            self.fail((self.stopped)());
        }
        !self.cancelled.is_stopped()
    }
}

/// Cancels the pipeline if its thread panics: the others would wait for the item that it was at.
struct OnPanic<E>(Arc<Shared<E>>);

impl<E> Drop for OnPanic<E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancelled.stop();
        }
    }
}

/// Where stages are added; see [`run`].
pub struct Stages<'scope, 'env, E> {
    scope: &'scope Scope<'scope, 'env>,
    shared: Arc<Shared<E>>,
    timeline: Timeline,
}

/// The end of a queue that a stage reads.
pub struct Inlet<T>(Receiver<Item<T>>);

/// The end of a queue that a source writes.
pub struct Outlet<T, E> {
    queue: Sender<Item<T>>,
    permits: (Sender<()>, Receiver<()>),
    next: std::cell::Cell<u64>,
    shared: Arc<Shared<E>>,
    timeline: Timeline,
    stage: Cow<'static, str>,
}

/// Runs the stages that `build` adds and waits until all of them have ended. The first error cancels the rest and is returned;
/// so does `stop`, with the error that `stopped` makes.
///
/// ```
/// use tenfold::engine::Stop;
/// use tenfold_pipeline::{Timeline, run};
/// let timeline = Timeline::new();
/// let mut squares = Vec::new();
/// run(&timeline, &Stop::new(), || "stopped", |stages| {
///     let numbers = stages.source("count", 8, |out| (0..100u64).try_for_each(|n| out.send(n)));
///     let squared = stages.stage("square", 2, numbers, |n| Ok((n * n, 8)));
///     stages.sink("keep", squared, |n| {
///         squares.push(n);
///         Ok(8)
///     });
/// })?;
/// assert!(squares.iter().copied().eq((0..100).map(|n| n * n)));
/// # Ok::<(), &str>(())
/// ```
pub fn run<'env, E: Send + 'env>(
    timeline: &Timeline,
    stop: &Stop,
    stopped: fn() -> E,
    build: impl for<'scope> FnOnce(Stages<'scope, 'env, E>),
) -> Result<(), E> {
    let (cancelled, stop) = (stop.child(), stop.clone());
    let shared = Arc::new(Shared { first: Mutex::new(None), cancelled, stop, stopped });
    std::thread::scope(|scope| {
        build(Stages { scope, shared: shared.clone(), timeline: timeline.clone() });
    });
    let first = shared.first.lock().unwrap_or_else(PoisonError::into_inner).take();
    first.map_or(Ok(()), Err)
}

impl<'scope, 'env, E: Send + 'env> Stages<'scope, 'env, E> {
    /// Turned on by the first error and by the caller's stop: for work inside a stage that takes long.
    pub fn cancelled(&self) -> Stop {
        self.shared.cancelled.clone()
    }

    /// A first stage: `work` sends items. At most `window` of them are under way at once, from here to the sink: memory follows
    /// from that, and a slow stage holds up those before it.
    pub fn source<T: Send + 'scope>(
        &self,
        stage: impl Into<Cow<'static, str>>,
        window: usize,
        work: impl FnOnce(&Outlet<T, E>) -> Result<(), E> + Send + 'scope,
    ) -> Inlet<T> {
        let (queue, inlet) = bounded(window.max(1));
        let (shared, timeline) = (self.shared.clone(), self.timeline.clone());
        let next = std::cell::Cell::new(0);
        let (permits, stage) = (bounded(window.max(1)), stage.into());
        let outlet = Outlet { queue, permits, next, shared, timeline, stage };
        self.scope.spawn(move || {
            let _guard = OnPanic(outlet.shared.clone());
            if let Err(error) = work(&outlet) {
                outlet.shared.fail(error);
            }
        });
        Inlet(inlet)
    }

    /// A stage of some workers. `work` turns an item into another and says how many bytes went through.
    pub fn stage<A: Send + 'scope, B: Send + 'scope>(
        &self,
        stage: impl Into<Cow<'static, str>>,
        workers: usize,
        inlet: Inlet<A>,
        work: impl Fn(A) -> Result<(B, u64), E> + Send + Sync + 'scope,
    ) -> Inlet<B> {
        // Items under way are bounded by the source's window already: the queue must not add to that.
        let (queue, outlet) = bounded(inlet.0.capacity().unwrap_or(1));
        let (work, worker, stage) = (Arc::new(work), Arc::new(AtomicU32::new(0)), stage.into());
        for _ in 0..workers.max(1) {
            let stage = stage.clone();
            let (inlet, queue, work) = (inlet.0.clone(), queue.clone(), work.clone());
            let (shared, timeline, worker) = (self.shared.clone(), self.timeline.clone(), worker.clone());
            self.scope.spawn(move || {
                let _guard = OnPanic(shared.clone());
                let me = worker.fetch_add(1, Ordering::Relaxed);
                for Item { number, value, permit } in inlet.iter() {
                    if !shared.goes_on() {
                        return;
                    }
                    match timeline.measure(stage.clone(), me, number.to_string(), || work(value)) {
                        Ok(value) => {
                            if queue.send(Item { number, value, permit }).is_err() {
                                return;
                            }
                        }
                        Err(error) => return shared.fail(error),
                    }
                }
            });
        }
        Inlet(outlet)
    }

    /// A last stage, which gets the items in the order of the source. `work` says how many bytes went through.
    pub fn sink<A: Send + 'scope>(
        &self,
        stage: impl Into<Cow<'static, str>>,
        inlet: Inlet<A>,
        mut work: impl FnMut(A) -> Result<u64, E> + Send + 'scope,
    ) {
        let (shared, timeline, stage) = (self.shared.clone(), self.timeline.clone(), stage.into());
        self.scope.spawn(move || {
            let _guard = OnPanic(shared.clone());
            let (mut next, mut early) = (0, BTreeMap::new());
            for Item { number, value, permit } in inlet.0.iter() {
                early.insert(number, (value, permit));
                while let Some((value, permit)) = early.remove(&next) {
                    if !shared.goes_on() {
                        return;
                    }
                    let done = timeline
                        .measure(stage.clone(), 0, next.to_string(), || work(value).map(|bytes| ((), bytes)));
                    if let Err(error) = done {
                        return shared.fail(error);
                    }
                    drop(permit);
                    next += 1;
                }
            }
        });
    }
}

impl<T, E> Outlet<T, E> {
    /// Passes an item on; waits while too many are under way. An error means that the pipeline ends.
    pub fn send(&self, value: T) -> Result<(), E> {
        let ended = |_| (self.shared.stopped)();
        loop {
            if !self.shared.goes_on() {
                return Err((self.shared.stopped)());
            }
            let wait = std::time::Duration::from_millis(50);
            if self.permits.0.send_timeout((), wait).is_ok() {
                break;
            }
        }
        let number = self.next.replace(self.next.get() + 1);
        let permit = Permit(self.permits.1.clone());
        self.queue.send(Item { number, value, permit }).map_err(ended)
    }

    /// Takes bytes of a budget; waits until there are as many. An error means that the pipeline ends.
    pub fn take(&self, budget: &Budget, bytes: u64) -> Result<Held, E> {
        budget.take(bytes, || self.shared.goes_on()).ok_or_else(|| (self.shared.stopped)())
    }

    /// Does a piece of the source's work and records it in the timeline.
    pub fn measure(&self, work: impl FnOnce() -> Result<(T, u64), E>) -> Result<T, E> {
        self.timeline.measure(self.stage.clone(), 0, self.next.get().to_string(), work)
    }

    /// Records a piece of work that ends now and began at `begin`, counted as [`Timeline::now`] does.
    pub fn record(&self, begin: std::time::Duration, bytes: u64) {
        let item = self.next.get().to_string();
        self.timeline.push(Span {
            stage: self.stage.clone(),
            worker: 0,
            item,
            begin,
            end: self.timeline.now(),
            bytes,
        });
    }

    /// The pipeline's timeline.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn order_is_the_sources_and_no_more_than_the_window_is_under_way() {
        let (alive, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut got = Vec::new();
        let timeline = Timeline::new();
        run(
            &timeline,
            &Stop::new(),
            || (),
            |stages| {
                let (alive, most) = (&alive, &most);
                let items = stages.source("s", 5, move |out| {
                    (0..200u64).try_for_each(|n| {
                        out.send(n)?;
                        most.fetch_max(alive.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        Ok(())
                    })
                });
                let worked = stages.stage("w", 4, items, |n| {
                    std::thread::sleep(Duration::from_micros(n * 7919 % 300));
                    Ok((n, 1))
                });
                stages.sink("k", worked, |n| {
                    got.push(n);
                    alive.fetch_sub(1, Ordering::SeqCst);
                    Ok(1)
                });
            },
        )
        .unwrap();
        assert!(got.iter().copied().eq(0..200));
        // One more may be sent between the sink's release of a permit and its own count.
        assert!(most.load(Ordering::SeqCst) <= 6, "{most:?}");
        assert_eq!(timeline.summary().stage("w").unwrap().items, 200);
    }

    #[test]
    fn the_first_error_ends_everything() {
        for failing in ["source", "stage", "sink"] {
            let timeline = Timeline::new();
            let ended =
                run(
                    &timeline,
                    &Stop::new(),
                    || "stopped",
                    |stages| {
                        let items = stages.source("s", 3, move |out| {
                            (0u64..).try_for_each(|n| {
                                if failing == "source" && n == 50 { Err("source") } else { out.send(n) }
                            })
                        });
                        let worked = stages.stage("w", 3, items, move |n| {
                            if failing == "stage" && n == 50 { Err("stage") } else { Ok((n, 0)) }
                        });
                        stages.sink("k", worked, move |n| {
                            if failing == "sink" && n == 50 { Err("sink") } else { Ok(0) }
                        });
                    },
                );
            assert_eq!(ended, Err(failing));
        }
    }

    #[test]
    fn what_others_report_because_of_an_error_does_not_take_its_place() {
        for _ in 0..50 {
            let ended = run(
                &Timeline::new(),
                &Stop::new(),
                || "stopped",
                |stages| {
                    let cancelled = stages.cancelled();
                    let items = stages.source("s", 4, |out| (0u64..).try_for_each(|n| out.send(n)));
                    let worked = stages.stage("w", 4, items, move |n| {
                        while n != 7 && n > 3 && !cancelled.is_stopped() {
                            std::thread::yield_now();
                        }
                        match n {
                            0..4 => Ok((n, 0)),
                            7 => Err("seven"),
                            _ => Err("cancelled"),
                        }
                    });
                    stages.sink("k", worked, |_| Ok(0));
                },
            );
            assert_eq!(ended, Err("seven"));
        }
    }

    #[test]
    fn a_panic_ends_everything() {
        let work = || {
            run(
                &Timeline::new(),
                &Stop::new(),
                || (),
                |stages| {
                    let items = stages.source("s", 2, |out| (0u64..).try_for_each(|n| out.send(n)));
                    let worked = stages.stage("w", 2, items, |n| {
                        assert!(n != 5, "five");
                        Ok((n, 0))
                    });
                    stages.sink("k", worked, |_| Ok(0));
                },
            )
        };
        assert!(std::panic::catch_unwind(work).is_err());
    }

    #[test]
    fn no_more_bytes_than_the_budget_are_under_way() {
        let (budget, under_way, most) = (Budget::new(100), AtomicUsize::new(0), AtomicUsize::new(0));
        let timeline = Timeline::new();
        run(
            &timeline,
            &Stop::new(),
            || (),
            |stages| {
                let (budget, under_way, most) = (&budget, &under_way, &most);
                let items = stages.source("s", 50, move |out| {
                    // One is larger than the budget.
                    (0..200usize).try_for_each(|n| {
                        let bytes = if n == 50 { 1000 } else { n * 7 % 60 };
                        let held = out.take(budget, bytes as u64)?;
                        let now = under_way.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(now <= 100 || now == bytes, "{now} with {bytes}");
                        most.fetch_max(now, Ordering::SeqCst);
                        out.send((bytes, held))
                    })
                });
                let worked = stages.stage("w", 4, items, move |(bytes, mut held): (usize, Held)| {
                    std::thread::sleep(Duration::from_micros(bytes as u64));
                    let less = bytes / 3;
                    under_way.fetch_sub(bytes - less, Ordering::SeqCst);
                    held.shrink(less as u64);
                    Ok(((less, held), 1))
                });
                stages.sink("k", worked, |(bytes, held)| {
                    under_way.fetch_sub(bytes, Ordering::SeqCst);
                    drop(held);
                    Ok(1)
                });
            },
        )
        .unwrap();
        assert_eq!(most.load(Ordering::SeqCst), 1000);
    }

    #[test]
    fn a_stop_ends_a_pipeline_without_end() {
        let (timeline, stop) = (Timeline::new(), Stop::new());
        let switch = stop.clone();
        let ended = run(
            &timeline,
            &stop,
            || "stopped",
            |stages| {
                let items = stages.source("s", 3, |out| (0u64..).try_for_each(|n| out.send(n)));
                stages.sink("k", items, move |n| {
                    if n == 100 {
                        switch.stop();
                    }
                    Ok(0)
                });
            },
        );
        assert_eq!(ended, Err("stopped"));
    }
}
