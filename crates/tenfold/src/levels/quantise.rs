//! One tile from elements to symbols: the encoder's side, free to change.

use super::dequant::Dequant;
use super::exact::Exact;
use super::low::LowBits;
use crate::blob::{Geometry, TileRange};
use crate::entropy::class::ClassMap;
use crate::entropy::fit::Counts;
use crate::entropy::{ESCAPE, MAX_LANES};
use crate::quant::cost::CostTable;
use crate::quant::machine::{Machine, grid};
use crate::quant::trellis::{Search, Workspace};
use crate::quant::{scalar, trellis};
use crate::simd::wide::WIDTH;
use crate::simd::{Level, multiversion};
use crate::view::{TensorView, load_scaled, value};

/// How reals become levels.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Rounding {
    /// Weighing distortion against rate.
    Searched,
    /// To the nearest level, every reconstructed value checked against this bound.
    Bounded(f64),
}

/// Everything that the tiles of a tensor have in common before tables are known.
#[derive(Clone)]
pub(crate) struct Plan {
    pub level: Level,
    pub machine: Machine,
    pub geometry: Geometry,
    pub rounding: Rounding,
    pub low: LowBits,
    /// Values are measured in this unit where their squares are added up.
    pub unit: f64,
    /// Values beyond this many steps are stored exactly.
    pub max_u: f32,
    pub costs: CostTable,
    pub classes: Option<ClassMap>,
    pub dequant: Dequant,
    /// Whether to measure the error of the reconstructed values.
    pub measure: bool,
    /// Other costs for the first so many lanes of every tile.
    pub other: Option<(CostTable, usize)>,
}

impl Plan {
    /// The step in the dtype's own units.
    pub(crate) fn step(&self) -> f64 {
        self.dequant.scale * super::params::UNITS as f64
    }

    pub(crate) fn class_count(&self) -> usize {
        self.classes.as_ref().map_or(1, ClassMap::classes)
    }
}

/// A tile's levels as symbols, ready for a coder.
pub(crate) struct Quantised {
    /// Table · 256 + symbol.
    pub symbols: Vec<u16>,
    /// Packed raw low bits, if any class has them.
    pub low: Option<Vec<u8>>,
    /// Levels without a symbol, low bits removed, in order.
    pub escapes: Vec<i32>,
    pub exact: Exact,
    pub all_zero: bool,
    /// Occurrences by table.
    pub counts: Vec<Counts>,
    /// Squared error in units², and the finite values it was added up over, if the plan asks for it.
    pub squared_error: f64,
    pub measured: usize,
}

/// Memory of a worker.
#[derive(Default)]
pub(crate) struct TileWork {
    u: Vec<[f32; WIDTH]>,
    class: Vec<[u8; WIDTH]>,
    k: Vec<[i32; WIDTH]>,
    trellis: Workspace,
}

/// Finds the levels of a tile.
pub(crate) fn quantise_tile(
    plan: &Plan,
    view: &TensorView<'_>,
    tile: TileRange,
    work: &mut TileWork,
) -> Quantised {
    let size = view.dtype().size();
    let data = &view.data()[tile.start * size..][..tile.len * size];
    let lanes = plan.geometry.lanes;
    let groups = lanes.div_ceil(WIDTH);
    let steps = tile.len.div_ceil(lanes);
    work.u.clear();
    work.u.resize(steps * groups, [0.0; WIDTH]);
    let mut exact = Exact::default();

    // 1. Values in steps, lane by lane; what no level can hold is set aside.
    let flat = work.u.as_flattened_mut();
    load_scaled(plan.level, view.dtype(), data, plan.step(), &mut flat[..tile.len]);
    set_aside(plan.level, plan.max_u, &mut flat[..tile.len], |at| exact.push(at, &data[at * size..][..size]));
    spread_lanes(flat, lanes, tile.len);

    // 2. Classes.
    work.class.clear();
    if let Some(map) = &plan.classes {
        work.class.resize(steps * groups, [0; WIDTH]);
        let flat = work.class.as_flattened_mut();
        map.fill(tile.start, &mut flat[..tile.len]);
        spread_lanes(flat, lanes, tile.len);
    }

    // 3. Levels.
    work.k.resize(steps * groups, [0; WIDTH]);
    find_levels(plan, &plan.costs, groups, work);
    if let Some((costs, lanes)) = &plan.other {
        let mostly = std::mem::take(&mut work.k);
        work.k.resize(steps * groups, [0; WIDTH]);
        find_levels(plan, costs, groups, work);
        for (row, (k, mostly)) in work.k.iter_mut().zip(&mostly).enumerate() {
            // Lanes of this row start at a multiple of the width.
            let keep = lanes.saturating_sub(row % groups * WIDTH).min(WIDTH);
            k[keep..].copy_from_slice(&mostly[keep..]);
        }
    }
    gather_lanes(work.k.as_flattened_mut(), lanes, tile.len);
    if plan.classes.is_some() {
        gather_lanes(work.class.as_flattened_mut(), lanes, tile.len);
    }
    let k = &work.k.as_flattened()[..tile.len];
    let class = work.class.as_flattened().get(..tile.len).unwrap_or(&[]);

    // 4. Error, where someone wants to know it or has bounded it.
    let mut error = (0.0, 0);
    if plan.measure || matches!(plan.rounding, Rounding::Bounded(_)) {
        error = check(plan, data, k, &mut exact);
    }

    // 5. Symbols.
    symbolise(plan, k, class, exact, error)
}

