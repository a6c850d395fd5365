//! The encoder's choice of tables: frequencies from counts, or a shape close enough to them.

use super::ESCAPE;
use super::table::{Freqs, log2_of_slots};
use super::table_code::{Alphabet, Coded, Shape};

/// How often each symbol occurs.
pub(crate) type Counts = [u64; 256];

/// Bits that an escaped level is thought to take beyond its symbol.
pub(crate) const ESCAPE_BITS: f64 = 16.0;

/// Bits that these counts cost under a table; symbols without a slot escape.
pub(crate) fn cost(counts: &Counts, freqs: &Freqs) -> f64 {
    cost_of(&occurring(counts), freqs)
}

/// The symbols that occur, and how often.
fn occurring(counts: &Counts) -> Vec<(u8, f64)> {
    counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(symbol, &n)| (symbol as u8, n as f64)).collect()
}

/// [`cost`] where it is asked for many tables.
fn cost_of(occurring: &[(u8, f64)], freqs: &Freqs) -> f64 {
    let log2 = log2_of_slots();
    let of = |slots: u16| freqs.log as f64 - log2[slots as usize];
    let escape = of(freqs.of[ESCAPE as usize]) + ESCAPE_BITS;
    let bits = |&(symbol, n): &(u8, f64)| {
        let slots = freqs.of[symbol as usize];
        n * if slots == 0 || symbol == ESCAPE { escape } else { of(slots) }
    };
    occurring.iter().map(bits).sum()
}

/// Frequencies close to the counts. If `alphabet` has an escape, it takes the symbols that are too rare for a slot.
pub(crate) fn normalise(counts: &Counts, alphabet: Alphabet) -> Freqs {
    let total: u64 = counts.iter().sum();
    let slots = 1u32 << alphabet.log;
    let mut of = [0u16; 256];
    if total == 0 {
        of[0] = slots as u16;
        return Freqs { log: alphabet.log, of };
    }
    let mut want = *counts;
    if alphabet.is_signed() {
        // A slot costs every other symbol about 1.44/2^log bits; it saves an escape's bits.
        let rare = total as f64 * 1.44 / slots as f64 / ESCAPE_BITS;
        for symbol in 0..256 {
            if symbol != ESCAPE as usize && want[symbol] > 0 && (want[symbol] as f64) < rare {
                want[ESCAPE as usize] += want[symbol];
                want[symbol] = 0;
            }
        }
    }
    let mut used = 0i64;
    for (f, &n) in of.iter_mut().zip(&want) {
        if n > 0 {
            *f = ((n as f64 * slots as f64 / total as f64).round() as u16).max(1);
            used += *f as i64;
        }
    }
    // Give or take single slots where that changes the cost least.
    let gain = |n: u64, from: u16, to: u16| n as f64 * (to as f64 / from as f64).log2();
    while used != slots as i64 {
        let up = used < slots as i64;
        let best = (0..256).filter(|&s| want[s] > 0 && (up || of[s] > 1)).max_by(|&a, &b| {
            let g = |s: usize| gain(want[s], of[s], if up { of[s] + 1 } else { of[s] - 1 });
            g(a).total_cmp(&g(b))
        });
        let Some(s) = best else { break };
        of[s] = if up { of[s] + 1 } else { of[s] - 1 };
        used += if up { 1 } else { -1 };
    }
    Freqs { log: alphabet.log, of }
}

/// The shape that suits the counts best, by descent from a guess: `near`, if that is about right, or else one of several.
pub(crate) fn shape(counts: &Counts, alphabet: Alphabet, near: Option<Shape>) -> Shape {
    let total = counts.iter().sum::<u64>().max(1);
    let slots = 1u64 << alphabet.log;
    let zero = ((counts[0] * slots + total / 2) / total).clamp(1, slots - 2) as u16;
    let occurring = occurring(counts);
    // A descent comes by the same shapes again and again.
    let mut seen = Vec::with_capacity(128);
    let mut price = |s: Shape| {
        if seen.contains(&s) {
            return f64::INFINITY;
        }
        seen.push(s);
        s.freqs(alphabet).map_or(f64::INFINITY, |f| cost_of(&occurring, &f))
    };
    // From narrow bells to wide ones: a descent from the wrong end would stop in a local minimum.
    let starts = [(20, 64), (110, 112), (170, 124), (215, 126), (240, 127), (252, 127)];
    let mut best = Shape { zero, ratio: 110, bend: 112 };
    let mut low = f64::INFINITY;
    let (starts, jumps) = match near {
        Some(Shape { ratio, bend, .. }) => (vec![(ratio, bend)], &[4i32, 1][..]),
        None => (starts.to_vec(), &[32, 16, 8, 4, 2, 1][..]),
    };
    for (ratio, bend) in starts {
        let start = Shape { zero, ratio, bend };
        let c = price(start);
        if c < low {
            low = c;
            best = start;
        }
    }
    for &jump in jumps {
        loop {
            let before = low;
            for (dz, dr, db) in
                [(0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1), (0, 1, -1), (0, -1, 1), (1, 0, 0), (-1, 0, 0)]
            {
                let try_ = Shape {
                    zero: (best.zero as i32 + dz * jump * slots as i32 / 1024).clamp(0, slots as i32 - 2)
                        as u16,
                    ratio: (best.ratio as i32 + dr * jump).clamp(0, 255) as u8,
                    bend: (best.bend as i32 + db * jump).clamp(0, 255) as u8,
                };
                let c = price(try_);
                if c < low {
                    low = c;
                    best = try_;
                }
            }
            if low >= before {
                break;
            }
        }
    }
    best
}

