//! Which features of the format a blob uses, read from its bytes.
//!
//! The same list is derived once more by conformance/decode.py; `decode.py --check` compares the two.

use std::collections::BTreeSet;

use super::common::to_reals;
use tenfold::Dtype;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, n: usize) -> &[u8] {
        self.at += n;
        &self.bytes[self.at - n..self.at]
    }

    fn u8(&mut self) -> usize {
        self.take(1)[0] as usize
    }

    fn u32(&mut self) -> usize {
        self.take(4).iter().rev().fold(0, |v, &b| v << 8 | b as usize)
    }

    fn varint(&mut self) -> usize {
        let (mut v, mut shift) = (0, 0);
        loop {
            let b = self.u8();
            v |= (b & 127) << shift;
            shift += 7;
            if b < 128 {
                return v;
            }
        }
    }
}

struct Bits<'a>(&'a [u8], usize);

impl Bits<'_> {
    fn take(&mut self, n: usize) -> usize {
        let bit = |i: usize| (self.0[i / 8] >> (i % 8) & 1) as usize;
        let v = (0..n).map(|i| bit(self.1 + i) << i).sum();
        self.1 += n;
        v
    }

    fn gamma(&mut self) -> usize {
        let mut n = 0;
        while self.take(1) == 0 {
            n += 1;
        }
        (1 << n) + self.take(n) - 1
    }
}

type Set = BTreeSet<String>;

/// Features of a sound delta.
pub fn delta(blob: &[u8]) -> Set {
    let dtype = Dtype::from_id(blob[6]).expect("a known dtype");
    let mut set = Set::from([format!("delta {dtype}"), format!("delta dims {}", blob[7])]);
    let mut r = Reader { bytes: blob, at: 12 };
    let values: usize = (0..blob[7]).map(|_| r.varint()).product();
    assert_eq!(r.u8(), 0, "transforms");
    r.take(16);
    if r.u8() == 0 {
        set.extend(["delta of nothing", "delta no tiles"].map(String::from));
        return set;
    }
    r.take(16);
    let (lanes, ticks) = (1 << r.u8(), r.varint());
    let several = |n: usize| if n == 1 { "1" } else { "several" };
    set.insert(format!("delta lanes {lanes}"));
    set.insert(format!("delta gap tables {}", several(r.u8())));
    set.insert(format!("delta classes {}", several(r.u8())));
    let tiles = values.div_ceil(lanes * ticks);
    set.insert(format!("delta {}", if tiles > 1 { "several tiles" } else { "one tile" }));
    let header = Reader { bytes: blob, at: 8 }.u32();
    let (mut directory, mut at) = (Reader { bytes: blob, at: header - 4 - 8 * tiles }, header);
    for _ in 0..tiles {
        let (len, _) = (directory.u32(), directory.u32());
        match len {
            0 => set.insert("delta tile unchanged".into()),
            _ => set.insert(format!("delta way {}", Reader { bytes: blob, at }.u32() >> 28)),
        };
        at += len;
    }
    set
}

/// Features of a sound blob that decodes to `data`.
pub fn features(blob: &[u8], data: &[u8]) -> Set {
    let mut set = Set::new();
    let dtype = Dtype::from_id(blob[6]).expect("a known dtype");
    let codec = ["", "planes", "levels", "", "layers", "pairs"][blob[5] as usize];
    set.insert(format!("{codec} {dtype}"));
    set.insert(format!("{codec} dims {}", blob[7]));
    let mut r = Reader { bytes: blob, at: 12 };
    let shape: Vec<usize> = (0..blob[7]).map(|_| r.varint()).collect();
    let values = data.len() / dtype.size();
    if values == 0 {
        set.insert(format!("{codec} empty"));
    }
    if codec == "layers" {
        layers(&mut r, &mut set);
        elements(&mut set, codec, dtype, data);
        return set;
    }
    let mut cols = shape.last().copied().unwrap_or(1);
    let mut rows = values / cols.max(1);
    let transforms = read_transforms(&mut r, &mut set, dtype, &mut rows, &mut cols);
    let values = rows * cols;
    // Behind transforms, levels are those of a tensor of working values.
    let worked = if transforms > 0 && dtype != Dtype::F64 { Dtype::F32 } else { dtype };
    let header = if codec == "planes" {
        planes_header(&mut r, &mut set)
    } else {
        levels_header(&mut r, &mut set, dtype, cols, values)
    };
    let tile_values = header.lanes * header.ticks;
    let tiles = values.div_ceil(tile_values);
    set.insert(format!("{codec} lanes {}", header.lanes));
    set.insert(format!("{codec} {}", if tiles > 1 { "several tiles" } else { "one tile" }));
    if tiles > 1 && !values.is_multiple_of(tile_values) {
        set.insert(format!("{codec} short last tile"));
    }
    if tiles > 0 && values - (tiles - 1) * tile_values < header.lanes {
        set.insert(format!("{codec} fewer values than lanes"));
    }
    r.at = r.at.next_multiple_of(4) + tiles * 8 + 4;
    for i in 0..tiles {
        let len = tile_values.min(values - i * tile_values);
        if codec == "planes" {
            planes_tile(&mut r, &mut set, dtype.size(), len, header.lanes);
        } else {
            levels_tile(&mut r, &mut set, worked, &header, codec == "pairs");
            if codec == "pairs" && len % 2 == 1 && set.contains("tile coded") {
                set.insert("pair of one value".into());
            }
            if transforms > 0 && set.contains("exact finite") {
                set.insert("exact working value".into());
            }
            r.at = r.at.next_multiple_of(4);
        }
    }
    assert_eq!(r.at, blob.len(), "the parser of the generator reads every byte");
    elements(&mut set, codec, dtype, data);
    set
}

