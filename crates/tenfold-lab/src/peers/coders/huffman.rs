//! Canonical Huffman codes over bytes.
//!
//! Bytes: the largest symbol, a nibble for each symbol up to it with the length of its code (0: unused),
//! then the codes, highest bit first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::peers::PeerError;
use crate::peers::header::Cursor;
use crate::peers::plain::corrupt;

/// Longest code: a nibble holds it, and a table of 2^15 entries decodes it at once.
const LONGEST: u8 = 15;

pub(super) fn encode(symbols: &[u8]) -> Vec<u8> {
    let Some(&largest) = symbols.iter().max() else {
        return Vec::new();
    };
    let mut counts = vec![0u64; usize::from(largest) + 1];
    symbols.iter().for_each(|&s| counts[usize::from(s)] += 1);
    let lengths = limited_lengths(counts);
    let mut out = vec![largest];
    out.extend(lengths.chunks(2).map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 4));
    let codes = canonical(&lengths);
    let (mut held, mut count) = (0u64, 0u32);
    for &s in symbols {
        let length = u32::from(lengths[usize::from(s)]);
        held = held << length | u64::from(codes[usize::from(s)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((held >> count) as u8); // higher bits are out already
        }
    }
    if count > 0 {
        out.push((held << (8 - count)) as u8);
    }
    out
}

pub(super) fn decode(bytes: &[u8], n: usize) -> Result<Vec<u8>, PeerError> {
    if n == 0 {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(corrupt("codes for no symbols")) };
    }
    let mut cursor = Cursor(bytes);
    let [largest] = cursor.array()?;
    let used = usize::from(largest) + 1;
    let nibbles = cursor.take(used.div_ceil(2))?;
    let lengths: Vec<u8> = (0..used).map(|i| nibbles[i / 2] >> (4 * (i % 2)) & 15).collect();
    let table = Table::new(&lengths)?;
    // Every code has at least a bit.
    if n > cursor.0.len().saturating_mul(8) {
        return Err(corrupt("truncated"));
    }
    table.read(cursor.0, n)
}

/// Lengths of the best codes that are no longer than [`LONGEST`]. Flattening the counts until they fit
/// costs nothing in practice: a longer code needs counts of billions.
fn limited_lengths(mut counts: Vec<u64>) -> Vec<u8> {
    loop {
        let lengths = lengths(&counts);
        if lengths.iter().all(|&l| l <= LONGEST) {
            return lengths;
        }
        counts.iter_mut().filter(|c| **c > 0).for_each(|c| *c = *c / 2 + 1);
    }
}

/// Lengths of Huffman's codes. A symbol that is alone gets a code of one bit.
fn lengths(counts: &[u64]) -> Vec<u8> {
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> =
        counts.iter().enumerate().filter(|c| *c.1 > 0).map(|(i, &c)| Reverse((c, i))).collect();
    if heap.len() == 1 {
        return counts.iter().map(|&c| u8::from(c > 0)).collect();
    }
    // Nodes from `counts.len()` on are joints; a parent always comes after its children.
    let mut parents = vec![usize::MAX; counts.len()];
    while let (Some(Reverse((a, i))), Some(Reverse((b, j)))) = (heap.pop(), heap.pop()) {
        let joint = parents.len();
        parents.push(usize::MAX);
        (parents[i], parents[j]) = (joint, joint);
        if heap.is_empty() {
            break;
        }
        heap.push(Reverse((a + b, joint)));
    }
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len()).rev().filter(|&i| parents[i] != usize::MAX) {
        depths[node] = depths[parents[node]].saturating_add(1);
    }
    depths.truncate(counts.len());
    depths
}

/// Codes in the order of length, then symbol.
fn canonical(lengths: &[u8]) -> Vec<u16> {
    let mut codes = vec![0u16; lengths.len()];
    let mut next = 0u16;
    for length in 1..=LONGEST {
        next <<= 1;
        for (code, _) in codes.iter_mut().zip(lengths).filter(|(_, l)| **l == length) {
            *code = next;
            next = next.wrapping_add(1);
        }
    }
    codes
}

/// Symbol and length for every beginning of a bit string.
struct Table {
    entries: Vec<(u8, u8)>,
    bits: u8,
}

impl Table {
    fn new(lengths: &[u8]) -> Result<Self, PeerError> {
        let bits = lengths.iter().copied().max().unwrap_or(0);
        let filled: u32 = lengths.iter().filter(|l| **l > 0).map(|&l| 1u32 << (LONGEST - l)).sum();
        let alone = bits == 1 && filled == 1 << (LONGEST - 1);
        if filled != 1 << LONGEST && !alone {
            return Err(corrupt("lengths of codes that make no tree"));
        }
        let mut entries = vec![(0, 0); 1 << bits];
        for (symbol, (&length, code)) in lengths.iter().zip(canonical(lengths)).enumerate() {
            if length > 0 {
                let first = usize::from(code) << (bits - length);
                // There are at most 256 lengths, so a symbol is a byte.
                entries[first..first + (1 << (bits - length))].fill((symbol as u8, length));
            }
        }
        Ok(Table { entries, bits })
    }

    fn read(&self, codes: &[u8], n: usize) -> Result<Vec<u8>, PeerError> {
        let (mut held, mut count, mut bytes) = (0u32, 0u32, codes.iter());
        let mut out = Vec::with_capacity(n);
        let width = u32::from(self.bits);
        for _ in 0..n {
            while count < width {
                let Some(&byte) = bytes.next() else { break };
                held = held << 8 | u32::from(byte);
                count += 8;
            }
            // At the end the table sees zeros where there are no bits.
            let window = if count >= width { held >> (count - width) } else { held << (width - count) };
            let (symbol, length) = self.entries[window as usize & (self.entries.len() - 1)];
            if length == 0 || u32::from(length) > count {
                return Err(corrupt("truncated"));
            }
            count -= u32::from(length);
            out.push(symbol);
        }
        Ok(out)
    }
}
