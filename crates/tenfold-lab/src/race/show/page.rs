//! The page: one HTML file with its style, its program and all data inside. It asks nothing of a network.

use anyhow::{Context, Result};
use serde::Serialize;

use super::Report;
use super::report::TensorInfo;
use crate::metrics::{Fidelity, median};
use crate::race::RaceArgs;
use crate::race::figures::{Point, Style, kinds, points};
use crate::race::run::{Entrant, Heat, Outcome, SIDE, TensorKind};
use crate::values::to_f64;

const HTML: &str = include_str!("../page/page.html");
const CSS: &str = include_str!("../page/page.css");
const SCRIPTS: [&str; 5] = [
    include_str!("../page/page.js"),
    include_str!("../page/tables.js"),
    include_str!("../page/chart.js"),
    include_str!("../page/heat.js"),
    include_str!("../page/start.js"),
];
/// Bytes of all pictures of errors together; they get coarser before a phone has to load more.
const PICTURE_BYTES: usize = 1_500_000;

#[derive(Serialize)]
struct Family<'a> {
    #[serde(flatten)]
    entrant: &'a Entrant,
    #[serde(flatten)]
    style: &'a Style,
}

#[derive(Serialize)]
struct TensorPage<'a> {
    #[serde(flatten)]
    info: &'a TensorInfo,
    std: f64,
    /// Bytes 1 to 255 of the picture are the mean of the tensor − scale to + scale.
    scale: f64,
    picture: Heat,
    points: Vec<Point>,
    errors: Vec<ErrorPage<'a>>,
}

#[derive(Serialize)]
struct ErrorPage<'a> {
    family: usize,
    peer: &'a str,
    bits: f64,
    picture: Heat,
}

#[derive(Serialize)]
struct KindPage {
    kind: TensorKind,
    points: Vec<Point>,
}

/// Values a second: medians over the tensors at the rate of the pictures.
#[derive(Serialize)]
struct SpeedPage {
    family: usize,
    peer: String,
    threads: usize,
    encode: f64,
    decode: f64,
}

#[derive(Serialize)]
struct Data<'a> {
    headline: &'a str,
    losses: &'a super::super::figures::Losses,
    #[serde(flatten)]
    origin: &'a crate::bench::report::Origin,
    notes: &'a [String],
    reference: &'a str,
    rate: f64,
    /// Bits up to which curves are drawn at first.
    limit: f64,
    families: Vec<Family<'a>>,
    not_available: &'a [super::super::run::Absent],
    failures: Vec<[&'a str; 4]>,
    tensors: Vec<TensorPage<'a>>,
    kinds: Vec<KindPage>,
    equal: &'a Option<Vec<super::super::figures::EqualTable>>,
    gaps: &'a [super::super::figures::GapTable],
    speeds: Vec<SpeedPage>,
}

/// The whole page.
pub(super) fn page(args: &RaceArgs, outcome: &Outcome, report: &Report, styles: &[Style]) -> Result<String> {
    let ids: Vec<&str> = outcome.entrants.iter().map(|e| e.id.as_str()).collect();
    let families = outcome.entrants.iter().zip(styles);
    let kind_points = kinds(&outcome.inputs).into_iter().map(|kind| KindPage {
        kind,
        points: points(&ids, &outcome.rows, |i| outcome.inputs[i].kind == kind),
    });
    let failures =
        report.failures().map(|(r, why)| [r.peer.as_str(), r.file.as_str(), r.tensor.as_str(), why]);
    let data = Data {
        headline: &report.headline,
        losses: &report.losses,
        origin: &report.origin,
        notes: &report.notes,
        reference: &report.reference,
        rate: args.picture_rate(),
        limit: args.drawn_bits(),
        families: families.map(|(entrant, style)| Family { entrant, style }).collect(),
        not_available: &report.not_available,
        failures: failures.collect(),
        tensors: tensors(outcome, report, &ids, args.picture_rate())?,
        kinds: kind_points.collect(),
        equal: &report.equal_error,
        gaps: &report.gaps,
        speeds: speeds(outcome, args.picture_rate()),
    };
    let json = serde_json::to_string(&data).context("the page's data does not serialise")?;
    // The data goes in last: nothing in it can be taken for a place to fill.
    let page = HTML.replace("{{style}}", CSS).replace("{{script}}", &SCRIPTS.concat());
    let (before, after) = page.split_once("{{data}}").context("the page has a place for its data")?;
    Ok(format!("{before}{}{after}", escape_script(&json)))
}