/// Layers: each a blob, whose own features are not the blob's.
fn layers(r: &mut Reader<'_>, set: &mut Set) {
    assert_eq!(r.u8(), 0, "no transforms before layers");
    let count = r.u8();
    set.insert(format!("layers {count}"));
    r.at = r.at.next_multiple_of(4);
    let lengths: Vec<usize> = (0..count).map(|_| (r.u32(), r.u32()).0).collect();
    r.at += 4;
    for len in lengths {
        let layer = r.take(len).to_vec();
        set.insert(format!("layer of {}", ["", "planes", "levels", "", "", "pairs"][layer[5] as usize]));
        let data = super::common::decode(&layer).data;
        let own = features(&layer, &data);
        let transforms = ["weights of columns", "weights of rows", "means", "delta", "kept elements"];
        if transforms.iter().any(|&s| own.contains(s)) {
            set.insert("layer with steps".into());
        }
    }
    assert_eq!(r.at, r.bytes.len(), "the parser of the generator reads every byte");
}

/// Reads the transforms and returns how many there are; `rows` and `cols` become those behind them.
fn read_transforms(
    r: &mut Reader<'_>,
    set: &mut Set,
    dtype: Dtype,
    rows: &mut usize,
    cols: &mut usize,
) -> usize {
    let count = r.u8();
    let mut names = Vec::new();
    for _ in 0..count {
        let (id, len) = (r.u8(), r.varint());
        let content = r.take(len);
        match id {
            2 => names.push(["columns", "rows"][content[0] as usize]),
            4 => {
                set.insert("kept elements".into());
                if content.chunks_exact(12 + dtype.size().max(4)).any(|run| run[8] > 1) {
                    set.insert("kept run".into());
                }
            }
            1 | 5 | 6 | 8 | 9 | 10 => {
                let names =
                    ["Hadamard", "", "", "", "means", "DCT", "", "rotary positions", "delta", "transposed"];
                set.insert(names[id - 1].into());
                if id == 10 {
                    std::mem::swap(rows, cols);
                }
            }
            7 => {
                set.insert("basis".into());
                let mut r = Reader { bytes: content, at: 1 };
                let rank = r.varint();
                r.take(*cols * 4);
                if r.u8() > 0 {
                    set.insert("basis with scales".into());
                }
                if rank < *cols {
                    set.insert("basis of fewer vectors than columns".into());
                }
                *cols = rank;
            }
            _ => panic!("a step that no vector has: {id}"),
        }
    }
    if !names.is_empty() {
        set.insert(format!("weights of {}", names.join(", then of ")));
    }
    count
}

struct Header {
    lanes: usize,
    ticks: usize,
    low: bool,
}

fn planes_header(r: &mut Reader<'_>, set: &mut Set) -> Header {
    let (lanes, ticks) = (1 << r.u8(), r.varint());
    let present = r.u8();
    let len = r.varint();
    let mut bits = Bits(r.take(len), 0);
    for _ in 0..present.count_ones() {
        match bits.take(2) {
            1 => measured(&mut bits, false),
            _ => false,
        };
    }
    if present == 0 {
        set.insert("planes no table".into());
    }
    Header { lanes, ticks, low: false }
}

/// Reads a measured table and tells whether one symbol has all slots.
fn measured(bits: &mut Bits<'_>, escape: bool) -> bool {
    let mut used = (escape && bits.gamma() > 0) as usize;
    let _low = bits.take(8);
    for _ in 0..=bits.take(8) {
        used += (bits.gamma() > 0) as usize;
    }
    used == 1
}

