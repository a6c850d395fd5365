//! Lossy blobs.

use super::{Bits, Header, rans, varint};
use crate::common::to_reals;
use tenfold::Dtype;

/// Symbol of an escape.
const ESCAPE: usize = 128;

/// A table as it is stored.
#[derive(Clone, Debug)]
pub enum Table {
    Shaped(u16, u8, u8),
    /// Slots of the escape, then of the levels from the given one on.
    Measured(u32, i32, Vec<u32>),
    Again,
}

/// Slots of every symbol.
fn slots(table: &Table, before: Option<&Vec<u64>>, log: u32, halved: bool) -> Vec<u64> {
    let mut of = vec![0u64; 256];
    match table {
        Table::Again => return before.expect("a table to repeat").clone(),
        Table::Measured(escape, first, levels) => {
            of[ESCAPE] = *escape as u64;
            for (i, &f) in levels.iter().enumerate() {
                of[(first + i as i32) as u8 as usize] = f as u64;
            }
        }
        &Table::Shaped(zero, ratio, bend) => {
            let total = 1u64 << log;
            let side = (total - 1 - if halved { 0 } else { zero as u64 }) / 2;
            let (mut w, mut r) = (1u64 << 24, (ratio as u64) * 256);
            let mut weights = Vec::new();
            for _ in 0..127 {
                weights.push(w);
                w = w * r / 65536;
                r = (r * bend as u64 / 128).min(65280);
            }
            let sum: u64 = weights.iter().sum();
            for (j, w) in weights.into_iter().enumerate() {
                let f = (2 * w * side + sum) / (2 * sum);
                of[j + !halved as usize] = f;
                of[255 - j] = f;
            }
            of[ESCAPE] = 1;
            of[0] = of[0] + total - of.iter().sum::<u64>();
        }
    }
    assert_eq!(of.iter().sum::<u64>(), 1 << log, "{table:?} does not add up");
    of
}

/// Scales of rows and columns and where classes begin.
#[derive(Clone)]
pub struct Map {
    pub width: usize,
    /// Bits of a scale, and the scales.
    pub rows: (u32, Vec<u8>),
    pub cols: (u32, Vec<u8>),
    pub thresholds: Vec<u8>,
}

impl Map {
    fn class(&self, at: usize) -> usize {
        let scale = |(bits, v): &(u32, Vec<u8>), i: usize| if *bits == 0 { 0 } else { v[i] };
        let sum = scale(&self.rows, at / self.width) + scale(&self.cols, at % self.width);
        self.thresholds.iter().filter(|&&t| t <= sum).count()
    }
}

/// A lossy tensor in terms of the format.
#[derive(Clone)]
pub struct Levels {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// log2 of the number of states.
    pub nu: u8,
    pub lanes_log: u8,
    pub steps: u64,
    pub log: u8,
    pub scale: f64,
    pub offsets: Vec<i8>,
    pub map: Option<Map>,
    /// Low bits of each class.
    pub low: Vec<u8>,
    pub tables: Vec<Table>,
    /// The level of every value.
    pub k: Vec<i32>,
    /// Position in the tensor, number, element; no run crosses a tile.
    pub exact: Vec<(usize, usize, Vec<u8>)>,
}

/// The sections of a tile; every one may be made wrong.
#[derive(Clone, Default)]
pub struct Tile {
    pub coded: bool,
    pub states: Vec<u32>,
    pub words: Vec<u16>,
    pub low: Option<Vec<u8>>,
    pub width: usize,
    pub escapes: Vec<i32>,
    pub exact: Vec<(u64, u64, Vec<u8>)>,
}

impl Tile {
    pub fn bytes(&self) -> Vec<u8> {
        let code = [0, 1, 2, 0, 3][self.width];
        let flags = self.coded as u32 | code << 1 | (!self.exact.is_empty() as u32) << 3;
        let mut out = (flags | (self.words.len() as u32) << 8).to_le_bytes().to_vec();
        self.states.iter().for_each(|x| out.extend(x.to_le_bytes()));
        self.words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        if let Some(low) = &self.low {
            varint(&mut out, low.len() as u64);
            out.extend(low);
        }
        if self.width > 0 {
            varint(&mut out, self.escapes.len() as u64);
            self.escapes.iter().for_each(|e| out.extend(&e.to_le_bytes()[..self.width]));
        }
        if !self.exact.is_empty() {
            varint(&mut out, self.exact.len() as u64);
            for (gap, len, element) in &self.exact {
                varint(&mut out, *gap);
                varint(&mut out, *len);
                out.extend(element);
            }
        }
        while !out.len().is_multiple_of(4) {
            out.push(0);
        }
        out
    }
}