/// JSON in which nothing can end the element around it: `<` only occurs in strings, where it has another
/// spelling.
fn escape_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn tensors<'a>(
    outcome: &'a Outcome,
    report: &'a Report,
    ids: &[&str],
    rate: f64,
) -> Result<Vec<TensorPage<'a>>> {
    let count = (outcome.inputs.len() * ids.len()).max(1);
    let side = [SIDE, 64, 48, 32].into_iter().find(|s| s * s * count <= PICTURE_BYTES).unwrap_or(24);
    let mut out = Vec::new();
    for (number, (input, info)) in outcome.inputs.iter().zip(&report.tensors).enumerate() {
        let view = input.tensor.view()?;
        let values = to_f64(&view).context("only floats race")?;
        let own = Fidelity::new(&values, &values);
        let (picture, scale) = Heat::from_values(&values, view.cols(), own.mean());
        let errors = ids.iter().enumerate().filter_map(|(family, id)| {
            let of_family = outcome.pictures.iter().filter(|p| p.input == number && p.family == *id);
            // Coders that cannot be aimed have several; the nearest rate is shown.
            let nearest = |a: &f64, b: &f64| (a - rate).abs().total_cmp(&(b - rate).abs());
            let picture = of_family.min_by(|a, b| nearest(&a.bits, &b.bits))?;
            Some(ErrorPage {
                family,
                peer: &picture.peer,
                bits: picture.bits,
                picture: picture.heat.shrink(side),
            })
        });
        let errors = errors.collect();
        let points = points(ids, &outcome.rows, |i| i == number);
        out.push(TensorPage { info, std: own.variance().sqrt(), scale, picture, points, errors });
    }
    Ok(out)
}

/// Each family at the member that was aimed at the rate or whose bits are nearest, on one thread and on all.
fn speeds(outcome: &Outcome, rate: f64) -> Vec<SpeedPage> {
    let mut out = Vec::new();
    for (family, entrant) in outcome.entrants.iter().enumerate() {
        let rows = || outcome.rows.iter().filter(|r| r.family == entrant.id);
        let distance = |r: &super::super::Row| {
            let bits = r.target.or(r.measured.as_ref().map(|m| m.bits)).unwrap_or(f64::MAX);
            (bits - rate).abs()
        };
        let timed = rows().filter(|r| r.measured.as_ref().is_some_and(|m| !m.speeds.is_empty()));
        let Some(member) = timed.min_by(|a, b| distance(a).total_cmp(&distance(b))) else {
            continue;
        };
        let same = || rows().filter(|r| r.peer == member.peer && r.target == member.target);
        let found: Vec<_> = same().filter_map(|r| r.measured.as_ref()).flat_map(|m| &m.speeds).collect();
        let mut threads: Vec<usize> = found.iter().map(|s| s.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        for threads in threads {
            let of = |pick: fn(&crate::race::Speed) -> f64| {
                median(&found.iter().filter(|s| s.threads == threads).map(|s| pick(s)).collect::<Vec<_>>())
            };
            let (encode, decode) = (of(|s| s.encode), of(|s| s.decode));
            out.push(SpeedPage { family, peer: member.peer.clone(), threads, encode, decode });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_element() {
        let name = "</script><script>alert(1)</script><!-- {{style}} \" ' \\ ";
        let json = serde_json::to_string(&[name]).unwrap();
        let safe = escape_script(&json);
        assert!(!safe.contains('<'));
        let back: Vec<String> = serde_json::from_str(&safe).unwrap();
        assert_eq!(back, [name]);
    }

    #[test]
    fn the_page_asks_nothing_of_a_network() {
        let all = [&[HTML, CSS], &SCRIPTS[..]].concat().concat();
        for word in ["http://", "https://", "src=", "@import", "url(", "fetch("] {
            let allowed = all.replace("http://www.w3.org/2000/svg", "");
            assert!(!allowed.contains(word), "{word}");
        }
        assert_eq!(HTML.matches("{{").count(), 3);
    }
}
