//! HTML of one page: headings, paragraphs, tables, drawings.

use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem}
svg{width:100%;height:auto;max-width:52rem;display:block}
table{border-collapse:collapse;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.22rem .7rem;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
tr.best td{font-weight:600}
.wide{overflow-x:auto}
.note{opacity:.75}";

/// A page under construction.
pub struct Document {
    body: String,
    title: String,
}

impl Document {
    /// An empty page.
    pub fn new(title: &str) -> Document {
        Document { body: format!("<h1>{}</h1>\n", escape(title)), title: escape(title) }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        self.push(format_args!("<h2>{}</h2>\n", escape(text)));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>\n", escape(text)));
    }

    /// Adds a remark.
    pub fn note(&mut self, text: &str) {
        self.push(format_args!("<p class=\"note\">{}</p>\n", escape(text)));
    }

    /// Adds a drawing, which is taken as it is.
    pub fn drawing(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    /// Adds a table; `best` says which rows stand out.
    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>], best: impl Fn(usize) -> bool) {
        let cells = |tag: &str, row: &mut dyn Iterator<Item = &str>| {
            row.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>()
        };
        let head = cells("th", &mut headings.iter().copied());
        self.push(format_args!("<div class=\"wide\"><table><tr>{head}</tr>\n"));
        for (number, row) in rows.iter().enumerate() {
            let class = if best(number) { " class=\"best\"" } else { "" };
            let row = cells("td", &mut row.iter().map(String::as_str));
            self.push(format_args!("<tr{class}>{row}</tr>\n"));
        }
        self.body.push_str("</table></div>\n");
    }

    /// The whole page.
    pub fn finish(self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            self.title, self.body
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(text);
    }
}

/// Text in which nothing is taken for markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
