//! One tile from elements to symbols: the encoder's side, free to change.

use super::check::{Checked, check};
use super::dequant::Dequant;
use super::exact::Exact;
use super::low::LowBits;
use super::pairs::{BLOCK, join, part};
use super::symbols::Symbols;
use crate::blob::{Geometry, TileRange};
use crate::entropy::MAX_LANES;
use crate::entropy::class::ClassMap;
use crate::entropy::fit::Counts;
use crate::entropy::table_code::Coded;
use crate::quant::cost::CostTable;
use crate::quant::machine::Machine;
use crate::quant::scalar::Thresholds;
use crate::quant::trellis::{Search, Workspace};
use crate::quant::{scalar, trellis};
use crate::simd::wide::WIDTH;
use crate::simd::{Isa, multiversion};
use crate::view::{TensorView, load_scaled};

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
    pub isa: Isa,
    pub machine: Machine,
    pub geometry: Geometry,
    /// Whether levels are coded in pairs.
    pub paired: bool,
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
    /// Whether to count symbols.
    pub count: bool,
    /// Other costs for the first lanes of every tile, with their number.
    pub other: Option<(CostTable, usize)>,
    /// Tables of a tensor like this one, near which its own are looked for; none if there is no such tensor.
    pub tables: Vec<Coded>,
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
    /// Table · 256 + symbol; in the order of lanes where levels are coded in pairs, with whole blocks.
    pub symbols: Vec<u16>,
    /// Pairs to code, or 0.
    pub pairs: usize,
    /// Packed raw low bits, if any class has them.
    pub low: Option<Vec<u8>>,
    /// Levels without a symbol, low bits removed, in order.
    pub escapes: Vec<i32>,
    pub exact: Exact,
    pub all_zero: bool,
    /// Occurrences by table, if the plan asks for them.
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
    symbols: Vec<u16>,
    /// Levels in the order of values, where that of lanes is another.
    joined: Vec<i32>,
}

impl TileWork {
    /// Takes back the memory of a tile that is no longer needed.
    pub(crate) fn reuse(&mut self, tile: Quantised) {
        self.symbols = tile.symbols;
    }
}

/// Values of a piece of a scalar tile: small enough to stay in the nearest cache from stage to stage.
const PIECE: usize = 4096;

/// Finds the levels of a tile.
pub(crate) fn quantise_tile(
    plan: &Plan,
    view: &TensorView<'_>,
    tile: TileRange,
    work: &mut TileWork,
) -> Quantised {
    let size = view.dtype().size();
    let data = &view.data()[tile.start * size..][..tile.len * size];
    let mut sink = Sink {
        symbols: Symbols::new(plan, tile.len, std::mem::take(&mut work.symbols)),
        exact: Exact::default(),
        checked: Checked::default(),
        thresholds: [&plan.costs]
            .into_iter()
            .chain(plan.other.as_ref().map(|o| &o.0))
            .map(Thresholds::new)
            .collect(),
    };
    // A trellis runs through the whole tile; a scalar quantiser looks at each value alone.
    let piece = if plan.machine == Machine::SCALAR { PIECE } else { tile.len.max(1) };
    for first in (0..tile.len).step_by(piece) {
        let len = piece.min(tile.len - first);
        let data = &data[first * size..][..len * size];
        quantise_piece(plan, tile.start, first, data, len, work, &mut sink);
    }
    sink.symbols.into_tile(plan, tile.len, sink.exact, sink.checked)
}

/// A tile whose levels were found elsewhere, in the order of its values. What no level holds is in `exact`.
pub(crate) fn tile_of_levels(
    plan: &Plan,
    tile: TileRange,
    levels: &[i32],
    exact: Exact,
    work: &mut TileWork,
) -> Quantised {
    let len = if plan.paired { tile.len.next_multiple_of(BLOCK) } else { tile.len };
    work.joined.clear();
    work.joined.extend_from_slice(levels);
    work.joined.resize(len, 0);
    work.class.clear();
    if let Some(map) = &plan.classes {
        work.class.resize(len.div_ceil(WIDTH), [0; WIDTH]);
        let flat = work.class.as_flattened_mut();
        map.fill(tile.start, &mut flat[..tile.len]);
        // A second value that is not there has the class of the first.
        if plan.paired && tile.len % 2 == 1 {
            flat[tile.len] = flat[tile.len - 1];
        }
    }
    let class = &mut work.class.as_flattened_mut()[..if plan.classes.is_some() { len } else { 0 }];
    let mut symbols = Symbols::new(plan, tile.len, std::mem::take(&mut work.symbols));
    if plan.paired {
        part(&mut work.joined);
        part(class);
        symbols.push_pairs(plan, &work.joined, class);
    } else {
        symbols.push(plan, &work.joined, class);
    }
    symbols.into_tile(plan, tile.len, exact, Checked::default())
}

/// Where the pieces of a tile go.
struct Sink {
    symbols: Symbols,
    exact: Exact,
    checked: Checked,
    /// Of a scalar quantiser: for the plan's costs, then for its other costs.
    thresholds: Vec<Thresholds>,
}

