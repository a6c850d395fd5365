//! Which curves are drawn at first, and how each family looks. Dozens of lines are no picture: ours, the
//! video codecs and the best of the others are shown, the page has the rest behind its legend.

use serde::Serialize;

use super::mean::Point;
use crate::race::run::Entrant;

/// Up to so many families are all shown.
const FEW: usize = 10;
/// Families shown of each other sort.
const OF_EACH: usize = 2;
/// Hues that stay apart for most kinds of colour vision, on white and on black (after Okabe and Ito).
const HUES: [(u8, u8, u8); 6] =
    [(0, 114, 178), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0), (127, 127, 140)];
/// Ours has a hue of its own.
const OUR_HUE: (u8, u8, u8) = (213, 94, 0);

/// How a family is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Style {
    pub colour: (u8, u8, u8),
    /// 0 is a full line; 1, 2 and 3 are dashes that get shorter.
    pub dash: usize,
    /// Drawn at first.
    pub shown: bool,
}

/// A style for each entrant; `points` are those of all tensors.
pub(crate) fn styles(entrants: &[Entrant], points: &[Point], reference: &str) -> Vec<Style> {
    let mut ours = entrants.iter().filter(|e| e.ours).count();
    let mut others = 0;
    let chosen = choose(entrants, points, reference);
    let style = |(number, entrant): (usize, &Entrant)| {
        let (colour, dash) = if entrant.ours {
            ours -= 1;
            (OUR_HUE, ours.min(3))
        } else {
            others += 1;
            (HUES[(others - 1) % HUES.len()], ((others - 1) / HUES.len()).min(3))
        };
        Style { colour, dash, shown: chosen.contains(&number) }
    };
    entrants.iter().enumerate().map(style).collect()
}

fn choose(entrants: &[Entrant], points: &[Point], reference: &str) -> Vec<usize> {
    let gap = |family: usize| {
        let gaps = points.iter().filter(|p| p.family == family).map(|p| p.gap);
        gaps.min_by(f64::total_cmp)
    };
    let drawn: Vec<usize> = (0..entrants.len()).filter(|&f| gap(f).is_some()).collect();
    if drawn.len() <= FEW {
        return drawn;
    }
    let always = |f: usize| {
        let e = &entrants[f];
        e.ours || e.kind == "video" || e.id == reference
    };
    let mut out: Vec<usize> = drawn.iter().copied().filter(|&f| always(f)).collect();
    for kind in ["quantiser", "entropy", "scientific"] {
        let mut rest: Vec<usize> =
            drawn.iter().copied().filter(|&f| entrants[f].kind == kind && !always(f)).collect();
        rest.sort_by(|&a, &b| gap(a).unwrap_or(f64::MAX).total_cmp(&gap(b).unwrap_or(f64::MAX)));
        out.extend(rest.into_iter().take(OF_EACH));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(id: String, kind: &'static str) -> Entrant {
        Entrant { title: id.clone(), id, kind, ours: kind == "ours" }
    }

    #[test]
    fn many_are_thinned_to_the_best_of_each_sort() {
        let mut entrants: Vec<Entrant> = (0..12).map(|i| entrant(format!("q{i}"), "quantiser")).collect();
        entrants.push(entrant("best".into(), "ours"));
        entrants.push(entrant("zstd".into(), "lossless"));
        let point = |family: usize, gap: f64| Point {
            family,
            peer: String::new(),
            target: None,
            bits: 2.0,
            nmse: 0.1,
            gap,
            max_error: 1.0,
            tensors: 1,
        };
        let points: Vec<Point> = (0..13).map(|f| point(f, 1.0 - f as f64 / 100.0)).collect();
        let shown = |points: &[Point], reference: &str| {
            let styles = styles(&entrants, points, reference);
            (0..14).filter(|&f| styles[f].shown).collect::<Vec<_>>()
        };
        assert_eq!(shown(&points, "none"), [10, 11, 12]);
        assert_eq!(shown(&points, "q3"), [3, 10, 11, 12]);
        assert_eq!(shown(&points[..4], "none"), [0, 1, 2, 3], "few are all shown");
    }

    #[test]
    fn no_two_of_the_first_dozen_look_alike() {
        let entrants: Vec<Entrant> = (0..12).map(|i| entrant(format!("q{i}"), "video")).collect();
        let styles = styles(&entrants, &[], "");
        for (i, a) in styles.iter().enumerate() {
            assert!(styles[..i].iter().all(|b| (a.colour, a.dash) != (b.colour, b.dash)));
        }
    }
}
