//! The encoder's search through the trellis: Viterbi over 16 lanes at a time.
//!
//! Cost of a path: Σ (u − m)² + λ·bits(level), u the value in steps. Both ways into a state come from
//! the same quantiser (see `machine`), so a decision is one bit, the parity of the level, and the
//! quantiser is the top bit of the state. Everything here could change without touching a decoder.

use super::cost::{CostTable, ENTRIES, LEVELS, SIGN};
use super::machine::Machine;
use crate::entropy::MAX_LANES;
use crate::simd::wide::{WIDTH, Wide};
use crate::simd::{Isa, widen};

/// Values beyond this many steps are not searched but stored exactly (their level would not fit).
pub(crate) const MAX_U: f32 = 100_000.0;

type Lanes<T> = [T; WIDTH];

/// Memory of a search, reused from tile to tile.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Best candidates of quantiser 0 (even level in the low half, odd in the high), then quantiser 1.
    candidates: Vec<[Lanes<i32>; 2]>,
    /// Decision bits: for each tick and state, one bit a lane.
    decisions: Vec<u16>,
}

/// What to search. Rows of `u` and `class` hold [`WIDTH`] lanes of one tick; `groups` rows make a tick.
pub(crate) struct Search<'a> {
    pub machine: Machine,
    pub costs: &'a CostTable,
    /// Values in steps; none may exceed [`MAX_U`].
    pub u: &'a [Lanes<f32>],
    /// Class of each value; empty: class 0 throughout.
    pub class: &'a [Lanes<u8>],
    pub groups: usize,
    /// States that lanes start in.
    pub start: &'a [u32; MAX_LANES],
}

/// Finds the levels of all lanes and writes them to rows laid out like those of `u`.
pub(crate) fn search(isa: Isa, search: &Search<'_>, work: &mut Workspace, out: &mut [Lanes<i32>]) {
    let ticks = search.u.len() / search.groups;
    work.candidates.resize(ticks.max(work.candidates.len()), [[0; WIDTH]; 2]);
    let decisions = ticks * search.machine.states() as usize;
    // One entry more: a gather reads two neighbours.
    work.decisions.resize((decisions + 1).max(work.decisions.len()), 0);
    for group in 0..search.groups {
        let mut viterbi = Viterbi { search, ticks, group, work, out };
        match search.machine.log2_states {
            2 => viterbi.run::<4>(isa),
            3 => viterbi.run::<8>(isa),
            4 => viterbi.run::<16>(isa),
            5 => viterbi.run::<32>(isa),
            6 => viterbi.run::<64>(isa),
            7 => viterbi.run::<128>(isa),
            _ => viterbi.run::<256>(isa),
        }
    }
}

/// The pass over one group of lanes, forward and back.
struct Viterbi<'a> {
    search: &'a Search<'a>,
    ticks: usize,
    group: usize,
    work: &'a mut Workspace,
    out: &'a mut [Lanes<i32>],
}

impl Viterbi<'_> {
    /// Row of a tick.
    #[inline(always)]
    fn row(&self, t: usize) -> usize {
        t * self.search.groups + self.group
    }

    fn run<const S: usize>(&mut self, isa: Isa) {
        let metric = forward::<S>(isa, self);
        let mut state = [0i32; WIDTH];
        for (lane, best) in state.iter_mut().enumerate() {
            let mut low = f32::INFINITY;
            for (s, m) in metric.iter().enumerate() {
                if m[lane] < low {
                    low = m[lane];
                    *best = s as i32;
                }
            }
        }
        backward::<S>(isa, self, &state);
    }

    /// Computes the costs of the best path into every state, tick by tick, and stores candidates and decisions.
    #[inline(always)]
    fn forward_on<W: Wide, const S: usize>(&mut self) -> Box<[Lanes<f32>; S]> {
        // A large number instead of infinity: it must survive additions.
        let first = self.group * WIDTH;
        let begins = |s: usize, lane: usize| self.search.start.get(first + lane) == Some(&(s as u32));
        let start: [W::F; S] = std::array::from_fn(|s| {
            W::load(&std::array::from_fn(|lane| if begins(s, lane) { 0.0 } else { 1e30 }))
        });
        let mut banks = [start; 2];
        let machine = self.search.machine;
        let parity = machine.on_parity as usize;
        // The top bit of the feedback is the quantiser bit itself.
        let feedback = machine.on_quantiser as usize & (S / 2 - 1);
        // Both states of a butterfly differ in this bit, so visiting those without it visits each once.
        let pivot = 1usize << parity.trailing_zeros();
        let classless = [0i32; WIDTH];
        for t in 0..self.ticks {
            let row = self.row(t);
            let base = match self.search.class.get(row) {
                Some(c) => c.map(|c| c as i32 * (2 * LEVELS as i32)),
                None => classless,
            };
            let cost =
                branch::<W>(&self.search.u[row], &base, self.search.costs, &mut self.work.candidates[t]);
            let bits = &mut self.work.decisions[t * S..][..S];
            let (first, second) = banks.split_at_mut(1);
            let (now, next) =
                if t % 2 == 0 { (&first[0], &mut second[0]) } else { (&second[0], &mut first[0]) };
            for q in 0..2 {
                let (even, odd) = (cost[2 * q], cost[2 * q + 1]);
                for r in 0..S / 2 {
                    if r & pivot != 0 {
                        continue;
                    }
                    let twin = r ^ parity;
                    let a = now[2 * (r ^ (feedback * q)) + q];
                    let b = now[2 * (twin ^ (feedback * q)) + q];
                    for (to, even_from, odd_from) in [(r, a, b), (twin, b, a)] {
                        let to = to + q * (S / 2);
                        let c0 = W::add(even_from, even);
                        let c1 = W::add(odd_from, odd);
                        let take = W::lt(c1, c0);
                        next[to] = W::pick(take, c0, c1);
                        bits[to] = W::bits(take);
                    }
                }
            }
        }
        let mut metric = Box::new([[0.0; WIDTH]; S]);
        for (m, v) in metric.iter_mut().zip(banks[self.ticks % 2]) {
            W::store(v, m);
        }
        metric
    }

    /// Follows the decisions back from the last states and writes the levels.
    #[inline(always)]
    fn backward_on<W: Wide, const S: usize>(&mut self, state: &Lanes<i32>) {
        let machine = self.search.machine;
        let (h0, h1) = (W::splat_i(machine.on_quantiser as i32), W::splat_i(machine.on_parity as i32));
        let (one, zero, half) = (W::splat_i(1), W::splat_i(0), W::splat_i(0xffff));
        let top = W::splat_i(S.trailing_zeros() as i32 - 1);
        let lane = W::load_i(&std::array::from_fn(|l| l as i32));
        let mut s = W::load_i(state);
        for t in (0..self.ticks).rev() {
            let row = self.row(t);
            let word = W::gather_u16::<S>(&self.work.decisions[t * S..], s);
            let odd = W::and_i(W::shr_each(word, lane), one);
            let q = W::shr_each(s, top);
            let pair = &self.work.candidates[t];
            let both = W::pick_i(q, W::load_i(&pair[0]), W::load_i(&pair[1]));
            let k = W::and_i(W::shr_each(both, W::shl_i::<4>(odd)), half);
            W::store_i(W::with_sign(k, W::load(&self.search.u[row])), &mut self.out[row]);
            let fed = W::xor_i(W::and_i(W::sub_i(zero, q), h0), W::and_i(W::sub_i(zero, odd), h1));
            let back = W::shl_i::<1>(W::xor_i(s, fed));
            s = W::and_i(W::or_i(back, q), W::splat_i(S as i32 - 1));
        }
    }
}