/// A form for one table, and the bits of both header and content.
struct Choice {
    coded: Coded,
    bits: f64,
}

/// The cheaper of measured frequencies and a shape. Where it is known what a table like this one is, the search is short.
fn best(counts: &Counts, alphabet: Alphabet, like: Option<&Coded>) -> Choice {
    let header = |c: &Coded| super::table_code::write([(c, alphabet)]).len() as f64 * 8.0;
    let freqs = normalise(counts, alphabet);
    let coded = Coded::Measured(freqs.clone());
    let mut best = Choice { bits: cost(counts, &freqs) + header(&coded), coded };
    let near = match like {
        Some(Coded::Shaped(shape)) => Some(*shape),
        _ => None,
    };
    if alphabet.is_signed() && !matches!(like, Some(Coded::Measured(_))) {
        let shape = shape(counts, alphabet, near);
        if let Some(freqs) = shape.freqs(alphabet) {
            let coded = Coded::Shaped(shape);
            let bits = cost(counts, &freqs) + header(&coded);
            if bits < best.bits {
                best = Choice { coded, bits };
            }
        }
    }
    best
}

/// Picks the forms that cost fewest bits in all, header included. Tables come in groups of `group` (the
/// quantisers of a class), which may share one. `like` are the tables of a tensor like this one, if there is one.
pub(crate) fn choose(counts: &[Counts], alphabets: &[Alphabet], group: usize, like: &[Coded]) -> Vec<Coded> {
    let mut chosen = Vec::with_capacity(counts.len());
    for (counts, alphabets) in counts.chunks(group).zip(alphabets.chunks(group)) {
        let like = like.get(chosen.len()..chosen.len() + group).unwrap_or_default();
        // A table that repeats the one before says nothing of its own.
        let own = counts.iter().zip(alphabets).enumerate();
        let own: Vec<Choice> = own.map(|(i, (c, &a))| best(c, a, like.get(i))).collect();
        let apart: f64 = own.iter().map(|c| c.bits).sum();
        let mut sum = [0u64; 256];
        for c in counts {
            sum.iter_mut().zip(c).for_each(|(s, c)| *s += c);
        }
        let shared = best(&sum, alphabets[0], like.first());
        if group > 1 && shared.bits + 2.0 < apart {
            chosen.push(shared.coded);
            chosen.extend(std::iter::repeat_n(Coded::Again, group - 1));
        } else {
            chosen.extend(own.into_iter().map(|c| c.coded));
        }
    }
    chosen
}

/// The frequencies that a reader of these tables will have.
pub(crate) fn expand(tables: &[Coded], alphabets: &[Alphabet]) -> Vec<Freqs> {
    let mut out: Vec<Freqs> = Vec::with_capacity(tables.len());
    for (t, &alphabet) in tables.iter().zip(alphabets) {
        let f = match t {
            Coded::Measured(f) => Some(f.clone()),
            Coded::Shaped(s) => s.freqs(alphabet),
            Coded::Again => out.last().cloned(),
        };
        // `choose` only keeps shapes that have frequencies and never starts with a repetition.
        out.push(f.unwrap_or_else(|| normalise(&[0; 256], alphabet)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bell(sigma: f64) -> Counts {
        let mut c = [0u64; 256];
        for k in -127i32..=127 {
            c[k as u8 as usize] = (1e6 * (-(k * k) as f64 / (2.0 * sigma * sigma)).exp() / sigma) as u64;
        }
        c
    }

    #[test]
    fn tables_cost_little_more_than_the_entropy() {
        let alphabet = Alphabet::levels(12, 0);
        for sigma in [0.3, 0.8, 1.5, 4.0, 12.0] {
            let counts = bell(sigma);
            let n: u64 = counts.iter().sum();
            let entropy: f64 =
                counts.iter().filter(|&&c| c > 0).map(|&c| -(c as f64) * (c as f64 / n as f64).log2()).sum();
            let freqs = normalise(&counts, alphabet);
            assert!(freqs.is_complete());
            let excess = (cost(&counts, &freqs) - entropy) / n as f64;
            assert!(excess < 0.004, "measured at {sigma}: {excess}");
            let shaped = shape(&counts, alphabet, None).freqs(alphabet).unwrap();
            let excess = (cost(&counts, &shaped) - entropy) / n as f64;
            assert!(excess < 0.02, "shaped at {sigma}: {excess}");
        }
    }

    #[test]
    fn few_values_get_shapes_and_many_get_measured_tables() {
        let alphabet = Alphabet::levels(12, 0);
        let large = bell(1.5);
        let small = large.map(|c| c / 2000);
        assert!(matches!(choose(&[small], &[alphabet], 1, &[])[0], Coded::Shaped(_)));
        assert!(matches!(choose(&[large], &[alphabet], 1, &[])[0], Coded::Measured(_)));
        // Two quantisers with the same statistics share a table.
        assert_eq!(choose(&[small, small], &[alphabet; 2], 2, &[])[1], Coded::Again);
    }
}
