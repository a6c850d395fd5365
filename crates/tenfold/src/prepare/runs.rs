//! Some rows and columns of a tensor, spread over it, and how their elements are brought together.

use crate::error::Result;
use crate::view::TensorView;

/// Rows or columns that are taken from a tensor: `take` of `of` runs of `len` neighbours, spread evenly.
///
/// ```
/// use tenfold::prepare::Runs;
/// let runs = Runs { of: 8, take: 2, len: 16 };
/// assert_eq!([runs.start(0), runs.start(1)], [32, 96]);
/// assert_eq!(runs.count(), 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// Runs that there are, at least one.
    pub of: usize,
    /// Runs that are taken: from one to all.
    pub take: usize,
    /// Rows or columns of a run.
    pub len: usize,
}

/// Brings the elements where the rows of the first cross the columns of the second, row by row.
pub(super) type Gather<'g> = dyn Fn(Runs, Runs) -> Result<Vec<u8>> + 'g;

impl Runs {
    /// All of so many, as one run.
    pub fn all(count: usize) -> Runs {
        Runs { of: 1, take: 1, len: count }
    }

    /// About `want` of so many, in runs of `len`; all of them where as many runs are wanted as there are.
    pub(super) fn spread(all: usize, want: usize, len: usize) -> Runs {
        let (of, take) = (all / len, want.div_ceil(len));
        if take >= of { Runs::all(all) } else { Runs { of, take, len } }
    }

    /// Where run `i` of those taken starts.
    pub fn start(&self, i: usize) -> usize {
        (i * self.of + self.of / 2) / self.take * self.len
    }

    /// Rows or columns that are taken.
    pub fn count(&self) -> usize {
        self.take * self.len
    }
}

/// Gathers from a tensor in the host's memory.
pub(super) fn gather_from<'g>(view: &'g TensorView<'_>) -> impl Fn(Runs, Runs) -> Result<Vec<u8>> + 'g {
    let (width, size) = (view.cols(), view.dtype().size());
    move |rows, cols| {
        let mut out = Vec::with_capacity(rows.count() * cols.count() * size);
        for row in (0..rows.take).flat_map(|i| rows.start(i)..rows.start(i) + rows.len) {
            for i in 0..cols.take {
                out.extend_from_slice(
                    &view.data()[(row * width + cols.start(i)) * size..][..cols.len * size],
                );
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_apart_and_within() {
        for (all, want, len) in [(4096, 182, 128), (50_000, 128, 8), (1000, 100, 8), (130, 400, 128)] {
            let runs = Runs::spread(all, want, len);
            let starts: Vec<usize> = (0..runs.take).map(|i| runs.start(i)).collect();
            assert!(starts.windows(2).all(|w| w[0] + runs.len <= w[1]), "{all}");
            assert!(starts[runs.take - 1] + runs.len <= all && starts.iter().all(|s| s % runs.len == 0));
            assert!(runs.count() >= want.min(all));
        }
    }
}
