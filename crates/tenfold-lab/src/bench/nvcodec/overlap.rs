//! How much of one work's time hides behind products of matrices: one after the other, both at once, and what would be best.

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use super::trace::Trace;
use super::work::{Products, Work};
use crate::metrics::median;

/// Seconds, medians of all runs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Overlap {
    pub work: &'static str,
    /// Rounds of 30 products.
    pub rounds: usize,
    /// The work alone, and the products alone.
    pub alone: f64,
    pub products: f64,
    /// One after the other.
    pub serial: f64,
    /// Both at once.
    pub parallel: f64,
    /// The longer of the two: nothing could be less.
    pub best: f64,
    /// What was saved of what could be.
    pub share: f64,
    /// How much longer the products take meanwhile, by the device's clock, as a share.
    pub slowdown: f64,
}

/// Measures. Rounds of products are as many as take about as long as the work, so that there is most to hide.
pub(super) fn measure(
    work: &mut dyn Work,
    products: &mut Products,
    repeats: usize,
    trace: &Trace,
) -> Result<Overlap> {
    let name = work.name();
    products.rounds = 1;
    // Warm: kernels are loaded, decoders are made, clocks are up.
    work.run()?;
    products.run()?;
    let ((), once) = trace.span("first", name, || work.run())?;
    products.run()?;
    products.rounds = (once / products.seconds.max(1e-9)).round().clamp(1.0, 1e3) as usize;
    let (mut alone, mut of_products, mut clocked) = (Vec::new(), Vec::new(), Vec::new());
    let (mut serial, mut parallel, mut meanwhile) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let ((), first) = trace.span("serial", name, || work.run())?;
        let ((), second) = trace.span("serial", "products", || products.run())?;
        alone.push(first);
        of_products.push(second);
        clocked.push(products.seconds);
        serial.push(first + second);
        let (_, both) = trace.span("both", name, || at_once(work, products, trace))?;
        parallel.push(both);
        meanwhile.push(products.seconds);
    }
    let (alone, of_products, serial, parallel) =
        (median(&alone), median(&of_products), median(&serial), median(&parallel));
    let best = alone.max(of_products);
    Ok(Overlap {
        work: name,
        rounds: products.rounds,
        alone,
        products: of_products,
        serial,
        parallel,
        best,
        share: (serial - parallel) / (serial - best).max(1e-12),
        slowdown: median(&meanwhile) / median(&clocked).max(1e-12) - 1.0,
    })
}

/// Both, each from a thread of its own.
fn at_once(work: &mut dyn Work, products: &mut Products, trace: &Trace) -> Result<()> {
    let name = work.name();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| trace.span("work", name, || work.run()));
        let mine = trace.span("products", "products", || products.run());
        let other = other.join().map_err(|_| anyhow!("the thread of the work panicked"))?;
        mine.and(other).map(|_| ()).context("both at once")
    })
}
