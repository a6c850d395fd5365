//! The `config.json` of a Hugging Face folder says how its weights are stored: transformers looks there for the method
//! that reads them. Compressing adds that entry and decompressing takes it out again, byte for byte.

use serde_json::{Map, Value};

use crate::tags;

/// Name of the file, at the top of the folder.
pub(crate) const FILE_NAME: &str = "config.json";

const KEY: &str = "quantization_config";
const METHOD: &str = "tenfold";

/// Which way a folder goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The output holds blobs.
    Compress,
    /// The output holds plain tensors.
    Decompress,
}

/// The configuration for the output. `None` where it stays as it is: it is not a model's, or names another method.
pub(crate) fn convert(text: &str, direction: Direction) -> Option<String> {
    let root: Map<String, Value> = serde_json::from_str(text).ok()?;
    let method = root.get(KEY).and_then(|config| config.get("quant_method"));
    match direction {
        Direction::Compress => {
            let is_model = root.contains_key("model_type") || root.contains_key("architectures");
            (is_model && !root.contains_key(KEY)).then(|| add(text)).flatten()
        }
        Direction::Decompress => (method.and_then(Value::as_str) == Some(METHOD)).then(|| remove(text, root)),
    }
}

/// The entry, inserted right after the opening brace: the rest of the text does not change, so it can be restored
/// exactly.
fn entry() -> String {
    format!("\n  \"{KEY}\": {{\"quant_method\": \"{METHOD}\", \"format\": {}}},", tags::MODEL_FORMAT)
}

fn add(text: &str) -> Option<String> {
    let (before, after) = text.split_once('{')?;
    Some(format!("{before}{{{}{after}", entry()))
}

fn remove(text: &str, mut root: Map<String, Value>) -> String {
    let exact = text.split_once('{').and_then(|(before, after)| {
        after.strip_prefix(entry().as_str()).map(|after| format!("{before}{{{after}"))
    });
    // Others may have written the file since (`save_pretrained` does): then only the entry's meaning can be taken out.
    exact.unwrap_or_else(|| {
        root.shift_remove(KEY);
        format!("{:#}\n", Value::Object(root))
    })
}

#[cfg(test)]
mod tests {
    use super::Direction::{Compress, Decompress};
    use super::*;

    #[test]
    fn what_was_added_goes_again_byte_for_byte() {
        for text in [
            "{\"model_type\": \"llama\"}",
            "{\n  \"architectures\": [\"A{B\"],\n  \"x\": 1.0e5\n}\n",
            "\r\n {\t\"model_type\":\"ü\"}",
        ] {
            let with = convert(text, Compress).unwrap();
            let json: Value = serde_json::from_str(&with).unwrap();
            assert_eq!(json[KEY]["quant_method"], METHOD);
            assert_eq!(json[KEY]["format"], 1);
            assert_eq!(convert(&with, Decompress).unwrap(), text);
        }
    }

    #[test]
    fn other_configurations_stay_as_they_are() {
        for text in [
            "{}",
            "[1]",
            "",
            "{",
            "{\"a\": 1}",
            "{\"model_type\": \"x\", \"quantization_config\": {\"quant_method\": \"awq\"}}",
        ] {
            assert_eq!(convert(text, Compress), None, "{text}");
            assert_eq!(convert(text, Decompress), None, "{text}");
        }
    }

    #[test]
    fn an_entry_that_was_written_by_others_goes_too() {
        let text = "{\"a\": 1, \"quantization_config\": {\"keep_compressed\": true, \"quant_method\": \"tenfold\"}, \"b\": 2}";
        assert_eq!(convert(text, Decompress).unwrap(), "{\n  \"a\": 1,\n  \"b\": 2\n}\n");
    }
}
