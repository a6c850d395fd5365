//! The search along a ladder of whole numbers, such as a video codec's quantisers.

use std::ops::RangeInclusive;

use super::bracket::Bracket;

/// What a search along a ladder came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rung {
    /// The last rung that gives at least what is wanted, and what it gives.
    Last(u32, f64),
    /// Not even the first does; what it gives.
    None(f64),
}

/// The last rung whose number is at least `want`: bits a value, or what falls like them. `start` is tried first; `octave` is about
/// how many rungs take a bit off.
pub fn last_rung<E>(
    rungs: RangeInclusive<u32>,
    start: u32,
    octave: f64,
    want: f64,
    mut trial: impl FnMut(u32) -> Result<f64, E>,
) -> Result<Rung, E> {
    let mut bracket = Bracket::default();
    // The last that is known to give enough, and the first that does not; at first those beyond the ends.
    let (mut enough, mut less) = (i64::from(*rungs.start()) - 1, i64::from(*rungs.end()) + 1);
    let mut given = f64::NAN;
    let mut rung = i64::from(start);
    while less - enough > 1 {
        rung = rung.clamp(enough + 1, less - 1);
        let got = trial(rung as u32)?;
        if got >= want {
            (enough, given) = (rung, got);
        } else {
            less = rung;
            given = if enough < i64::from(*rungs.start()) { got } else { given };
        }
        bracket.note(rung as f64 / octave, got, want);
        rung = (bracket.next(want, got - want) * octave) as i64;
    }
    let none = enough < i64::from(*rungs.start());
    Ok(if none { Rung::None(given) } else { Rung::Last(enough as u32, given) })
}
