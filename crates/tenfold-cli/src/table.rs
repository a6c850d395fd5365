//! Plain tables: a header, right-aligned columns (the first one left), a line before the totals.

/// Widest table on a terminal; names are cut to fit.
const WIDTH: usize = 120;
/// Names are never cut shorter than this.
const MIN_NAME: usize = 24;

/// A table under construction; the first column holds names.
pub struct Table {
    rows: Vec<Vec<String>>,
    footer: Vec<Vec<String>>,
    shorten: bool,
}

impl Table {
    /// A table with these column headings. `shorten` lets long names be cut in the middle.
    pub fn new(headings: &[&str], shorten: bool) -> Self {
        let headings = headings.iter().map(|&h| h.to_owned()).collect();
        Table { rows: vec![headings], footer: Vec::new(), shorten }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds a row below the line.
    pub fn footer(&mut self, cells: Vec<String>) {
        self.footer.push(cells);
    }

    /// The table as text, ending in a newline.
    pub fn render(mut self) -> String {
        let columns = self.rows[0].len();
        let width = |rows: &[Vec<String>], footer: &[Vec<String>], column: usize| {
            rows.iter().chain(footer).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(|c| width(&self.rows, &self.footer, c)).collect();
        if self.shorten {
            let others: usize = widths[1..].iter().map(|w| w + 2).sum();
            widths[0] = widths[0].min(WIDTH.saturating_sub(others).max(MIN_NAME));
            for row in &mut self.rows {
                row[0] = cut(&row[0], widths[0]);
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            push_line(&mut out, row, &widths);
        }
        if !self.footer.is_empty() {
            out.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)));
            out.push('\n');
        }
        for row in &self.footer {
            push_line(&mut out, row, &widths);
        }
        out
    }
}

fn push_line(out: &mut String, row: &[String], widths: &[usize]) {
    let mut line = format!("{:<width$}", row[0], width = widths[0]);
    for (cell, width) in row.iter().zip(widths).skip(1) {
        line.push_str(&format!("  {cell:>width$}"));
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Cuts the middle out of a text that is too long: names differ at both ends.
fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_long_names_are_cut() {
        let mut table = Table::new(&["name", "bytes"], true);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["x".repeat(200), "12345".into()]);
        table.footer(vec!["total".into(), "12346".into()]);
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.chars().count() == WIDTH));
        assert!(lines[2].contains('…'));
    }

    #[test]
    fn short_names_stay_whole() {
        assert_eq!(cut("layers.0", 24), "layers.0");
        assert_eq!(cut("abcdefgh", 5), "ab…gh");
    }
}
