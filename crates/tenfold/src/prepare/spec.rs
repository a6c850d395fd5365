//! Chains by name, as a command line or another language states them.

use std::fmt;
use std::str::FromStr;

use super::auto::{auto, auto_remote};
use super::runs::Runs;
use super::{Dct, Delta, Hadamard, Means, Pairing, Positions, Rope, Transform, check};
use crate::error::{Error, Result};
use crate::options::{Effort, EncodeOptions, Goal};
use crate::view::{Dtype, TensorView, rows_of};

/// What is to be done to a tensor before it is quantised.
///
/// In words: `none`, `auto` (whatever takes the fewest bits), or transforms joined by `+`, in the order in which they are done:
/// `means`, `hadamard` or `hadamard:COLUMNS`, `dct` or `dct:COLUMNS`, `delta` or `delta:ROWS`, and
/// `rope:head=64,base=10000`, with `pairing=neighbours`, `turned=COLUMNS` and `first=POSITION` if need be.
///
/// ```
/// use tenfold::prepare::{Preparation, Transform};
/// use tenfold::{EncodeOptions, Goal, TensorView};
/// let chain: Preparation = "rope:head=32,base=10000,first=100+means".parse()?;
/// let values = vec![1.5f32; 4096];
/// let view = TensorView::from_slice(&values, &[64, 64])?;
/// let transforms = EncodeOptions::new(Goal::Bits(3.0)).with_prepare(chain).transforms(&view)?;
/// assert!(matches!(transforms[..], [Transform::Rope(_), Transform::Means(_)]));
/// assert!("fourier".parse::<Preparation>().is_err());
/// # Ok::<(), tenfold::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Preparation {
    /// [`Preparation::Auto`] at balanced and best effort, nothing at fast.
    #[default]
    ByEffort,
    /// Nothing.
    None,
    /// The chain that takes the fewest bits, found for each tensor by [`auto`]; none where a goal bounds the error of each value.
    Auto,
    /// These, in this order.
    Chain(Vec<Named>),
}

/// A transform whose numbers may still depend on the tensor.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Named {
    /// Means of the tensor's own columns.
    Means,
    /// A transform as it is.
    Fixed(Transform),
}

impl Preparation {
    /// The transforms for a tensor with these options.
    pub(crate) fn resolve(&self, view: &TensorView<'_>, options: &EncodeOptions) -> Result<Vec<Transform>> {
        match self.known(view.dtype(), options) {
            Some(transforms) => Ok(transforms),
            None if *self == Preparation::Auto || *self == Preparation::ByEffort => auto(view, options),
            None => self.look(view),
        }
    }

    /// The same for a tensor whose elements `gather` brings; a few are enough to find a chain.
    pub(crate) fn resolve_remote(
        &self,
        dtype: Dtype,
        shape: &[usize],
        options: &EncodeOptions,
        gather: impl Fn(Runs, Runs) -> Result<Vec<u8>>,
    ) -> Result<Vec<Transform>> {
        let (rows, cols) = (rows_of(shape), shape.last().copied().unwrap_or(1));
        if let Some(transforms) = self.known(dtype, options).or((rows * cols == 0).then(Vec::new)) {
            return Ok(transforms);
        }
        match self {
            Preparation::Chain(_) => {
                let data = gather(Runs::all(rows), Runs::all(cols))?;
                self.look(&TensorView::new(dtype, &[rows, cols], &data)?)
            }
            _ => auto_remote(dtype, (rows, cols), options, &gather),
        }
    }

    /// The transforms where nobody has to look at the tensor for them. Lossless goals have no use for any.
    fn known(&self, dtype: Dtype, options: &EncodeOptions) -> Option<Vec<Transform>> {
        let found = matches!(self, Preparation::ByEffort | Preparation::Auto);
        let none = !dtype.is_float()
            || options.goal == Goal::Lossless
            || (*self == Preparation::ByEffort && options.effort == Effort::Fast)
            || (found && options.goal.bounds_each_value());
        if none { Some(Vec::new()) } else { self.fixed() }
    }

    /// The stated transforms, with the means that the tensor has there.
    fn look(&self, view: &TensorView<'_>) -> Result<Vec<Transform>> {
        let mut transforms: Vec<Transform> = Vec::new();
        let mut values = Vec::new();
        for transform in self.stated() {
            match transform {
                Named::Fixed(transform) => transforms.push(transform.clone()),
                Named::Means => {
                    check(&transforms, view.rows(), view.cols())?;
                    values = view.to_f64().unwrap_or(values);
                    for transform in &transforms {
                        transform.forward(&mut values, view.cols(), 0);
                    }
                    transforms.push(Transform::Means(Means::measure(&values, view.cols())));
                }
            }
        }
        Ok(transforms)
    }

    /// Whether transforms are asked for, and not only allowed.
    pub fn is_asked(&self) -> bool {
        !matches!(self, Preparation::ByEffort | Preparation::None)
    }

    /// The transforms that are stated.
    pub(crate) fn stated(&self) -> &[Named] {
        match self {
            Preparation::Chain(named) => named,
            _ => &[],
        }
    }

    /// The transforms, if they are the same for every tensor.
    pub fn fixed(&self) -> Option<Vec<Transform>> {
        let fixed = |named: &Named| match named {
            Named::Fixed(transform) => Some(transform.clone()),
            Named::Means => None,
        };
        match self {
            Preparation::ByEffort | Preparation::Auto => None,
            _ => self.stated().iter().map(fixed).collect(),
        }
    }
}

