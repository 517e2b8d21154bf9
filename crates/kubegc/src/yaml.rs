//! YAML as kubegc writes it: lists as far in as what they belong to, and long text in one line.

/// Writes a value.
pub(crate) fn to_string(value: &impl serde::Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options)
}