impl Levels {
    /// A plain start: one class, no low bits, `lanes_log` lanes of `steps` values.
    pub fn new(dtype: Dtype, shape: &[usize], nu: u8, k: Vec<i32>) -> Self {
        let tables = vec![Table::Shaped(1400, 128, 120); if nu == 0 { 1 } else { 2 }];
        Levels {
            dtype,
            shape: shape.to_vec(),
            nu,
            lanes_log: 1,
            steps: k.len().div_ceil(2).max(1) as u64,
            log: 12,
            scale: 1.0 / 512.0,
            offsets: Vec::new(),
            map: None,
            low: vec![0],
            tables,
            k,
            exact: Vec::new(),
        }
    }

    fn class(&self, at: usize) -> usize {
        self.map.as_ref().map_or(0, |m| m.class(at))
    }

    /// The codec's part of the header.
    pub fn params(&self) -> Vec<u8> {
        let mut out = vec![self.nu, self.lanes_log];
        varint(&mut out, self.steps);
        out.push(self.log);
        match self.dtype {
            Dtype::F64 => out.extend(self.scale.to_le_bytes()),
            _ => out.extend((self.scale as f32).to_le_bytes()),
        }
        out.push(self.offsets.len() as u8);
        out.extend(self.offsets.iter().map(|&o| o as u8));
        match &self.map {
            None => out.push(1),
            Some(map) => {
                out.push(map.thresholds.len() as u8 + 1);
                varint(&mut out, map.width as u64);
                out.push((map.rows.0 | map.cols.0 << 4) as u8);
                out.extend(&map.thresholds);
                for (bits, scales) in [&map.rows, &map.cols] {
                    let mut packed = Bits::default();
                    for &s in scales {
                        packed.put(s as u64, *bits);
                    }
                    out.extend(packed.bytes());
                }
            }
        }
        out.extend(&self.low);
        let tables = self.table_bits().bytes();
        varint(&mut out, tables.len() as u64);
        out.extend(tables);
        out
    }

    pub fn table_bits(&self) -> Bits {
        let mut bits = Bits::default();
        for table in &self.tables {
            match table {
                Table::Again => bits.put(2, 2),
                Table::Shaped(zero, ratio, bend) => bits
                    .put(0, 2)
                    .put(*zero as u64, self.log as u32 + 1)
                    .put(*ratio as u64, 8)
                    .put(*bend as u64, 8),
                Table::Measured(escape, first, levels) => {
                    bits.put(1, 2).gamma(*escape as u64);
                    bits.put((first + 128) as u64, 8).put(levels.len() as u64 - 1, 8);
                    for &f in levels {
                        bits.gamma(f as u64);
                    }
                    &mut bits
                }
            };
        }
        bits
    }

    /// Slots of the tables as they are stored.
    fn expand(&self) -> Vec<Vec<u64>> {
        let per_class = if self.nu == 0 { 1 } else { 2 };
        let mut out: Vec<Vec<u64>> = Vec::new();
        for (i, t) in self.tables.iter().enumerate() {
            out.push(slots(t, out.last(), self.log as u32, self.low[i / per_class] > 0));
        }
        out
    }

