//! Target that the rules of kinds depend on.

/// The target of a write: what the rules of kinds depend on.
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
