//! Levels of one column, by the plan's quantiser, and what a decoder will make of them.

use crate::entropy::MAX_LANES;
use crate::levels::Plan;
use crate::quant::machine::{Machine, grid};
use crate::quant::scalar::{self, Thresholds};
use crate::quant::trellis::{self, Search, Workspace};
use crate::simd::wide::WIDTH;

/// A plan's quantiser.
pub(super) struct Quantiser<'a> {
    plan: &'a Plan,
    thresholds: Thresholds,
    /// Class of each value, column by column; empty: one class.
    classes: &'a [u8],
    outputs: usize,
}

/// Memory of a worker, and the states that lanes of a trellis are in.
#[derive(Default)]
pub(super) struct Scratch {
    u: Vec<[f32; WIDTH]>,
    class: Vec<[u8; WIDTH]>,
    k: Vec<[i32; WIDTH]>,
    multiples: Vec<i32>,
    places: Vec<u32>,
    states: [u32; MAX_LANES],
    trellis: Workspace,
}

impl<'a> Quantiser<'a> {
    pub(super) fn new(plan: &'a Plan, classes: &'a [u8], outputs: usize) -> Self {
        Quantiser { plan, thresholds: Thresholds::new(&plan.costs), classes, outputs }
    }

    pub(super) fn machine(&self) -> Machine {
        self.plan.machine
    }

    /// Outputs of a column.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Finds the levels of outputs `first`, … of column `column`, and the values that a decoder will make of them. `exact` gets what no
    /// level can hold. Of a trellis, columns come whole and in order.
    #[allow(clippy::too_many_arguments, reason = "what is read, and three things that are written")]
    pub(super) fn quantise(
        &self,
        column: usize,
        first: usize,
        values: &[f32],
        scratch: &mut Scratch,
        levels: &mut [i32],
        out: &mut [f32],
        mut exact: impl FnMut(usize, f32),
    ) {
        let (plan, n) = (self.plan, values.len());
        let at = column * self.outputs + first;
        let factor = (1.0 / plan.step()) as f32;
        // In place of the values, so that they are in steps where they are looked for.
        out.iter_mut().zip(values).for_each(|(o, v)| *o = v * factor);
        let aside = |u: &f32| !(u.abs() <= plan.max_u);
        let any_aside = out.iter().any(aside);
        if any_aside {
            out.iter_mut().filter(|u| aside(u)).for_each(|u| *u = 0.0);
        }
        let class = self.classes.get(at..at + n).unwrap_or(&[]);
        scratch.multiples.resize(n, 0);
        if plan.machine == Machine::SCALAR {
            self.scalar(out, class, scratch, levels);
        } else {
            self.trellis(at, out, class, scratch, levels);
        }
        plan.dequant.real(plan.isa, &scratch.multiples, out);
        if any_aside {
            for (i, v) in values.iter().enumerate().filter(|(_, v)| aside(&(*v * factor))) {
                out[i] = *v;
                exact(first + i, *v);
            }
        }
    }

    fn scalar(&self, u: &[f32], class: &[u8], scratch: &mut Scratch, levels: &mut [i32]) {
        let rows = u.len().div_ceil(WIDTH);
        fill(&mut scratch.u, rows, u);
        fill(&mut scratch.class, if class.is_empty() { 0 } else { rows }, class);
        scratch.k.resize(rows, [0; WIDTH]);
        scalar::search(self.plan.isa, &self.thresholds, &scratch.u, &scratch.class, &mut scratch.k[..rows]);
        levels.copy_from_slice(&scratch.k.as_flattened()[..levels.len()]);
        scratch.multiples.iter_mut().zip(levels).for_each(|(m, k)| *m = grid(*k, 0));
    }

    /// `at` is the place of the column's first value in the blob.
    fn trellis(&self, at: usize, u: &[f32], class: &[u8], scratch: &mut Scratch, levels: &mut [i32]) {
        let tile = self.plan.geometry.tile_values();
        let mut done = 0;
        while done < u.len() {
            let from = (at + done) % tile;
            if from == 0 {
                scratch.states = [0; MAX_LANES];
            }
            let range = done..u.len().min(done + tile - from);
            let class = class.get(range.clone()).unwrap_or(&[]);
            self.run(from, &u[range.clone()], class, scratch, &mut levels[range.clone()], done);
            done = range.end;
        }
    }

    /// Values of one tile, from its value `from` on. The end is free: which state is best for the next column is not known yet.
    fn run(
        &self,
        from: usize,
        u: &[f32],
        class: &[u8],
        scratch: &mut Scratch,
        levels: &mut [i32],
        first: usize,
    ) {
        let (machine, lanes) = (self.plan.machine, self.plan.geometry.lanes);
        let groups = lanes.div_ceil(WIDTH);
        let lane = |i: usize| if self.plan.paired { (from + i) / 2 % lanes } else { (from + i) % lanes };
        // Lanes side by side, each from its first value on; where one has fewer, it ends with zeros.
        let mut ticks = [0usize; MAX_LANES];
        scratch.places.clear();
        for i in 0..u.len() {
            let l = lane(i);
            scratch.places.push(((ticks[l] * groups + l / WIDTH) * WIDTH + l % WIDTH) as u32);
            ticks[l] += 1;
        }
        let rows = ticks.iter().max().copied().unwrap_or(0) * groups;
        spread(&mut scratch.u, rows, &scratch.places, u);
        spread(&mut scratch.class, if class.is_empty() { 0 } else { rows }, &scratch.places, class);
        scratch.k.clear();
        scratch.k.resize(rows, [0; WIDTH]);
        let search = Search {
            machine,
            costs: &self.plan.costs,
            u: &scratch.u,
            class: &scratch.class,
            groups,
            start: &scratch.states,
        };
        trellis::search(self.plan.isa, &search, &mut scratch.trellis, &mut scratch.k);
        let found = scratch.k.as_flattened();
        for (i, (k, m)) in levels.iter_mut().zip(&mut scratch.multiples[first..]).enumerate() {
            let state = &mut scratch.states[lane(i)];
            *k = found[scratch.places[i] as usize];
            *m = grid(*k, *state & 1);
            *state = machine.next(*state, *k);
        }
    }
}

/// Values in rows of a register's width, with zeros behind them.
fn fill<T: Copy + Default>(rows: &mut Vec<[T; WIDTH]>, count: usize, values: &[T]) {
    rows.resize(count, [T::default(); WIDTH]);
    let (now, rest) = rows.as_flattened_mut().split_at_mut(values.len());
    now.copy_from_slice(values);
    rest.fill(T::default());
}

/// Values at their places in rows of a register's width, zeros elsewhere.
fn spread<T: Copy + Default>(rows: &mut Vec<[T; WIDTH]>, count: usize, places: &[u32], values: &[T]) {
    rows.clear();
    rows.resize(count, [T::default(); WIDTH]);
    let flat = rows.as_flattened_mut();
    places.iter().zip(values).for_each(|(&at, &v)| flat[at as usize] = v);
}
