//! Distinguishes the requested list from everything else that may be returned in its place: a gateway's page, the response to
//! another request, an empty document.

use crate::ResourceInfo;

/// Kind of a list whose items are metadata only.
pub const METADATA_LIST: &str = "PartialObjectMetadataList";
/// Kind of an object that is metadata only.
pub const METADATA_OBJECT: &str = "PartialObjectMetadata";

/// Reason why a response is not the requested list. Nothing is concluded from it, least of all that something is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTheList {
    /// A list of something else, or not a list.
    #[error("expected a list of {expected}, not {found:?}")]
    Kind {
        /// Requested apiVersion and kind.
        expected: String,
        /// Received apiVersion and kind.
        found: String,
    },
    /// Does not contain the version of the store that it shows.
    #[error("the list has no resourceVersion")]
    NoVersion,
    /// Has no member `items`.
    #[error("the list has no items")]
    NoItems,
    /// One of its items has no name.
    #[error("an item of the list has no name")]
    NamelessItem,
    /// An object of another kind, in a watch or as a response of its own.
    #[error("expected an object of kind {expected}, not {found:?}")]
    OtherObject {
        /// Requested kind.
        expected: String,
        /// Received kind.
        found: String,
    },
}

/// The envelope of a list: the parts that every list of an API server has, whatever its items are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead<'a> {
    /// `apiVersion`
    pub api_version: &'a str,
    /// `kind`
    pub kind: &'a str,
    /// `metadata.resourceVersion`
    pub resource_version: &'a str,
    /// True if it has the member `items`. It may be null: Go writes that if there are no items, and so does kube-apiserver in lists
    /// of metadata. In protobuf, no items take no bytes.
    pub has_items: bool,
    /// True if there are items, and all of them have the requested kind.
    pub items_say_kind: bool,
}

impl ListHead<'_> {
    /// Checks that this is a list of `asked`, with items and a version.
    pub fn check(&self, asked: &ResourceInfo) -> Result<(), NotTheList> {
        if !self.is_of(asked) {
            return Err(NotTheList::Kind {
                expected: format!("{} {}", asked.gvr.api_version(), asked.kind),
                found: format!("{} {}", self.api_version, self.kind),
            });
        }
        if self.resource_version.is_empty() {
            return Err(NotTheList::NoVersion);
        }
        if self.has_items { Ok(()) } else { Err(NotTheList::NoItems) }
    }

    fn is_of(&self, asked: &ResourceInfo) -> bool {
        if self.kind == METADATA_LIST {
            return self.api_version.starts_with("meta.k8s.io/");
        }
        let is_named_so = self.kind.strip_suffix("List") == Some(&*asked.kind);
        if self.api_version != asked.gvr.api_version() {
            return is_named_so && self.api_version.is_empty();
        }
        is_named_so
            // A definition may give its lists any kind.
            || is_custom(&asked.gvr.group)
                && !self.kind.is_empty()
                && self.kind != "Status"
                && (self.items_say_kind || !self.kind.ends_with("List"))
    }
}

/// Checks that the kind of an object, if given, is that of `asked` or of metadata only.
pub fn check_object_kind(kind: &str, asked: &ResourceInfo) -> Result<(), NotTheList> {
    if kind.is_empty() || kind == METADATA_OBJECT || *kind == *asked.kind {
        return Ok(());
    }
    Err(NotTheList::OtherObject { expected: asked.kind.to_string(), found: kind.to_owned() })
}

/// Reports whether resources of a group may come from definitions.
fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gvr, ResourceId, Scope};

    fn info(group: &str, version: &str, kind: &str) -> ResourceInfo {
        ResourceInfo {
            id: ResourceId(1),
            gvr: Gvr { group: group.into(), version: version.into(), resource: "them".into() },
            kind: kind.into(),
            scope: Scope::Namespaced,
            served_api_versions: Vec::new(),
            watched: true,
            comparable_versions: true,
        }
    }

    #[test]
    fn a_list_is_of_the_kind_that_was_asked_for() {
        let (core, custom) = (info("", "v1", "ConfigMap"), info("example.com", "v2", "Widget"));
        for (asked, api_version, kind, items_say_kind, is_of) in [
            (&core, "v1", "ConfigMapList", false, true),
            (&core, "meta.k8s.io/v1", "PartialObjectMetadataList", false, true),
            (&core, "", "ConfigMapList", false, true),
            (&core, "", "", false, false),
            (&core, "v1", "", true, false),
            (&core, "v1", "SecretList", false, false),
            (&core, "v1", "ConfigMap", false, false),
            (&core, "v1", "List", false, false),
            (&core, "v1", "Status", false, false),
            (&core, "apps/v1", "ConfigMapList", false, false),
            (&core, "v1", "PartialObjectMetadataList", false, false),
            (&custom, "example.com/v2", "WidgetList", false, true),
            (&custom, "example.com/v1", "WidgetList", false, false),
            (&custom, "example.com/v2", "GadgetList", false, false),
            (&custom, "example.com/v2", "ManyWidgets", false, true),
            (&custom, "example.com/v2", "OurList", true, true),
            (&custom, "example.com/v2", "Status", false, false),
        ] {
            let head = ListHead { api_version, kind, resource_version: "7", has_items: true, items_say_kind };
            assert_eq!(head.check(asked).is_ok(), is_of, "{api_version} {kind}");
        }
    }

    #[test]
    fn a_list_has_items_and_a_version() {
        let whole = ListHead {
            api_version: "v1",
            kind: "ConfigMapList",
            resource_version: "7",
            has_items: true,
            items_say_kind: false,
        };
        let asked = info("", "v1", "ConfigMap");
        assert_eq!(whole.check(&asked), Ok(()));
        assert_eq!(ListHead { has_items: false, ..whole }.check(&asked), Err(NotTheList::NoItems));
        assert_eq!(ListHead { resource_version: "", ..whole }.check(&asked), Err(NotTheList::NoVersion));
    }
}