/// Finds the levels of values `first`, … of the tile that starts at value `start`.
fn quantise_piece(
    plan: &Plan,
    start: usize,
    first: usize,
    data: &[u8],
    len: usize,
    work: &mut TileWork,
    sink: &mut Sink,
) {
    let size = plan.dequant.dtype.size();
    let lanes = plan.geometry.lanes;
    let groups = lanes.div_ceil(WIDTH);
    let rows = match plan.paired {
        true => len.div_ceil(BLOCK) * (BLOCK / WIDTH),
        false => len.div_ceil(lanes) * groups,
    };
    let bounded = matches!(plan.rounding, Rounding::Bounded(_));

    // 1. Values in steps, lane by lane; what no level can hold is set aside.
    work.u.resize(rows, [0.0; WIDTH]);
    let flat = work.u.as_flattened_mut();
    load_scaled(plan.isa, plan.dequant.dtype, data, plan.step(), &mut flat[..len]);
    flat[len..].fill(0.0);
    set_aside(plan.isa, plan.max_u, &mut flat[..len], |at| {
        // Under a bound the check below finds these and more.
        if !bounded {
            sink.exact.push(first + at, &data[at * size..][..size]);
        }
    });
    if plan.paired {
        part(flat);
    } else {
        spread_lanes(flat, lanes, len);
    }

    // 2. Classes.
    work.class.clear();
    if let Some(map) = &plan.classes {
        work.class.resize(rows, [0; WIDTH]);
        let flat = work.class.as_flattened_mut();
        map.fill(start + first, &mut flat[..len]);
        if plan.paired {
            // A second value that is not there has the class of the first.
            if len % 2 == 1 {
                flat[len] = flat[len - 1];
            }
            part(flat);
        } else {
            spread_lanes(flat, lanes, len);
        }
    }

    // 3. Levels.
    work.k.resize(rows, [0; WIDTH]);
    find_levels(plan, &plan.costs, sink.thresholds.first(), groups, work);
    if let Some((costs, lanes)) = &plan.other {
        let mostly = std::mem::take(&mut work.k);
        work.k.resize(rows, [0; WIDTH]);
        find_levels(plan, costs, sink.thresholds.get(1), groups, work);
        for (row, (k, mostly)) in work.k.iter_mut().zip(&mostly).enumerate() {
            // Lanes of this row start at a multiple of the width.
            let keep = lanes.saturating_sub(row % groups * WIDTH).min(WIDTH);
            k[keep..].copy_from_slice(&mostly[keep..]);
        }
    }
    if plan.paired {
        if plan.measure || bounded {
            work.joined.clear();
            work.joined.extend_from_slice(work.k.as_flattened());
            join(&mut work.joined);
            check(plan, first, data, &work.joined[..len], &mut sink.exact, &mut sink.checked);
        }
        sink.symbols.push_pairs(plan, work.k.as_flattened(), work.class.as_flattened());
        return;
    }
    gather_lanes(work.k.as_flattened_mut(), lanes, len);
    if plan.classes.is_some() {
        gather_lanes(work.class.as_flattened_mut(), lanes, len);
    }
    let k = &work.k.as_flattened()[..len];
    let class = work.class.as_flattened().get(..len).unwrap_or(&[]);

    // 4. Error, if it is requested or bounded.
    if plan.measure || bounded {
        check(plan, first, data, k, &mut sink.exact, &mut sink.checked);
    }

    // 5. Symbols.
    sink.symbols.push(plan, k, class);
}

/// Levels of the values in `work.u`.
fn find_levels(
    plan: &Plan,
    costs: &CostTable,
    thresholds: Option<&Thresholds>,
    groups: usize,
    work: &mut TileWork,
) {
    let k = &mut work.k[..];
    match (plan.rounding, thresholds) {
        (Rounding::Searched, Some(thresholds)) if plan.machine == Machine::SCALAR => {
            scalar::search(plan.isa, thresholds, &work.u, &work.class, k)
        }
        (Rounding::Searched, _) => {
            let search = Search {
                machine: plan.machine,
                costs,
                u: &work.u,
                class: &work.class,
                groups,
                start: &[0; MAX_LANES],
            };
            trellis::search(plan.isa, &search, &mut work.trellis, k);
        }
        (Rounding::Bounded(_), _) => scalar::nearest(plan.isa, &work.u, k),
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

/// Zeroes values that are not finite or out of range, and reports where they are.
fn set_aside(isa: Isa, most: f32, u: &mut [f32], mut found: impl FnMut(usize)) {
    for (i, chunk) in u.chunks_mut(1024).enumerate() {
        if too_large(isa, chunk, most) {
            for (j, v) in chunk.iter_mut().enumerate().filter(|(_, v)| !(v.abs() <= most)) {
                found(i * 1024 + j);
                *v = 0.0;
            }
        }
    }
}

/// With fewer lanes than a register has, moves each tick to a row of its own.
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