fn levels_header(r: &mut Reader<'_>, set: &mut Set, dtype: Dtype, row: usize, values: usize) -> Header {
    let nu = r.u8();
    set.insert(format!("states {}", 1 << nu));
    let (lanes, ticks) = (1 << r.u8(), r.varint());
    let log = r.u8();
    set.insert(format!("table log {log}"));
    r.take(if dtype == Dtype::F64 { 8 } else { 4 });
    let offsets = r.u8();
    set.insert(format!(
        "offsets {}",
        ["none", "some", "all"][(offsets > 0) as usize + (offsets == 8) as usize]
    ));
    r.take(offsets);
    let classes = r.u8();
    set.insert(format!("classes {classes}"));
    if classes > 1 {
        let width = r.varint();
        let bits = r.u8();
        let (rows, cols) = (bits & 15, bits >> 4);
        let name =
            ["neither", "rows", "columns", "rows and columns"][(rows > 0) as usize + 2 * (cols > 0) as usize];
        set.insert(format!("classes by {name}"));
        if cols == 15 {
            set.insert("classes by basis".into());
        }
        if row != width {
            set.insert("classes by runs".into());
        }
        r.take(classes - 1);
        r.take((values.div_ceil(width) * rows).div_ceil(8));
        r.take(if cols == 15 { 0 } else { (width * cols).div_ceil(8) });
    }
    let low = r.take(classes).to_vec();
    set.insert(format!(
        "low bits {}",
        match (low.iter().min(), low.iter().max()) {
            (_, Some(0)) => "none",
            (a, b) if a == b => "equal",
            _ => "by class",
        }
    ));
    if low.contains(&16) {
        set.insert("low bits 16".into());
    }
    let len = r.varint();
    let mut bits = Bits(r.take(len), 0);
    for i in 0..classes << (nu > 0) as usize {
        let halved = if low[i >> (nu > 0) as usize] > 0 { " of high parts" } else { "" };
        let kind = bits.take(2);
        set.insert(format!("table {}{halved}", ["shaped", "measured", "repeated"][kind]));
        match kind {
            0 => drop(bits.take(log + 1 + 16)),
            1 if measured(&mut bits, true) => drop(set.insert("table of one symbol".into())),
            _ => {}
        }
    }
    Header { lanes, ticks, low: low.iter().any(|&l| l > 0) }
}

fn planes_tile(r: &mut Reader<'_>, set: &mut Set, size: usize, len: usize, lanes: usize) {
    for _ in 0..size {
        let head = r.u32();
        set.insert(format!("plane {}", ["constant", "stored", "coded"][head & 255]));
        let len = match head & 255 {
            0 => 0,
            1 => len,
            _ => lanes * 4 + (head >> 8) * 2,
        };
        r.take(len.next_multiple_of(4));
    }
}

fn levels_tile(r: &mut Reader<'_>, set: &mut Set, dtype: Dtype, header: &Header, paired: bool) {
    let head = r.u32();
    let coded = head & 1 == 1;
    set.insert(format!("tile {}", if coded { "coded" } else { "of zeros" }));
    if coded {
        r.take(header.lanes * 4 + (head >> 8) * 2);
    }
    if header.low {
        if coded {
            let len = r.varint();
            r.take(len);
        } else {
            set.insert("tile of zeros without low bits".into());
        }
    }
    if head >> 1 & 3 > 0 {
        let width = match head >> 1 & 3 {
            3 if paired => 8,
            code => 1 << (code - 1),
        };
        if paired {
            set.insert("pair escaped".into());
        }
        set.insert(format!("escapes of {width} byte{}", if width > 1 { "s" } else { "" }));
        let len = r.varint() * width;
        r.take(len);
    }
    if head >> 3 & 1 == 1 {
        if !coded {
            set.insert("exact values among zeros".into());
        }
        for _ in 0..r.varint() {
            let (_gap, len) = (r.varint(), r.varint());
            let v = to_reals(dtype, r.take(dtype.size()))[0];
            let name = if v.is_nan() {
                "NaN"
            } else if v.is_infinite() {
                "infinity"
            } else {
                "finite"
            };
            set.insert(format!("exact {name}"));
            if len > 1 {
                set.insert("exact run".into());
            }
        }
    }
}

/// Smallest normal and largest finite number.
fn range(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::F8E4M3 => (2f64.powi(-6), 448.0),
        Dtype::F8E5M2 => (2f64.powi(-14), 57344.0),
        Dtype::F16 => (2f64.powi(-14), 65504.0),
        Dtype::Bf16 => (2f64.powi(-126), half::bf16::MAX.to_f64()),
        Dtype::F32 => (f32::MIN_POSITIVE as f64, f32::MAX as f64),
        _ => (f64::MIN_POSITIVE, f64::MAX),
    }
}

fn elements(set: &mut Set, codec: &str, dtype: Dtype, data: &[u8]) {
    if !dtype.is_float() {
        return;
    }
    let (normal, largest) = range(dtype);
    for v in to_reals(dtype, data) {
        let name = match v {
            v if v.is_nan() => "NaN",
            v if v.is_infinite() => "infinity",
            v if v == 0.0 && v.is_sign_negative() => "negative zero",
            v if v != 0.0 && v.abs() < normal => "denormal",
            v if v.abs() == largest => "largest",
            _ => continue,
        };
        set.insert(format!("{codec} {dtype} {name}"));
    }
}
