//! YAML as kubegc reads and writes it: errors in one line; lists as far in as what they belong to, and long text in one line.

/// Reads one document. Errors fit in one line: the parser's own show the text around them in several.
pub(crate) fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
}

/// Reads all documents of a text, likewise.
pub(crate) fn from_multiple<T: serde::de::DeserializeOwned>(
    text: &str,
) -> Result<Vec<T>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { with_snippet: false })
}

/// Writes a value.
pub(crate) fn to_string(value: &impl serde::Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options)
}
