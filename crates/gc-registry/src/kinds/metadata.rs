//! Checks of the metadata of a kind's objects.

use serde_json::Value;

use crate::metadata::names;

/// Check of metadata in updates of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataCheck {
    /// Full check, as for a new object.
    Whole,
    /// Check of the immutable fields.
    Change,
}

/// Metadata checks of a kind, in addition to those of every kind.
#[derive(Clone, Copy)]
pub(crate) struct Metadata {
    /// Returns the errors in the name of an object.
    pub(crate) name: fn(&str) -> Vec<String>,
    /// Returns the errors in the name, for kinds whose names depend on the object.
    pub(crate) name_of: Option<fn(&str, &Value) -> Vec<String>>,
    /// Returns the name that an object must have because of its contents.
    pub(crate) required_name: Option<fn(&Value) -> RequiredName>,
    /// True if `generateName` itself is checked, in addition to the name generated from it.
    pub(crate) checks_prefixes: bool,
    /// True if finalizers without a domain are refused: for kinds with Kubernetes' own validation, as opposed to that of the
    /// generic API server.
    pub(crate) refuses_plain_finalizers: bool,
    /// True if the generic API server checks the metadata, after all other checks have passed.
    pub(crate) is_checked_last: bool,
    /// Checks in an update of the object or its scale, in this order,
    pub(crate) update: &'static [MetadataCheck],
    /// and in an update of its other subresources.
    pub(crate) subresources: &'static [MetadataCheck],
}

/// Required name of an object.
pub(crate) struct RequiredName {
    pub(crate) name: String,
    /// Message about any other name.
    pub(crate) why: String,
    /// True if it is only required of names that are otherwise valid.
    pub(crate) alone: bool,
}

impl Metadata {
    /// Rules of most kinds.
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

    /// Rules of custom resources and their definitions.
    pub(crate) const CUSTOM: Self =
        Self { refuses_plain_finalizers: false, update: &[MetadataCheck::Change], ..Self::DEFAULT };

    /// Rules of kinds that leave these checks to the generic API server.
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
