//! Levels of one column, by the plan's quantiser, and what a decoder will make of them.

use crate::entropy::MAX_LANES;
use crate::levels::Plan;
use crate::quant::machine::{Machine, grid};
use crate::quant::scalar::{self, Thresholds};
use crate::quant::trellis::{self, Search, Workspace};
use crate::simd::wide::WIDTH;

/// Ticks that a trellis looks beyond the end of a column. Their values lack the column's own error, which is small beside them;
/// without a look, which state a column ends in would be left to chance.
const AHEAD: usize = 5;

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
    /// Values in steps.
    steps: Vec<f32>,
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

    /// Values behind a column that its trellis looks at.
    pub(super) fn ahead(&self) -> usize {
        AHEAD * usize::from(self.plan.machine.log2_states) * self.plan.geometry.lanes
    }

    /// Finds the levels of outputs `first`, … of column `column`, and the values that a decoder will make of them. `exact` gets what no
    /// level can hold. Of a trellis, columns come whole and in order; `ahead` are values of the columns that follow.
    #[allow(clippy::too_many_arguments, reason = "what is read, and three things that are written")]
    pub(super) fn quantise(
        &self,
        column: usize,
        first: usize,
        values: &[f32],
        ahead: &[f32],
        scratch: &mut Scratch,
        levels: &mut [i32],
        out: &mut [f32],
        mut exact: impl FnMut(usize, f32),
    ) {
        let plan = self.plan;
        let at = column * self.outputs + first;
        let factor = (1.0 / plan.step()) as f32;
        let aside = |u: &f32| !(u.abs() <= plan.max_u);
        let mut steps = std::mem::take(&mut scratch.steps);
        steps.clear();
        steps.extend(values.iter().chain(ahead).map(|v| v * factor));
        let any_aside = steps.iter().any(aside);
        if any_aside {
            steps.iter_mut().filter(|u| aside(u)).for_each(|u| *u = 0.0);
        }
        let class = self.classes.get(at..at + steps.len()).unwrap_or(&[]);
        scratch.multiples.resize(values.len(), 0);
        if plan.machine == Machine::SCALAR {
            self.scalar(&steps, class, scratch, levels);
        } else {
            self.trellis(at, &steps, class, scratch, levels);
        }
        scratch.steps = steps;
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

    /// `at` is the place of the column's first value in the blob; `u` goes on behind the column.
    fn trellis(&self, at: usize, u: &[f32], class: &[u8], scratch: &mut Scratch, levels: &mut [i32]) {
        let tile = self.plan.geometry.tile_values();
        let mut done = 0;
        while done < levels.len() {
            let from = (at + done) % tile;
            if from == 0 {
                scratch.states = [0; MAX_LANES];
            }
            let end = done + tile - from;
            let seen = done..u.len().min(end);
            let class = class.get(seen.clone()).unwrap_or(&[]);
            let end = levels.len().min(end);
            self.run((from, done), &u[seen], class, scratch, &mut levels[done..end]);
            done = end;
        }
    }

    /// Values of one tile, from its value `from` on, which is value `first` of the column. Levels of the first of them are wanted; the
    /// others only show which end is a good one.
    fn run(
        &self,
        (from, first): (usize, usize),
        u: &[f32],
        class: &[u8],
        scratch: &mut Scratch,
        levels: &mut [i32],
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
