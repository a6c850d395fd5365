//! The curves as SVG and PNG, a panel for each kind of tensor.
//!
//! Text is drawn with a font that is built in, so that pictures are the same on a machine without any.

use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;

use super::super::figures::{Point, Style, kinds, points};
use super::super::run::Outcome;
use crate::race::RaceArgs;

const FONT: &str = "sans-serif";
const PANEL: (u32, u32) = (640, 430);
const LEGEND_LINE: u32 = 26;
const LEGEND_COLUMN: u32 = 320;
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(214, 218, 224);

/// A finished picture.
pub(super) struct Figure {
    pub name: &'static str,
    pub svg: String,
    pub png: Vec<u8>,
}

/// What stands on the vertical axis.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    Gap,
    Nmse,
    MaxError,
}

/// A panel: the points of a kind, and how much of the axes it shows.
struct Panel {
    title: String,
    points: Vec<Point>,
}

struct Drawing<'a> {
    axis: Axis,
    panels: &'a [Panel],
    titles: &'a [&'a str],
    ours: &'a [bool],
    styles: &'a [Style],
}

/// Gap, NMSE and largest error over bits.
pub(super) fn figures(args: &RaceArgs, outcome: &Outcome, styles: &[Style]) -> Result<Vec<Figure>> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let registered =
        REGISTERED.get_or_init(|| register_font(FONT, FontStyle::Normal, notosans::REGULAR_TTF).is_ok());
    if !registered {
        return Err(anyhow!("the built-in font cannot be read"));
    }
    let families: Vec<&str> = outcome.entrants.iter().map(|e| e.id.as_str()).collect();
    let titles: Vec<&str> = outcome.entrants.iter().map(|e| e.title.as_str()).collect();
    let ours: Vec<bool> = outcome.entrants.iter().map(|e| e.ours).collect();
    let panels: Vec<Panel> = kinds(&outcome.inputs)
        .into_iter()
        .map(|kind| {
            let mut points = points(&families, &outcome.rows, |i| outcome.inputs[i].kind == kind);
            points.retain(|p| styles[p.family].shown && p.bits <= args.drawn_bits());
            let count = outcome.inputs.iter().filter(|i| i.kind == kind).count();
            Panel { title: format!("{kind} ({count} tensors)").replace("(1 tensors)", "(1 tensor)"), points }
        })
        .collect();
    let mut out = Vec::new();
    for (name, axis) in [("gap", Axis::Gap), ("nmse", Axis::Nmse), ("max-error", Axis::MaxError)] {
        let drawing = Drawing { axis, panels: &panels, titles: &titles, ours: &ours, styles };
        out.push(drawing.both(name).map_err(|e| anyhow!("cannot draw {name}: {e}"))?);
    }
    Ok(out)
}