/// Levels of the values in `work.u`.
fn find_levels(plan: &Plan, costs: &CostTable, groups: usize, work: &mut TileWork) {
    let k = &mut work.k[..];
    match plan.rounding {
        Rounding::Bounded(_) => scalar::nearest(plan.level, &work.u, k),
        Rounding::Searched if plan.machine == Machine::SCALAR => {
            scalar::search(plan.level, costs, &work.u, &work.class, k)
        }
        Rounding::Searched => {
            let search = Search { machine: plan.machine, costs, u: &work.u, class: &work.class, groups };
            trellis::search(plan.level, &search, &mut work.trellis, k);
        }
    }
}

multiversion! { fn too_large / too_large_inner(u: &[f32], most: f32) -> bool }

#[inline(always)]
fn too_large_inner(u: &[f32], most: f32) -> bool {
    let mut any = false;
    for v in u {
        // Written so that NaN counts as too large.
        any |= !(v.abs() <= most);
    }
    any
}

/// Zeroes what is not finite or too far out, telling where.
fn set_aside(level: Level, most: f32, u: &mut [f32], mut found: impl FnMut(usize)) {
    for (i, chunk) in u.chunks_mut(1024).enumerate() {
        if too_large(level, chunk, most) {
            for (j, v) in chunk.iter_mut().enumerate().filter(|(_, v)| !(v.abs() <= most)) {
                found(i * 1024 + j);
                *v = 0.0;
            }
        }
    }
}

/// With fewer lanes than a register is wide, moves each step to a row of its own.
fn spread_lanes<T: Copy + Default>(flat: &mut [T], lanes: usize, len: usize) {
    if lanes < WIDTH {
        for i in (0..len).rev() {
            let v = std::mem::take(&mut flat[i]);
            flat[i / lanes * WIDTH + i % lanes] = v;
        }
    }
}

/// The inverse of [`spread_lanes`].
fn gather_lanes<T: Copy>(flat: &mut [T], lanes: usize, len: usize) {
    if lanes < WIDTH {
        for i in 0..len {
            flat[i] = flat[i / lanes * WIDTH + i % lanes];
        }
    }
}

/// Reconstructs as a decoder will, adds up the error and, under a bound, stores exactly what exceeds it.
/// Returns the squared error and the finite values; those stored exactly have no error.
fn check(plan: &Plan, data: &[u8], k: &[i32], exact: &mut Exact) -> (f64, usize) {
    let size = plan.dequant.dtype.size();
    let lanes = plan.geometry.lanes;
    let mut state = [0u32; MAX_LANES];
    let mut bytes = [0u8; 256 * 8];
    let mut m = [0i32; 256];
    let (mut total, mut finite) = (0.0, 0);
    let step = plan.step();
    let mut held = Exact::default();
    for (c, (ks, xs)) in k.chunks(256).zip(data.chunks(256 * size)).enumerate() {
        for (i, (m, &k)) in m.iter_mut().zip(ks).enumerate() {
            let s = &mut state[(c * 256 + i) % lanes];
            *m = grid(k, *s & 1);
            *s = plan.machine.next(*s, k);
        }
        plan.dequant.write(plan.level, &m[..ks.len()], &mut bytes[..ks.len() * size]);
        for (i, x) in xs.chunks_exact(size).enumerate() {
            let v = value(plan.dequant.dtype, x);
            let e = v - value(plan.dequant.dtype, &bytes[i * size..][..size]);
            let in_units = e / plan.unit;
            let over = matches!(plan.rounding, Rounding::Bounded(b) if !(e.abs() <= b));
            let aside = !((v / step).abs() <= plan.max_u as f64);
            finite += v.is_finite() as usize;
            if over || !v.is_finite() {
                held.push(c * 256 + i, x);
            } else if !aside {
                total += in_units * in_units;
            }
        }
    }
    if matches!(plan.rounding, Rounding::Bounded(_)) {
        *exact = held; // a superset of what was set aside before the search
    }
    (total, finite)
}

