//! A line a measurement, for spreadsheets.

use super::Report;

const HEADINGS: &str = "file,tensor,kind,dtype,shape,values,family,peer,lossless,target_bits,bytes,bits,nmse,mse,\
max_error,max_error_over_std,gap_bits,lost_specials,encode_1_thread,decode_1_thread,threads,encode_threads,\
decode_threads,commit,failure\n";

/// All rows; speeds are values a second, what does not exist is empty.
pub(super) fn write_csv(report: &Report) -> String {
    let mut out = HEADINGS.to_string();
    for row in &report.rows {
        let tensor = &report.tensors[row.input];
        let shape = tensor.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        let m = row.measured.as_ref();
        let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let speeds = m.map_or(&[][..], |m| &m.speeds);
        let (one, several) = (speeds.first(), speeds.get(1));
        let cells = [
            row.file.clone(),
            row.tensor.clone(),
            row.kind.name().to_string(),
            tensor.dtype.clone(),
            shape,
            tensor.values.to_string(),
            row.family.clone(),
            row.peer.clone(),
            row.lossless.to_string(),
            number(row.target),
            m.map_or(String::new(), |m| m.bytes.to_string()),
            number(m.map(|m| m.bits)),
            number(m.and_then(|m| m.nmse)),
            number(m.map(|m| m.mse)),
            number(m.map(|m| m.max_error)),
            number(m.and_then(|m| m.max_error_over_std)),
            number(m.and_then(|m| m.gap)),
            m.map_or(String::new(), |m| m.lost_specials.to_string()),
            number(one.map(|s| s.encode)),
            number(one.map(|s| s.decode)),
            several.map_or(String::new(), |s| s.threads.to_string()),
            number(several.map(|s| s.encode)),
            number(several.map(|s| s.decode)),
            row.commit.clone(),
            row.failure.clone().unwrap_or_default(),
        ];
        out += &cells.iter().map(|cell| quote(cell)).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    out
}

/// Quoted where a comma, a quote or a line end would be taken for structure.
fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_survives_odd_names() {
        assert_eq!(quote("plain name"), "plain name");
        assert_eq!(quote("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        // 25 fields in the heading, as many as a row has cells.
        assert_eq!(HEADINGS.trim_end().split(',').count(), 25);
    }
}
