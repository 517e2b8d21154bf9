//! Checks of the metadata of a kind's objects.

use serde_json::Value;

use crate::metadata::names;

/// Metadata check of a kind's rules for updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataCheck {
    /// Full check, as of a new object.
    Whole,
    /// Check of the fields that a change may not touch.
    Change,
}

/// Metadata checks of a kind, beside those of every kind.
#[derive(Clone, Copy)]
pub(crate) struct Metadata {
    /// Returns the problems of a text as the name of an object.
    pub(crate) name: fn(&str) -> Vec<String>,
    /// The same, of the kinds whose names depend on what the object says.
    pub(crate) name_of: Option<fn(&str, &Value) -> Vec<String>>,
    /// The name that an object must have because of what it is.
    pub(crate) required_name: Option<fn(&Value) -> RequiredName>,
    /// True if `generateName` itself is checked, and not only the name that is generated from it.
    pub(crate) checks_prefixes: bool,
    /// True if finalizers without a domain are refused: the kinds whose validation is Kubernetes' own, and not that
    /// of the generic API server.
    pub(crate) refuses_plain_finalizers: bool,
    /// True if the generic API server checks it, once nothing else is wrong with the object.
    pub(crate) is_checked_last: bool,
    /// Checks of an update of the object or its scale, in this order,
    pub(crate) update: &'static [MetadataCheck],
    /// and an update of its other subresources.
    pub(crate) subresources: &'static [MetadataCheck],
}

/// The name that an object must have.
pub(crate) struct RequiredName {
    pub(crate) name: String,
    /// Message about any other name.
    pub(crate) why: String,
    /// True if it is only asked for of a name that has the form of one.
    pub(crate) alone: bool,
}

impl Metadata {
    /// Most kinds.
    pub(crate) const DEFAULT: Self = Self {
        name: names::dns_subdomain,
        name_of: None,
        required_name: None,
        checks_prefixes: true,
        refuses_plain_finalizers: true,
        is_checked_last: false,
        update: &[MetadataCheck::Change, MetadataCheck::Whole],
        subresources: &[MetadataCheck::Change],
    };

    /// Custom resources and their definitions.
    pub(crate) const CUSTOM: Self =
        Self { refuses_plain_finalizers: false, update: &[MetadataCheck::Change], ..Self::DEFAULT };

    /// The kinds that leave it to the generic API server.
    pub(crate) const LAST: Self = Self {
        name: names::path_segment,
        refuses_plain_finalizers: false,
        is_checked_last: true,
        update: &[],
        subresources: &[],
        ..Self::DEFAULT
    };
}

#[cfg(test)]
mod tests {
    use crate::kinds;
    use crate::target::Target;

    #[test]
    fn some_kinds_have_names_of_their_own() {
        let cases: &[(&str, &str, &str, &[&str])] = &[
            ("", "pods", "a.b", &[]),
            ("apps", "statefulsets", "a.b", &["must not contain dots"]),
            ("", "events", "A b", &[]),
            ("", "events", "a/b", &["may not contain '/'"]),
            ("certificates.k8s.io", "certificatesigningrequests", "A:b", &[]),
        ];
        for (group, resource, name, problems) in cases {
            let target = Target { group, version: "v1", resource, subresource: None };
            assert_eq!((kinds::metadata(target).name)(name), *problems, "{resource} {name}");
        }
    }
}
