//! What work costs in energy, by the meter of the GPU's driver.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::work::Work;
use crate::bench::cuda::energy::Meter;

/// Energy of a work that is done over and over.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Energy {
    pub work: &'static str,
    /// Watts of the GPU meanwhile, and while it does nothing.
    pub watts: f64,
    pub idle_watts: f64,
    /// Nanojoules a value: all of it, and what an idle GPU would not have taken.
    pub nanojoules: f64,
    pub nanojoules_above_idle: f64,
}

/// The meter moves every hundred milliseconds or so: this long the error is small.
const LONG: Duration = Duration::from_secs(1);

/// Watts of a GPU that does nothing.
pub(super) fn idle(meter: &dyn Meter, quick: bool) -> Result<f64> {
    watts(meter, quick, &mut || {
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    })
    .map(|(watts, _)| watts)
}

/// Energy of a work of so many values.
pub(super) fn measure(
    meter: &dyn Meter,
    work: &mut dyn Work,
    values: usize,
    idle_watts: f64,
    quick: bool,
) -> Result<Energy> {
    let name = work.name();
    let (watts, each) = watts(meter, quick, &mut || work.run())?;
    let a_value = each * 1e9 / values.max(1) as f64;
    Ok(Energy {
        work: name,
        watts,
        idle_watts,
        nanojoules: watts * a_value,
        nanojoules_above_idle: (watts - idle_watts) * a_value,
    })
}

/// Watts while something is done over and over, and the seconds of each time.
fn watts(meter: &dyn Meter, quick: bool, what: &mut dyn FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let long = if quick { LONG / 10 } else { LONG };
    let joules = || meter.millijoules().map(|millijoules| millijoules as f64 / 1e3);
    let (before, start, mut times) = (joules()?, Instant::now(), 0u32);
    while times == 0 || start.elapsed() < long {
        what()?;
        times += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(((joules()? - before) / seconds, seconds / f64::from(times)))
}
