//! YAML as kubegc reads and writes it: errors on one line, lists indented as far as what they belong to, and long text on one line.

/// Advice of the parser that is meant for programmers.
const ADVICE: [&str; 2] = [
    ", set DuplicateKeyPolicy in Options if acceptable",
    "If you just use !!binary for documentation/annotation, set ignore_binary_tag_for_string in Options",
];

/// Reason why a text is not the expected YAML.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedYaml(String);

impl From<serde_saphyr::Error> for MalformedYaml {
    fn from(error: serde_saphyr::Error) -> Self {
        let text = error.to_string();
        Self(ADVICE.iter().fold(text, |text, advice| text.replace(advice, "")))
    }
}

/// Reads one document. Errors fit on one line: the parser's own show the surrounding text in several.
pub fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, MalformedYaml> {
    Ok(serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })?)
}

/// Reads all documents of a text, with errors of the same form.
pub fn from_multiple<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>, MalformedYaml> {
    Ok(serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { with_snippet: false })?)
}

/// Writes a value.
pub fn to_string(value: &impl serde::Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_advice_for_programs() {
        let read = |text: &str| from_str::<serde_json::Value>(text).map_err(|error| error.to_string());
        let error = read("a: 1\na: 2\n").err().unwrap_or_default();
        assert!(error.contains("duplicate mapping key: a") && error.contains("line 2"), "{error}");
        assert!(!error.contains("Options"), "{error}");
        assert!(from_multiple::<serde_json::Value>("a: 1\n---\na: 1\na: 2\n").is_err());
    }
}
