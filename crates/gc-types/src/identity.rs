//! Identity of an object: group, version, kind, resource, key, UID.

use std::fmt;
use std::sync::Arc;

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version, such as `v1`.
    pub version: Arc<str>,
    /// Kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
}

/// Group, version and resource name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version, such as `v1`.
    pub version: Arc<str>,
    /// Plural resource name, such as `replicasets`.
    pub resource: Arc<str>,
}

impl Gvr {
    /// Returns `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Returns `resource.group`, or `resource` for the core group.
    #[must_use]
    pub fn group_resource(&self) -> String {
        group_resource(&self.group, &self.resource)
    }
}

/// Returns `group/version`, or `version` for the core group.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Returns the path below which an API server serves a version: `/apis/group/version`, or `/api/version` for the core group.
#[must_use]
pub fn api_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Returns `resource.group`, or `resource` for the core group.
#[must_use]
pub fn group_resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// A group, or one version of it, that discovery could not reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailedGroup {
    /// API group; empty for the core group.
    pub group: String,
    /// API version; `None` if the whole group failed.
    pub version: Option<String>,
    /// Error message.
    pub message: String,
}

/// A watched resource, as numbered by its adapter. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// A UID as the server wrote it. UUIDs in canonical form take 16 bytes and no allocation.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(UidForm);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum UidForm {
    Uuid([u8; 16]),
    Other(Arc<str>),
}

impl Uid {
    /// Accepts any text, and prints it unchanged.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(bytes) => Self(UidForm::Uuid(bytes)),
            None => Self(UidForm::Other(text.into())),
        }
    }

    /// Creates the UID that prints as the canonical UUID of these bytes.
    #[must_use]
    pub fn from_uuid(bytes: [u8; 16]) -> Self {
        Self(UidForm::Uuid(bytes))
    }

    /// Returns the sixteen bytes, if this is a canonical (lower-case, hyphenated) UUID.
    #[must_use]
    pub fn as_uuid(&self) -> Option<[u8; 16]> {
        match &self.0 {
            UidForm::Uuid(bytes) => Some(*bytes),
            UidForm::Other(_) => None,
        }
    }
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0_u8; 16];
    let mut digits = 0_usize;
    for (index, &byte) in text.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidForm::Other(text) => f.write_str(text),
            UidForm::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

/// A resourceVersion. Kubernetes 1.35 made them comparable integers; anything else (from an older aggregated API) becomes
/// [`ResourceVersion::UNKNOWN`], and such an object is read again before it is acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// Absent or not an integer.
    pub const UNKNOWN: Self = Self(0);

    /// Parses the text form.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or(Self::UNKNOWN, Self)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since the Unix epoch. Pure code receives it with events, and never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Adds a number of milliseconds; saturates.
    #[must_use]
    pub fn after(self, milliseconds: i64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// Returns the milliseconds since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Formats in the API's format (RFC 3339), with milliseconds if it has any.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => time.fmt(f),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// The key of one object: its resource, namespace (empty for cluster scope) and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Resource through which it was observed.
    pub resource: ResourceId,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// Coordinates of an owner as written in a reference (spec `ownership-gc.md`, 1.2). Compared as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinates {
    /// `group/version`, or `version` for the core group, as written.
    pub api_version: Arc<str>,
    /// Kind, as written.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Uid,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// The owner.
    pub coordinates: Coordinates,
    /// `controller`; irrelevant for collection, but kept because patches must not change it.
    pub controller: Option<bool>,
    /// `blockOwnerDeletion`.
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Returns the entry in the API's format (`metav1.OwnerReference`). Absent fields stay absent, so a patch with it changes
    /// nothing.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let Coordinates { api_version, kind, name, uid } = &self.coordinates;
        let mut entry = serde_json::json!({
            "apiVersion": &**api_version, "kind": &**kind, "name": &**name, "uid": uid.to_string(),
        });
        if let Some(controller) = self.controller {
            entry["controller"] = controller.into();
        }
        if let Some(block) = self.block_owner_deletion {
            entry["blockOwnerDeletion"] = block.into();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_reference_is_written_with_its_own_fields_only() {
        let plain = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-1"});
        let with = |fields: &[(&str, bool)]| {
            let mut entry = plain.clone();
            for (name, value) in fields {
                entry[*name] = (*value).into();
            }
            entry
        };
        for (controller, block_owner_deletion, expected) in [
            (None, None, plain.clone()),
            (Some(true), None, with(&[("controller", true)])),
            (Some(false), None, with(&[("controller", false)])),
            (None, Some(true), with(&[("blockOwnerDeletion", true)])),
            (None, Some(false), with(&[("blockOwnerDeletion", false)])),
            (Some(true), Some(false), with(&[("controller", true), ("blockOwnerDeletion", false)])),
        ] {
            let coordinates = Coordinates {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "web".into(),
                uid: Uid::new("u-1"),
            };
            let reference = OwnerReference { coordinates, controller, block_owner_deletion };
            assert_eq!(reference.to_json(), expected);
        }
    }

    proptest! {
        #[test]
        fn a_uid_prints_its_original_text(text in "[0-9a-fA-F-]{0,40}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}") {
            prop_assert_eq!(Uid::new(&text).to_string(), text);
        }
    }

    #[test]
    fn only_canonical_uuids_are_packed() {
        let canonical = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";
        assert!(Uid::new(canonical).as_uuid().is_some());
        assert!(Uid::new(&canonical.to_uppercase()).as_uuid().is_none());
        assert!(Uid::new("").as_uuid().is_none());
    }
}