impl Drawing<'_> {
    fn both(&self, name: &'static str) -> Result<Figure, String> {
        let size = self.size();
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, size).into_drawing_area())?;
        let mut pixels = vec![0u8; size.0 as usize * size.1 as usize * 3];
        self.draw(BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area())?;
        let png = png(&pixels, size).map_err(|e| e.to_string())?;
        Ok(Figure { name, svg, png })
    }

    fn columns(&self) -> u32 {
        if self.panels.len() > 1 { 2 } else { 1 }
    }

    fn families_drawn(&self) -> Vec<usize> {
        let has = |f: usize| self.panels.iter().any(|p| p.points.iter().any(|q| q.family == f));
        (0..self.titles.len()).filter(|&f| has(f)).collect()
    }

    fn legend(&self) -> (u32, u32) {
        let columns = self.columns() * PANEL.0 / LEGEND_COLUMN;
        let lines = (self.families_drawn().len() as u32).div_ceil(columns);
        (columns, lines * LEGEND_LINE + 20)
    }

    fn size(&self) -> (u32, u32) {
        let rows = (self.panels.len() as u32).div_ceil(self.columns());
        (self.columns() * PANEL.0, rows * PANEL.1 + self.legend().1)
    }

    fn draw<B: DrawingBackend>(&self, root: DrawingArea<B, Shift>) -> Result<(), String> {
        root.fill(&WHITE).map_err(text)?;
        let rows = (self.panels.len() as u32).div_ceil(self.columns());
        let (top, bottom) = root.split_vertically(rows * PANEL.1);
        let areas = top.split_evenly((rows as usize, self.columns() as usize));
        for (panel, area) in self.panels.iter().zip(&areas) {
            self.panel(panel, area)?;
        }
        self.key(&bottom)?;
        root.present().map_err(text)
    }

    fn panel<B: DrawingBackend>(&self, panel: &Panel, area: &DrawingArea<B, Shift>) -> Result<(), String> {
        let height = |p: &Point| match self.axis {
            Axis::Gap => p.gap,
            Axis::Nmse => p.nmse.log10(),
            Axis::MaxError => p.max_error.log10(),
        };
        let (x, y) = (range(panel.points.iter().map(|p| p.bits)), range(panel.points.iter().map(height)));
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, (FONT, 22).into_font().color(&INK))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)
            .map_err(text)?;
        let power = |v: &f64| format!("{:.2e}", 10f64.powf(*v)).replace(".00e", "e");
        let plain = |v: &f64| format!("{v:.2}");
        let (described, label): (&str, &dyn Fn(&f64) -> String) = match self.axis {
            Axis::Gap => ("bits above the Gaussian bound", &plain),
            Axis::Nmse => ("NMSE", &power),
            Axis::MaxError => ("largest error / σ", &power),
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .label_style((FONT, 15).into_font().color(&INK))
            .axis_desc_style((FONT, 16).into_font().color(&INK))
            .x_desc("bits a value")
            .y_desc(described)
            .x_label_formatter(&|v| format!("{v:.1}"))
            .y_label_formatter(label)
            .draw()
            .map_err(text)?;
        // Ours last, so that nothing covers it.
        let mut order = self.families_drawn();
        order.sort_by_key(|&f| self.ours[f]);
        for family in order {
            let line: Vec<(f64, f64)> =
                panel.points.iter().filter(|p| p.family == family).map(|p| (p.bits, height(p))).collect();
            let stroke = self.stroke(family);
            if let Some((dash, space)) = dashes(self.styles[family].dash) {
                chart.draw_series(DashedLineSeries::new(line.clone(), dash, space, stroke)).map_err(text)?;
            } else {
                chart.draw_series(LineSeries::new(line.clone(), stroke)).map_err(text)?;
            }
            let radius = if self.ours[family] { 5 } else { 4 };
            let dots = line.into_iter().map(|p| Circle::new(p, radius, stroke.color.filled()));
            chart.draw_series(dots).map_err(text)?;
        }
        Ok(())
    }

    /// The legend under all panels.
    fn key<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), String> {
        let columns = self.legend().0;
        for (i, family) in self.families_drawn().into_iter().enumerate() {
            let (column, line) = (i as u32 % columns, i as u32 / columns);
            let x = (column * LEGEND_COLUMN + 30) as i32;
            let y = (line * LEGEND_LINE + 14) as i32;
            let stroke = self.stroke(family);
            let (dash, space) = dashes(self.styles[family].dash).unwrap_or((36, 0));
            let mut at = 0;
            while at < 36 {
                let end = (at + dash).min(36);
                area.draw(&PathElement::new([(x + at, y), (x + end, y)], stroke)).map_err(text)?;
                at += dash + space.max(1);
            }
            area.draw(&Circle::new((x + 18, y), 4, stroke.color.filled())).map_err(text)?;
            let style = (FONT, 16).into_font().color(&INK);
            area.draw(&Text::new(self.titles[family].to_string(), (x + 46, y - 7), style)).map_err(text)?;
        }
        Ok(())
    }

    fn stroke(&self, family: usize) -> ShapeStyle {
        let (r, g, b) = self.styles[family].colour;
        let width = if self.ours[family] { 3 } else { 2 };
        ShapeStyle { color: RGBColor(r, g, b).to_rgba(), filled: false, stroke_width: width }
    }
}

/// Length and space of dashes, as the page has them.
fn dashes(dash: usize) -> Option<(i32, i32)> {
    [None, Some((9, 5)), Some((4, 4)), Some((2, 5))].get(dash).copied().flatten()
}

/// A little more than the values take, never empty.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.filter(|v| v.is_finite()).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = ((high - low) * 0.06).max(0.02);
    (low - margin, high + margin)
}

fn text<E: std::error::Error>(error: E) -> String {
    error.to_string()
}

fn png(pixels: &[u8], size: (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(out)
}
