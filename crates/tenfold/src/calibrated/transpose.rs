//! Rows to columns, in memory.

/// Side of the squares that are turned while they are in the nearest cache.
const SQUARE: usize = 32;

/// A matrix of `rows` rows, column by column.
pub(super) fn transpose<T: Copy + Default>(values: &[T], rows: usize) -> Vec<T> {
    let cols = values.len() / rows.max(1);
    let mut out = vec![T::default(); values.len()];
    for r0 in (0..rows).step_by(SQUARE) {
        for c0 in (0..cols).step_by(SQUARE) {
            for r in r0..rows.min(r0 + SQUARE) {
                for c in c0..cols.min(c0 + SQUARE) {
                    out[c * rows + r] = values[r * cols + c];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_twice_changes_nothing() {
        for (rows, cols) in [(0, 0), (1, 7), (33, 65), (64, 3)] {
            let values: Vec<u32> = (0..rows as u32 * cols as u32).collect();
            let turned = transpose(&values, rows);
            assert!((0..rows * cols).all(|i| turned[i % cols * rows + i / cols] == values[i]));
            assert_eq!(transpose(&turned, cols), values);
        }
    }
}
