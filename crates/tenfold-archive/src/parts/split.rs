//! Which tensors belong to which part: large ones first, each to the part that has least so far. Every process works this
//! out alike, from names and shapes alone.

use super::Part;
use crate::model::Model;
use crate::plan::Action;

/// The tensors that a part encodes, in the order of the model.
pub(super) fn tensors_of(part: Part, model: &Model, actions: &[Action]) -> Vec<usize> {
    let encoded: Vec<usize> = (0..model.items.len()).filter(|&i| actions[i].is_encode()).collect();
    let sizes: Vec<u64> = encoded.iter().map(|&i| model.items[i].bytes).collect();
    let parts = share(&sizes, part.of);
    let mine = encoded.iter().zip(parts).filter(|(_, to)| *to == part.number - 1);
    mine.map(|(&index, _)| index).collect()
}

/// The part of each size.
fn share(sizes: &[u64], parts: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(sizes[i]), i));
    let mut loads: std::collections::BinaryHeap<_> =
        (0..parts).map(|part| std::cmp::Reverse((0u64, part))).collect();
    let mut found = vec![0; sizes.len()];
    for i in order {
        if let Some(std::cmp::Reverse((load, part))) = loads.pop() {
            found[i] = part;
            loads.push(std::cmp::Reverse((load.saturating_add(sizes[i]), part)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_cover_everything() {
        let sizes = [9, 1, 5, 5, 4, 3, 3];
        let parts = share(&sizes, 3);
        let load = |part| sizes.iter().zip(&parts).filter(|(_, p)| **p == part).map(|(s, _)| s).sum::<u64>();
        assert_eq!([load(0), load(1), load(2)], [10, 9, 11]);
        assert_eq!(share(&sizes, 1), [0; 7]);
        assert_eq!(share(&[], 4), Vec::<usize>::new());
    }
}
