//! Line charts as SVG: axes, lines, dots with a text under the pointer, a legend.

use std::fmt::Write;

use super::html::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Room for labels: left, top, bottom. The right side is the legend's.
const ROOM: (f64, f64, f64) = (74.0, 40.0, 52.0);
const LEGEND: f64 = 236.0;
/// Colours that differ for most eyes, on light and on dark ground.
const COLOURS: [&str; 8] =
    ["#7a7a7a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8b4fc4"];

/// How an axis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal ratios.
    Log,
}

/// One axis.
pub struct Axis<'a> {
    /// What it shows.
    pub label: &'a str,
    /// How it runs.
    pub scale: Scale,
    /// A number for people.
    pub show: &'a dyn Fn(f64) -> String,
    /// Values that get a line; chosen from the data if there are none.
    pub ticks: Vec<f64>,
}

/// One line.
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Points from left to right, with a text each; an empty text draws no dot.
    pub points: Vec<(f64, f64, String)>,
    /// Whether it is dashed.
    pub dashed: bool,
    /// Whether it rises in steps, as a front does.
    pub steps: bool,
}

/// A chart.
pub struct Chart<'a> {
    /// Its heading.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: Axis<'a>,
    /// The vertical axis.
    pub y: Axis<'a>,
    /// The lines; the first is grey.
    pub series: Vec<Series>,
    /// Vertical lines with a text.
    pub marks: Vec<(f64, String)>,
}

impl Chart<'_> {
    /// The drawing, which also stands alone as a file.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let frame = Frame {
            x: Span::new(points().map(|p| p.0).chain(self.marks.iter().map(|m| m.0)), self.x.scale, 0.0),
            y: Span::new(points().map(|p| p.1), self.y.scale, 0.05),
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\">\
             <style>.c{{font:13px system-ui,sans-serif;fill:#777}}.t{{font-weight:600;font-size:15px}}.g{{stroke:#8884;stroke-width:1}}\
             .l{{fill:none;stroke-width:2.2;stroke-linejoin:round}}.m{{stroke:#888;stroke-dasharray:2 4}}</style>\
             <text class=\"c t\" x=\"{1}\" y=\"20\">{0}</text>\n",
            escape(self.title),
            ROOM.0,
        );
        self.axes(&frame, &mut out);
        for (x, text) in &self.marks {
            let at = frame.at_x(*x);
            let _ = writeln!(
                out,
                "<line class=\"m\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"c\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                ROOM.1,
                HEIGHT - ROOM.2,
                at + 4.0,
                HEIGHT - ROOM.2 - 6.0,
                escape(text)
            );
        }
        for (number, series) in self.series.iter().enumerate() {
            series.draw(&frame, number, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    fn axes(&self, frame: &Frame, out: &mut String) {
        let (left, right, top, bottom) = (ROOM.0, WIDTH - LEGEND, ROOM.1, HEIGHT - ROOM.2);
        // Writing to a string does not fail.
        for tick in frame.x.ticks(&self.x.ticks, 6) {
            let at = frame.at_x(tick);
            let _ = writeln!(
                out,
                "<line class=\"g\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text class=\"c\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                escape(&(self.x.show)(tick))
            );
        }
        for tick in frame.y.ticks(&self.y.ticks, 7) {
            let at = frame.at_y(tick);
            let _ = writeln!(
                out,
                "<line class=\"g\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"c\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 7.0,
                at + 4.0,
                escape(&(self.y.show)(tick))
            );
        }
        let _ = writeln!(
            out,
            "<text class=\"c\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"c\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            HEIGHT - 10.0,
            escape(self.x.label),
            (top + bottom) / 2.0,
            escape(self.y.label)
        );
    }
}

impl Series {
    fn draw(&self, frame: &Frame, number: usize, out: &mut String) {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = if self.dashed { " stroke-dasharray=\"6 5\"" } else { "" };
        let mut path = String::new();
        let mut before = None;
        for (x, y, _) in self.points.iter().filter(|p| p.0.is_finite() && p.1.is_finite()) {
            let (x, y) = (frame.at_x(*x), frame.at_y(*y));
            let _ = match before {
                None => write!(path, "M{x:.1} {y:.1}"),
                Some(_) if self.steps => write!(path, "H{x:.1}V{y:.1}"),
                Some(_) => write!(path, "L{x:.1} {y:.1}"),
            };
            before = Some(y);
        }
        let _ = writeln!(out, "<path class=\"l\" stroke=\"{colour}\"{dash} d=\"{path}\"/>");
        for (x, y, text) in self.points.iter().filter(|p| !p.2.is_empty()) {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.4\" fill=\"{colour}\"><title>{}</title></circle>",
                frame.at_x(*x),
                frame.at_y(*y),
                escape(text)
            );
        }
        let (x, y) = (WIDTH - LEGEND + 16.0, ROOM.1 + 12.0 + 21.0 * number as f64);
        let _ = writeln!(
            out,
            "<path class=\"l\" stroke=\"{colour}\"{dash} d=\"M{x} {y}h24\"/><text class=\"c\" x=\"{}\" y=\"{}\">{}</text>",
            x + 31.0,
            y + 4.0,
            escape(&self.label)
        );
    }
}

