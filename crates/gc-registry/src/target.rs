//! The target of a write, which determines the rules of its kind.

/// The target of a write, which determines the rules of its kind.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Version of the request.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource, if any.
    pub subresource: Option<&'a str>,
}
