//! Golden errors: files that a reader must refuse, every checksum right unless the checksum is the fault.

mod frame;
mod header;
mod layers;
mod prepare;
mod tiles;

use super::Fault;
use super::common::{Kind, Sample};
use super::crafted::bell;
use super::writer::{Header, Levels, Map, Table, Tile, join, split};
use tenfold::{Dtype, Effort, EncodeOptions, Goal};

fn fault(
    name: &'static str,
    kind: &'static str,
    message: &'static str,
    note: &'static str,
    make: impl Fn() -> Vec<u8> + 'static,
) -> Fault {
    Fault { name, kind, message, note, make: Box::new(make) }
}

fn data(
    name: &'static str,
    message: &'static str,
    note: &'static str,
    make: impl Fn() -> Vec<u8> + 'static,
) -> Fault {
    fault(name, "data", message, note, make)
}

/// A sound lossy tensor to spoil: two tiles, two classes, escapes, exact values.
fn sound() -> Levels {
    let mut k = bell(60, 2.0, 200);
    (k[4], k[50]) = (900, -300);
    let map = Map { width: 10, rows: (2, vec![0, 1, 2, 3, 1, 0]), cols: (0, vec![]), thresholds: vec![2] };
    let exact = vec![(7, 2, f32::NAN.to_le_bytes().to_vec()), (45, 1, f32::INFINITY.to_le_bytes().to_vec())];
    let tables =
        vec![Table::Shaped(1400, 128, 120), Table::Again, Table::Shaped(900, 150, 118), Table::Again];
    Levels {
        map: Some(map),
        low: vec![0, 0],
        tables,
        exact,
        steps: 15,
        ..Levels::new(Dtype::F32, &[6, 10], 3, k)
    }
}

/// The simplest sound lossy tensor: one class, one table, one tile.
fn simple() -> Levels {
    Levels::new(Dtype::F32, &[40], 0, bell(40, 2.0, 201))
}

/// With low bits.
fn with_low() -> Levels {
    Levels { low: vec![3], ..Levels::new(Dtype::F32, &[40], 0, bell(40, 20.0, 202)) }
}

/// A lossless blob with a coded, a stored and a constant plane.
fn planes_blob() -> Vec<u8> {
    let mut s = Sample::noise(Dtype::U32, &[300], 203);
    for v in s.data.chunks_exact_mut(4) {
        (v[1], v[2], v[3]) = (v[1].leading_zeros() as u8, 5, 77);
    }
    s.encode(Goal::Lossless, Effort::Fast)
}

/// A lossless blob of one stored plane with padding.
fn stored() -> Vec<u8> {
    Sample::noise(Dtype::U8, &[27], 204).encode(Goal::Lossless, Effort::Fast)
}

fn several_tiles() -> Vec<u8> {
    let s = Sample::make(Dtype::Bf16, &[9, 41], Kind::Gaussian, 7);
    tenfold::encode(&s.view(), &EncodeOptions::new(Goal::Lossless).with_lane_values(32)).unwrap()
}

/// Spoils the header of a sound blob.
fn header(of: fn() -> Levels, spoil: impl Fn(&mut Header)) -> Vec<u8> {
    let levels = of();
    let mut header = Header::describe(&levels);
    spoil(&mut header);
    header.join(&levels.tiles().0.iter().map(Tile::bytes).collect::<Vec<_>>())
}

/// Spoils a header that nothing follows, so that what is missing is not read from the directory.
fn no_tiles(of: fn() -> Levels, spoil: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = Header::describe(&of());
    spoil(&mut header);
    header.join(&[])
}

/// Spoils the parameters; the tiles are those of the sound tensor.
fn params(of: fn() -> Levels, spoil: impl Fn(&mut Levels)) -> Vec<u8> {
    header(of, |h| {
        let mut levels = of();
        spoil(&mut levels);
        h.params = levels.params();
    })
}

fn map(spoil: impl Fn(&mut Map)) -> Vec<u8> {
    params(sound, |l| spoil(l.map.as_mut().unwrap()))
}

/// Replaces the tables of [`simple`] by these bytes.
fn with_tables(bytes: Vec<u8>) -> Vec<u8> {
    header(simple, |h| {
        let old = simple().table_bits().bytes().len();
        h.params.truncate(h.params.len() - old - 1);
        h.params.push(bytes.len() as u8);
        h.params.extend(&bytes);
    })
}

/// Spoils the first tile.
fn tile(of: fn() -> Levels, spoil: impl Fn(&mut Tile)) -> Vec<u8> {
    tile_bytes(of, |t| {
        spoil(t);
        t.bytes()
    })
}

fn tile_bytes(of: fn() -> Levels, spoil: impl Fn(&mut Tile) -> Vec<u8>) -> Vec<u8> {
    let levels = of();
    let (mut tiles, _) = levels.tiles();
    let first = spoil(&mut tiles[0]);
    let mut all = vec![first];
    all.extend(tiles[1..].iter().map(Tile::bytes));
    Header::describe(&levels).join(&all)
}

/// Spoils the first tile of a blob as bytes.
fn raw(blob: Vec<u8>, spoil: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let (prefix, mut tiles) = split(&blob);
    spoil(&mut tiles[0]);
    join(prefix, &tiles)
}

/// Spoils a lossless blob's header, that is the bytes before the directory.
fn prefix(blob: Vec<u8>, spoil: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let (mut prefix, tiles) = split(&blob);
    spoil(&mut prefix);
    join(prefix, &tiles)
}

fn cut(mut blob: Vec<u8>, len: impl Fn(usize) -> usize) -> Vec<u8> {
    let len = len(blob.len());
    blob.truncate(len);
    blob
}

fn flip(mut blob: Vec<u8>, at: usize) -> Vec<u8> {
    blob[at] ^= 1;
    blob
}

fn header_len(blob: &[u8]) -> usize {
    u32::from_le_bytes(blob[8..12].try_into().unwrap()) as usize
}

pub fn faults() -> Vec<Fault> {
    let mut all = frame::frame();
    all.extend(frame::shapes());
    all.extend(prepare::steps());
    all.extend(header::levels());
    all.extend(header::tables());
    all.extend(tiles::levels());
    all.extend(tiles::planes());
    all.extend(layers::layers());
    all
}
