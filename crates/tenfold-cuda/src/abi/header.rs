//! The C header that describes what host and device share.

use std::fmt::Write;

use super::{CType, Each, Named, Rate};

/// The header on its way.
#[derive(Default)]
pub(crate) struct Header {
    pub(super) text: String,
    /// Each kernel with the bytes of its arguments.
    pub(super) kernels: Vec<(&'static str, usize)>,
}

/// Fields of one type.
pub(crate) struct Fields<'a> {
    pub(crate) about: &'a [&'a str],
    pub(crate) declare: fn(&[String]) -> String,
    /// Their names, and where they are.
    pub(crate) offsets: &'a [(&'a str, usize)],
}

impl Header {
    fn write_line(&mut self, indent: &str, line: &str) {
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn write_comment(&mut self, indent: &str, lines: &[&str]) {
        lines.iter().for_each(|line| self.write_line(indent, format!("//{line}").trim_end()));
    }

    /// Starts a part.
    pub(crate) fn start_part(&mut self, about: &str) {
        self.write_line("", &format!("\n// {about}"));
    }

    pub(crate) fn write_constant(&mut self, name: &str, about: &[&str], value: &str) {
        self.write_comment("", about);
        self.write_line("", &format!("#define {name} {value}"));
    }

    /// What the kernels define themselves: `Each`, a template, and the state of a search.
    pub(crate) fn declare_elsewhere(&mut self) {
        self.write_line("", &format!("struct {};", Rate::name()));
        let name = Each::<u8>::name();
        self.write_size(&name, size_of::<Each<u8>>());
        self.write_line("", &format!("OFFSET({name}, apart, {});", std::mem::offset_of!(Each<u8>, apart)));
    }

    pub(crate) fn write_struct(&mut self, name: &str, about: &[&str], size: usize, fields: &[Fields]) {
        self.text.push('\n');
        self.write_comment("", about);
        self.write_line("", &format!("struct {name} {{"));
        for Fields { about, declare, offsets } in fields {
            self.write_comment("    ", about);
            let names: Vec<String> = offsets.iter().map(|(name, _)| name.to_string()).collect();
            self.write_line("    ", &format!("{};", declare(&names)));
        }
        self.write_line("", "};");
        self.write_size(name, size);
        let mut line = String::new();
        for (field, at) in fields.iter().flat_map(|f| f.offsets) {
            let check = format!("OFFSET({name}, {field}, {at});");
            if line.len() + check.len() > 110 {
                self.write_line("", &line);
                line.clear();
            }
            line = [line, check].join(" ").trim_start().into();
        }
        self.write_line("", &line);
    }

    fn write_size(&mut self, name: &str, size: usize) {
        self.write_line("", &format!("static_assert(sizeof({name}) == {size}, \"size of {name}\");"));
    }

    pub(crate) fn write_kernel<A: CType>(&mut self, name: &'static str, grid_constant: bool) {
        let how = if grid_constant { "GRID_CONSTANT " } else { "" };
        self.write_line("", &format!("extern \"C\" __global__ void {name}(const {how}{} a);", A::name()));
        self.kernels.push((name, size_of::<A>()));
    }
}
