//! Choosing families by what stands on a command line.

use thiserror::Error;

use super::{Family, Kind};

/// A name that selects nobody.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no coder is called `{name}`; there are {known}, and the kinds {kinds}")]
pub struct UnknownFamily {
    /// What was asked for.
    pub name: String,
    /// All ids, with commas.
    pub known: String,
    /// All kinds, with commas.
    pub kinds: String,
}

/// Those of the families that any of the names selects: an id, a kind ([`Kind::name`]), or a pattern with `*`
/// for any characters. They come in the order of the list, each once; a name that selects nobody is an error.
pub fn find<'a>(families: &'a [Family], names: &[impl AsRef<str>]) -> Result<Vec<&'a Family>, UnknownFamily> {
    let names: Vec<&str> = names.iter().map(|n| n.as_ref().trim()).collect();
    let selects = |name: &str, f: &Family| name == f.kind.name() || matches(name, f.id);
    if let Some(lost) = names.iter().find(|name| !families.iter().any(|f| selects(name, f))) {
        let known: Vec<&str> = families.iter().map(|f| f.id).collect();
        return Err(UnknownFamily {
            name: (*lost).to_string(),
            known: known.join(", "),
            kinds: Kind::ALL.map(Kind::name).join(", "),
        });
    }
    Ok(families.iter().filter(|f| names.iter().any(|name| selects(name, f))).collect())
}

/// Whether a pattern with stars covers a whole text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(rest) = text.strip_prefix(head) else {
        return false;
    };
    // Patterns and ids are short, so trying every length of the star is fine.
    rest.char_indices().map(|(i, _)| i).chain([rest.len()]).any(|i| matches(tail, &rest[i..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::families;

    fn found(pattern: &str) -> Result<Vec<&'static Family>, UnknownFamily> {
        find(families(), &pattern.split(',').collect::<Vec<_>>())
    }

    fn ids(pattern: &str) -> Vec<&'static str> {
        found(pattern).unwrap().iter().map(|f| f.id).collect()
    }

    #[test]
    fn ids_kinds_and_patterns() {
        assert_eq!(ids("nf4"), ["nf4"]);
        assert_eq!(ids("ours"), ["fast", "balanced", "best"]);
        assert_eq!(ids("rtn-*4"), ["rtn-64"]);
        assert_eq!(ids("zstd, *-lz4 ,nf4"), ["nf4", "int-lz4", "mxfp-lz4", "zstd"]);
        assert_eq!(ids("*").len(), families().len());
        assert!(ids("lossless").contains(&"tenfold-lossless") && ids("lossless").contains(&"pco"));
    }

    #[test]
    fn unknown_names_are_answered_with_what_there_is() {
        for bad in ["nobody", "rtn-*9", "", "nf4,nobody", "nf"] {
            let e = found(bad).err().unwrap();
            assert!(e.known.contains("mxfp-huffman") && e.to_string().contains("quantiser"), "{bad}: {e}");
        }
    }

    #[test]
    fn ids_are_unique_plain_and_no_kinds() {
        for (i, f) in families().iter().enumerate() {
            assert!(
                f.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{}",
                f.id
            );
            assert!(families()[..i].iter().all(|g| g.id != f.id && g.title != f.title), "{}", f.id);
            assert!(Kind::ALL.iter().all(|k| k.name() != f.id), "{}", f.id);
        }
    }
}