widen! { fn forward / forward_on<const S: usize>(viterbi: &mut Viterbi<'_>) -> Box<[Lanes<f32>; S]> }
widen! { fn backward / backward_on<const S: usize>(viterbi: &mut Viterbi<'_>, state: &Lanes<i32>) }

#[inline(always)]
fn forward_on<W: Wide, const S: usize>(viterbi: &mut Viterbi<'_>) -> Box<[Lanes<f32>; S]> {
    viterbi.forward_on::<W, S>()
}

#[inline(always)]
fn backward_on<W: Wide, const S: usize>(viterbi: &mut Viterbi<'_>, state: &Lanes<i32>) {
    viterbi.backward_on::<W, S>(state)
}

/// The nearest even and odd level of each quantiser and what they cost. Zero is tried beside the
/// nearest even level, where rate and distance disagree most.
#[inline(always)]
fn branch<W: Wide>(
    u: &Lanes<f32>,
    base: &Lanes<i32>,
    costs: &CostTable,
    found: &mut [Lanes<i32>; 2],
) -> [W::F; 4] {
    let table: &[f32; ENTRIES] = &costs.bits;
    let real = W::load(u);
    let a = W::abs(real);
    let t = W::mul(a, W::splat(0.25));
    let sign = W::splat_i(SIGN as i32);
    let base = W::add_i(W::load_i(base), W::sub_i(sign, W::zero_where(W::lt(real, W::splat(0.0)), sign)));
    let base = [base, W::add_i(base, W::splat_i(LEVELS as i32))];
    let top = W::splat_i(LEVELS as i32 - 1);
    let rate = |q: usize, k: W::I| W::gather(table, W::add_i(base[q], W::min_i(k, top)));
    let apart = |m: W::I| {
        let d = W::sub(a, W::to_f(m));
        W::mul(d, d)
    };
    let nearest = |shift: f32| W::trunc(W::add(t, W::splat(shift)));
    let zero = W::mul(a, a);

    let mut cost = [W::splat(0.0); 4];
    for q in 0..2 {
        // Grid points of the even levels: 4j, or 4j − 1 (0 for j = 0); of the odd ones: 4j + 2, or 4j + 1.
        let (shift_even, shift_odd) = if q == 0 { (0.5, 0.0) } else { (0.75, 0.25) };
        let j = nearest(shift_even);
        let k = W::shl_i::<1>(j);
        let m = W::max_i(W::add_i(W::shl_i::<2>(j), W::splat_i(-(q as i32))), W::splat_i(0));
        let near = W::add(apart(m), rate(q, k));
        let none = W::add(zero, W::gather(table, base[q]));
        let drop = W::lt(none, near);
        let even = W::zero_where(drop, k);
        cost[2 * q] = W::pick(drop, near, none);

        let j = nearest(shift_odd);
        let odd = W::add_i(W::shl_i::<1>(j), W::splat_i(1));
        let m = W::add_i(W::shl_i::<2>(j), W::splat_i(2 - q as i32));
        cost[2 * q + 1] = W::add(apart(m), rate(q, odd));
        W::store_i(W::or_i(even, W::shl_i::<16>(odd)), &mut found[q]);
    }
    cost
}