struct Frame {
    x: Span,
    y: Span,
}

impl Frame {
    fn at_x(&self, value: f64) -> f64 {
        ROOM.0 + self.x.share(value) * (WIDTH - LEGEND - ROOM.0)
    }

    fn at_y(&self, value: f64) -> f64 {
        HEIGHT - ROOM.2 - self.y.share(value) * (HEIGHT - ROOM.1 - ROOM.2)
    }
}

/// The values that an axis spans.
struct Span {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Span {
    fn new(values: impl Iterator<Item = f64>, scale: Scale, margin: f64) -> Span {
        let usable = |v: &f64| v.is_finite() && (scale == Scale::Linear || *v > 0.0);
        let forward = |v: f64| if scale == Scale::Log { v.log10() } else { v };
        let (mut low, mut high) =
            values.filter(usable).map(forward).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if scale == Scale::Linear {
            low = low.min(0.0);
        }
        let room = ((high - low) * margin).max(if high - low < 1e-9 { 0.5 } else { 0.0 });
        Span { low: if scale == Scale::Linear { low } else { low - room }, high: high + room, scale }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    /// The stated values that lie within, or powers of ten, or round steps.
    fn ticks(&self, stated: &[f64], most: usize) -> Vec<f64> {
        if !stated.is_empty() {
            return stated
                .iter()
                .copied()
                .filter(|v| (-1e-9..=1.0 + 1e-9).contains(&self.share(*v)))
                .collect();
        }
        if self.scale == Scale::Log {
            // Exponents of finite numbers; where there are many, every so many of them.
            let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
            let step = (last - first).max(0) as usize / (most * 2) + 1;
            let powers = (first..=last).step_by(step).map(|e| 10f64.powi(e));
            return powers.filter(|v| v.is_finite() && *v > 0.0).collect();
        }
        let rough = (self.high - self.low) / most as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(power);
        let first = (self.low / step).ceil();
        (0..=most * 2).map(|i| (first + i as f64) * step).take_while(|v| *v <= self.high).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_is_finite_whatever_it_is_given() {
        let show = |v: f64| format!("{v} < \"&\"");
        for points in [
            vec![],
            vec![(0.0, 0.0)],
            vec![(1.0, f64::INFINITY), (f64::NAN, 2.0)],
            vec![(-1.0, 3.0), (5.0, 1e300)],
        ] {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = || Axis { label: "<b>", scale, show: &show, ticks: Vec::new() };
                let points = points.iter().map(|&(x, y)| (x, y, String::new())).collect();
                let series = vec![Series { label: "a & b".into(), points, dashed: true, steps: false }];
                let chart =
                    Chart { title: "t", x: axis(), y: axis(), series, marks: vec![(1.0, "<x>".into())] };
                let svg = chart.to_svg();
                assert!(
                    !svg.contains("NaN")
                        && !svg.contains("inf\"")
                        && !svg.contains("<b>")
                        && !svg.contains("<x>"),
                    "{svg}"
                );
            }
        }
    }

    #[test]
    fn ticks_are_round() {
        let span = Span::new([0.0, 47.0].into_iter(), Scale::Linear, 0.0);
        assert_eq!(span.ticks(&[], 6), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let span = Span::new([3.0, 2e4].into_iter(), Scale::Log, 0.0);
        assert_eq!(span.ticks(&[], 6), [10.0, 100.0, 1000.0, 10000.0]);
    }
}
