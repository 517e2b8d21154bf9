//! Selection of dead containers, sandboxes and logs to remove (spec `node-gc.md`, sections 9 to 14).
//!
//! * [`pods`]: the pods that they belong to, as far as known.
//! * [`plan`]: dead containers, by MinAge, MaxPerPodContainer and MaxContainers.
//! * [`sandboxes`]: pod sandboxes without containers.
//! * [`logs`]: pod log directories, container logs and dead links.

pub mod logs;
pub mod plan;
pub mod pods;
#[cfg(test)]
mod reference;
pub mod sandboxes;

use std::fmt;
use std::sync::Arc;

use gc_types::UnixNanoseconds;

macro_rules! identifier {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts a non-empty identifier; a runtime would take an empty one as a prefix of every other.
            #[must_use]
            pub fn new(text: &str) -> Option<Self> {
                (!text.is_empty()).then(|| Self(text.into()))
            }

            /// Returns the identifier as the runtime writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

identifier! {
    /// Identifier of a container.
    ContainerId
}
identifier! {
    /// Identifier of a sandbox.
    SandboxId
}
identifier! {
    /// UID of a pod as the runtime knows it (for static pods, the hash of the manifest).
    PodUid
}

/// State of a container, as CRI has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// Not known to the runtime; it may be running.
    Unknown,
}

/// One container as the runtime lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Identifier of the container.
    pub id: ContainerId,
    /// Sandbox of the container; `None` if the runtime does not report it.
    pub sandbox: Option<SandboxId>,
    /// Pod of the container, by label; `None` if the label is missing or empty.
    pub pod: Option<PodUid>,
    /// `metadata.name`; `None` without metadata.
    pub name: Option<Arc<str>>,
    /// State of the container.
    pub state: ContainerState,
    /// Creation time; zero if the runtime no longer knows it.
    pub created_at: UnixNanoseconds,
    /// `metadata.attempt`: number of containers of this name that were created in its pod before.
    pub attempt: u32,
    /// True if the kubelet's marks show that it created the container, or the operator opted in (see [`is_managed_container`]).
    pub managed: bool,
}

/// State of a sandbox, as CRI has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Running.
    Ready,
    /// Stopped, or being created.
    NotReady,
}

/// One sandbox as the runtime lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Identifier of the sandbox.
    pub id: SandboxId,
    /// Pod of the sandbox, by `metadata.uid`; `None` without metadata or with an empty UID.
    pub pod: Option<PodUid>,
    /// State of the sandbox.
    pub state: SandboxState,
    /// Creation time.
    pub created_at: UnixNanoseconds,
    /// True if the kubelet's marks show that it created the sandbox, or the operator opted in (see [`is_managed_sandbox`]).
    pub managed: bool,
}

/// Label with the name of the pod.
pub const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
/// Label with the namespace of the pod.
pub const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
/// Label with the UID of the pod.
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
/// Label with the name of the container.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
/// Annotation that the kubelet sets on each of its sandboxes: the source of the pod.
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

/// Reports whether a sandbox carries the kubelet's marks: the three pod labels, a non-empty UID that equals the one in its
/// metadata, and the source annotation (section 14.3).
pub fn is_managed_sandbox<'a>(
    metadata_uid: &str,
    label: impl Fn(&str) -> Option<&'a str>,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    label(POD_NAME_LABEL).is_some()
        && label(POD_NAMESPACE_LABEL).is_some()
        && label(POD_UID_LABEL).is_some_and(|uid| !uid.is_empty() && uid == metadata_uid)
        && annotation(CONFIG_SOURCE_ANNOTATION).is_some()
}

/// Reports whether a container carries the kubelet's marks: the four labels and a managed sandbox, or a non-empty UID if its
/// sandbox is gone (`None`).
pub fn is_managed_container<'a>(
    label: impl Fn(&str) -> Option<&'a str>,
    sandbox_managed: Option<bool>,
) -> bool {
    [POD_NAME_LABEL, POD_NAMESPACE_LABEL, CONTAINER_NAME_LABEL].iter().all(|name| label(name).is_some())
        && label(POD_UID_LABEL).is_some_and(|uid| !uid.is_empty())
        && sandbox_managed.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn only_the_full_set_of_marks_makes_something_managed() {
        let all = BTreeMap::from([
            (POD_NAME_LABEL, "p"),
            (POD_NAMESPACE_LABEL, "n"),
            (POD_UID_LABEL, "u"),
            (CONTAINER_NAME_LABEL, "c"),
        ]);
        let notes = BTreeMap::from([(CONFIG_SOURCE_ANNOTATION, "api")]);
        let sandbox =
            |labels: &BTreeMap<&str, &'static str>, notes: &BTreeMap<&str, &'static str>, uid: &str| {
                is_managed_sandbox(uid, |k| labels.get(k).copied(), |k| notes.get(k).copied())
            };
        assert!(sandbox(&all, &notes, "u"));
        assert!(!sandbox(&all, &notes, "other"), "the label must agree with the metadata");
        assert!(!sandbox(&all, &BTreeMap::new(), "u"), "T90: no source");
        for missing in [POD_NAME_LABEL, POD_NAMESPACE_LABEL, POD_UID_LABEL] {
            let mut labels = all.clone();
            labels.remove(missing);
            assert!(!sandbox(&labels, &notes, "u"), "{missing}");
            assert!(!is_managed_container(|k| labels.get(k).copied(), None), "{missing}");
        }
        let container = |sandbox| is_managed_container(|k| all.get(k).copied(), sandbox);
        assert_eq!([container(Some(true)), container(Some(false)), container(None)], [true, false, true]);
        let empty_uid = BTreeMap::from([(POD_UID_LABEL, "")]);
        assert!(!is_managed_container(|k| empty_uid.get(k).or(all.get(k)).copied(), Some(true)));
    }
}