/// Turns levels into symbols of their tables.
fn symbolise(plan: &Plan, k: &[i32], class: &[u8], exact: Exact, error: (f64, usize)) -> Quantised {
    let mut q = Quantised {
        symbols: vec![0; k.len()],
        low: None,
        escapes: Vec::new(),
        exact,
        all_zero: false,
        counts: vec![[0; 256]; plan.class_count() * 2],
        squared_error: error.0,
        measured: error.1,
    };
    let lanes = plan.geometry.lanes;
    let mut state = [0u32; MAX_LANES];
    let mut any = 0;
    let mut done = 0;
    if lanes == MAX_LANES && plan.low.none() {
        any = symbols_of_steps(plan.level, plan.machine, k, class, &mut state, &mut q.symbols);
        done = k.len() / lanes * lanes;
    }
    let low_bits = |i: usize| plan.low.of(class.get(i).copied().unwrap_or(0));
    for (i, &k) in k.iter().enumerate().skip(done) {
        let s = &mut state[i % lanes];
        let set = class.get(i).map_or(0, |&c| c as u32) * 2 + (*s & 1);
        q.symbols[i] = (set << 8) as u16 | symbol(k >> low_bits(i)) as u16;
        *s = plan.machine.next(*s, k);
        any |= k;
    }
    q.all_zero = any == 0;
    if !plan.low.none() {
        q.low = Some(plan.low.pack(k, class));
    }
    count(&q.symbols, &mut q.counts);
    if q.counts.iter().any(|c| c[ESCAPE as usize] > 0) {
        let escaped = q.symbols.iter().zip(k).enumerate().filter(|(_, (s, _))| **s as u8 == ESCAPE);
        q.escapes.extend(escaped.map(|(i, (_, &k))| k >> low_bits(i)));
    }
    q
}

/// Symbol of a level without its low bits.
#[inline(always)]
fn symbol(high: i32) -> u8 {
    if high.unsigned_abs() < 128 { high as u8 } else { ESCAPE }
}

multiversion! {
    fn symbols_of_steps / symbols_of_steps_inner(
        machine: Machine, k: &[i32], class: &[u8], state: &mut [u32; MAX_LANES], out: &mut [u16],
    ) -> i32
}

/// Whole steps of 32 lanes, no low bits; returns all levels or-ed together.
#[inline(always)]
fn symbols_of_steps_inner(
    machine: Machine,
    k: &[i32],
    class: &[u8],
    state: &mut [u32; MAX_LANES],
    out: &mut [u16],
) -> i32 {
    let mut any = [0i32; MAX_LANES];
    let mut s = *state;
    let none = [0u8; MAX_LANES];
    let classes = class.as_chunks::<MAX_LANES>().0;
    let (ks, outs) = (k.as_chunks::<MAX_LANES>().0, out.as_chunks_mut::<MAX_LANES>().0);
    for (t, (k, o)) in ks.iter().zip(outs).enumerate() {
        let c = classes.get(t).unwrap_or(&none);
        for l in 0..MAX_LANES {
            let set = (c[l] as u32) << 9 | (s[l] & 1) << 8;
            let sym = if k[l].unsigned_abs() < 128 { k[l] as u32 & 0xff } else { ESCAPE as u32 };
            o[l] = (set | sym) as u16;
            s[l] = machine.next(s[l], k[l]);
            any[l] |= k[l];
        }
    }
    *state = s;
    any.iter().fold(0, |a, b| a | b)
}

/// Counts symbols, four tables at once so that equal neighbours do not wait for each other.
fn count(symbols: &[u16], counts: &mut [Counts]) {
    let n = counts.len() * 256;
    let mut parts = vec![0u32; n * 4];
    let (quads, rest) = symbols.as_chunks::<4>();
    for s in quads {
        for (p, &s) in s.iter().enumerate() {
            parts[p * n + s as usize] += 1;
        }
    }
    rest.iter().for_each(|&s| parts[s as usize] += 1);
    for (i, c) in counts.as_flattened_mut().iter_mut().enumerate() {
        *c += (0..4).map(|p| parts[p * n + i] as u64).sum::<u64>();
    }
}