    /// Every tile, and the multiple of the step of every value.
    pub fn tiles(&self) -> (Vec<Tile>, Vec<i32>) {
        let tables = self.expand();
        let lanes = 1usize << self.lanes_log;
        let mut multiples = Vec::new();
        let mut tiles = Vec::new();
        for (t, k) in self.k.chunks(lanes * self.steps as usize).enumerate() {
            let start = t * lanes * self.steps as usize;
            let mut tile = Tile { coded: k.iter().any(|&k| k != 0), ..Tile::default() };
            let mut coded = Vec::new();
            let mut low = Bits::default();
            let mut state = vec![0u32; lanes];
            for (i, &k) in k.iter().enumerate() {
                let class = self.class(start + i);
                let q = state[i % lanes] & 1;
                let table = if self.nu == 0 { class } else { class * 2 + q as usize };
                let high = k >> self.low[class];
                let mut symbol = high as u8 as usize;
                if high.abs() > 127 || tables[table][symbol] == 0 {
                    symbol = ESCAPE;
                    tile.escapes.push(high);
                }
                low.put((k - (high << self.low[class])) as u64, self.low[class] as u32);
                coded.push((table, symbol));
                multiples.push(2 * k - q as i32 * k.signum());
                state[i % lanes] = next(self.nu, state[i % lanes], k);
            }
            if tile.coded {
                (tile.states, tile.words) = rans(&tables, self.log as u32, lanes, &coded);
                tile.low = (self.low.iter().any(|&l| l > 0)).then(|| low.bytes());
                let far = tile.escapes.iter().map(|e| e.abs()).max();
                tile.width = far.map_or(0, |e| if e < 128 { 1 } else { 2 << (e >= 32768) as usize });
            }
            let mut end = start;
            for (at, len, element) in self.exact.iter().filter(|e| (start..start + k.len()).contains(&e.0)) {
                tile.exact.push(((at - end) as u64, *len as u64, element.clone()));
                end = at + len;
            }
            tiles.push(tile);
        }
        (tiles, multiples)
    }

    pub fn blob(&self) -> Vec<u8> {
        let tiles = self.tiles().0;
        Header::describe(self).join(&tiles.iter().map(Tile::bytes).collect::<Vec<_>>())
    }

    /// What a decoder must make of it.
    pub fn expected(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for m in self.tiles().1 {
            let offset = match m.unsigned_abs() as usize {
                0 => 0,
                a => self.offsets.get(a.min(8) - 1).map_or(0, |&o| o as i32),
            };
            let units = 64 * m - m.signum() * offset;
            out.extend(match self.dtype {
                Dtype::F64 => (units as f64 * self.scale).clamp(-f64::MAX, f64::MAX).to_le_bytes().to_vec(),
                _ => element(self.dtype, units as f32 * self.scale as f32),
            });
        }
        let size = self.dtype.size();
        for (at, len, element) in &self.exact {
            (*at..at + len).for_each(|i| out[i * size..][..size].copy_from_slice(element));
        }
        out
    }
}

/// The nearest finite element, ties to even.
fn element(dtype: Dtype, v: f32) -> Vec<u8> {
    let even = |bytes: u8| bytes & 1;
    match dtype {
        Dtype::F32 => v.clamp(-f32::MAX, f32::MAX).to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(v.clamp(-65504.0, 65504.0)).to_le_bytes().to_vec(),
        Dtype::Bf16 => {
            let most = half::bf16::MAX.to_f32();
            half::bf16::from_f32(v.clamp(-most, most)).to_le_bytes().to_vec()
        }
        _ => {
            let magnitude = |b: u8| to_reals(dtype, &[b])[0];
            let finite = (0..128u8).filter(|&b| magnitude(b).is_finite());
            let far = |b: u8| (magnitude(b) - v.abs() as f64).abs();
            let near = finite.min_by(|&a, &b| far(a).total_cmp(&far(b)).then(even(a).cmp(&even(b))));
            vec![near.unwrap_or(0) | (v.is_sign_negative() as u8) << 7]
        }
    }
}

/// The next state of a trellis.
fn next(nu: u8, state: u32, level: i32) -> u32 {
    let (h0, h1) = match nu {
        0 => return 0,
        2 => (0o5, 0o2),
        3 => (0o13, 0o4),
        4 => (0o23, 0o4),
        5 => (0o45, 0o10),
        6 => (0o103, 0o24),
        7 => (0o235, 0o126),
        _ => (0o515, 0o362),
    };
    let mut to = state / 2;
    if state % 2 == 1 {
        to ^= h0 / 2;
    }
    if level % 2 != 0 {
        to ^= h1 / 2;
    }
    to
}
