//! YAML as kubegc reads and writes it: errors in one line; lists as far in as what they belong to, and long text in one line.

/// What the parser advises programs, not people, after it found a key twice.
const ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

/// Why a text cannot be read, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct YamlError(String);

impl From<serde_saphyr::Error> for YamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        Self(error.to_string().replace(ADVICE, ""))
    }
}

/// Reads one document. Errors fit in one line: the parser's own show the text around them in several.
pub(crate) fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    Ok(serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })?)
}

/// Reads all documents of a text, likewise.
pub(crate) fn from_multiple<T: serde::de::DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    Ok(serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { with_snippet: false })?)
}

/// Writes a value.
pub(crate) fn to_string(value: &impl serde::Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_key_that_stands_twice_is_named_without_advice_to_programs() {
        let error =
            super::from_str::<serde_json::Value>("a: 1\nb: 2\na: 3\n").map_err(|error| error.to_string());
        assert_eq!(error, Err("duplicate mapping key: a at line 3, column 1".to_owned()));
    }
}