impl Named {
    /// Name for people, as of [`Transform::name`].
    pub fn name(&self) -> &'static str {
        match self {
            Named::Means => "means",
            Named::Fixed(transform) => transform.name(),
        }
    }
}

impl From<Vec<Transform>> for Preparation {
    fn from(transforms: Vec<Transform>) -> Self {
        match transforms.is_empty() {
            true => Preparation::None,
            false => Preparation::Chain(transforms.into_iter().map(Named::Fixed).collect()),
        }
    }
}

impl FromStr for Preparation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "none" | "" => Ok(Preparation::None),
            "auto" => Ok(Preparation::Auto),
            transforms => Ok(Preparation::Chain(transforms.split('+').map(named).collect::<Result<_>>()?)),
        }
    }
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preparation::ByEffort => f.write_str("by effort"),
            Preparation::None => f.write_str("none"),
            Preparation::Auto => f.write_str("auto"),
            Preparation::Chain(transforms) => {
                f.write_str(&transforms.iter().map(Named::name).collect::<Vec<_>>().join(" + "))
            }
        }
    }
}

fn named(text: &str) -> Result<Named> {
    let (name, rest) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
    let transform = match name {
        "means" if rest.is_empty() => return Ok(Named::Means),
        "hadamard" => Transform::Hadamard(Hadamard::new(block(rest, 128)?, 1)?),
        "dct" => Transform::Dct(Dct::new(block(rest, 8)?)?),
        "delta" => Transform::Delta(Delta::new(if rest.is_empty() { 8 } else { number(rest)? })?),
        "rope" => Transform::Rope(rope(rest)?),
        _ => {
            return Err(Error::InvalidArgument(format!(
                "{text:?} is not a transform; there are means, hadamard, dct, delta and rope (or none, or auto)"
            )));
        }
    };
    Ok(Named::Fixed(transform))
}

fn number<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::InvalidArgument(format!("{text:?} is not a number that fits here")))
}

/// log2 of the columns of a block.
fn block(text: &str, usual: usize) -> Result<u8> {
    let columns = if text.is_empty() { usual } else { number(text)? };
    if !columns.is_power_of_two() {
        return Err(Error::InvalidArgument(format!("blocks have a power of two of columns, not {columns}")));
    }
    Ok(columns.trailing_zeros() as u8)
}

fn rope(text: &str) -> Result<Rope> {
    let (mut head, mut base, mut turned, mut first) = (None, None, None, 0);
    let mut pairing = Pairing::Halves;
    for part in text.split(',').filter(|p| !p.is_empty()) {
        match part.split_once('=') {
            Some(("head", v)) => head = Some(number(v)?),
            Some(("base", v)) => base = Some(number(v)?),
            Some(("turned", v)) => turned = Some(number(v)?),
            Some(("first", v)) => first = number(v)?,
            Some(("pairing", "halves")) => pairing = Pairing::Halves,
            Some(("pairing", "neighbours")) => pairing = Pairing::Neighbours,
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "{part:?} says nothing of rotary positions; they take head=, base=, pairing=halves or neighbours, turned= and first="
                )));
            }
        }
    }
    let (Some(head), Some(base)) = (head, base) else {
        return Err(Error::InvalidArgument("rotary positions need head= and base=".into()));
    };
    let rope = Rope::new(head, base)?.with_pairing(pairing).with_positions(Positions::From(first))?;
    rope.with_turned(turned.unwrap_or(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_steps() {
        // Columns with means of their own, and what nobody can tell from its neighbours.
        let noise = |i: u32| f32::from((i.wrapping_mul(2_654_435_761) >> 16) as u16) / 65536.0;
        let values: Vec<f32> = (0..4096).map(|i| (i * 37 % 64) as f32 + noise(i)).collect();
        let view = TensorView::from_slice(&values, &[64, 64]).unwrap();
        let transforms = |text: &str, goal: Goal| -> Result<Vec<String>> {
            let transforms = text.parse::<Preparation>()?.resolve(&view, &EncodeOptions::new(goal))?;
            Ok(transforms.iter().map(|s| s.name().to_owned()).collect())
        };
        let bits = Goal::Bits(3.0);
        assert!(transforms("none", bits).unwrap().is_empty());
        assert_eq!(transforms("auto", bits).unwrap()[0], "means");
        assert_eq!(transforms("dct:8+means", bits).unwrap(), ["DCT", "means"]);
        assert_eq!(transforms("hadamard + delta:4", bits).unwrap(), ["Hadamard", "delta"]);
        assert_eq!(
            transforms("rope:head=8,base=1e4,turned=4,pairing=neighbours", bits).unwrap(),
            ["rotary positions"]
        );
        assert!(transforms("means", Goal::Lossless).unwrap().is_empty());
        let fixed =
            |text: &str| text.parse::<Preparation>().unwrap().fixed().map(|transforms| transforms.len());
        assert_eq!(
            [fixed("none"), fixed("dct+delta"), fixed("auto"), fixed("dct+means")],
            [Some(0), Some(2), None, None]
        );
        for bad in [
            "meens",
            "means:3",
            "dct:12",
            "dct:64",
            "delta:1",
            "rope",
            "rope:head=8",
            "rope:head=8,base=x",
            "rope:heads=8,base=2",
            "means++dct",
        ] {
            assert!(transforms(bad, bits).is_err(), "{bad}");
        }
        // A head that does not divide the columns is found where means ask for what is before them.
        assert!(transforms("rope:head=48,base=1e4+means", bits).is_err());
        assert_eq!(
            "rope:head=8,base=1e4+means".parse::<Preparation>().unwrap().to_string(),
            "rotary positions + means"
        );
    }
}
