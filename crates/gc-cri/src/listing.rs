//! Conversion of the runtime's messages into the types of `gc-collectors`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_collectors::containers::{
    self, Container, ContainerId, PodUid, Sandbox, SandboxId, is_managed_container, is_managed_sandbox,
};
use gc_collectors::images::usage::ContainerImages;
use gc_collectors::images::{Image, ImageId};
use gc_types::UnixNanoseconds;

use crate::protocol;

/// A label (`key` or `key=value`) with which an operator marks sandboxes and containers as managed that the kubelet did not create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedLabel {
    key: String,
    value: Option<String>,
}

impl ManagedLabel {
    /// Parses `key` or `key=value`; `None` if the key is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        (!key.is_empty()).then(|| Self { key: key.to_owned(), value })
    }

    fn is_on(&self, labels: &std::collections::HashMap<String, String>) -> bool {
        labels.get(&self.key).is_some_and(|found| self.value.as_ref().is_none_or(|wanted| wanted == found))
    }
}

/// Listed images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedImages {
    /// Images with a full identifier.
    pub images: Vec<Image>,
    /// Number of images that were left out because their identifier is not a full one (it could mean another image).
    pub without_identifier: usize,
}

/// Pod and container names, for messages and for log paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
}

/// One listed container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedContainer {
    /// Facts for decisions.
    pub container: Container,
    /// Image references of the container (except for image volumes, which only its status contains).
    pub images: ContainerImages,
    /// Names of the container from labels; empty if a label is missing.
    pub names: Names,
}

/// Kind of container event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEventKind {
    /// Created.
    Created,
    /// Started.
    Started,
    /// Ended.
    Stopped,
    /// Removed.
    Deleted,
}

/// An event of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEvent {
    /// The container.
    pub container: String,
    /// Kind of the event.
    pub kind: ContainerEventKind,
    /// Time.
    pub at: UnixNanoseconds,
    /// References to the images of the event's containers.
    pub image_references: Vec<Arc<str>>,
}

fn texts(list: Vec<String>) -> Vec<Arc<str>> {
    list.into_iter().filter(|text| !text.is_empty()).map(Arc::from).collect()
}

pub(crate) fn images(listed: Vec<protocol::Image>) -> ListedImages {
    let mut answer = ListedImages::default();
    for image in listed {
        let Some(id) = ImageId::new(&image.id) else {
            answer.without_identifier += 1;
            continue;
        };
        answer.images.push(Image {
            id,
            repo_tags: texts(image.repo_tags),
            repo_digests: texts(image.repo_digests),
            size_bytes: image.size,
            pinned: image.pinned,
            runtime_handler: image.spec.map(|spec| spec.runtime_handler).unwrap_or_default().into(),
            layers: Arc::default(),
        });
    }
    answer
}

fn state(state: i32) -> containers::ContainerState {
    match protocol::ContainerState::try_from(state) {
        Ok(protocol::ContainerState::Created) => containers::ContainerState::Created,
        Ok(protocol::ContainerState::Running) => containers::ContainerState::Running,
        Ok(protocol::ContainerState::Exited) => containers::ContainerState::Exited,
        // A state that this protocol version does not define may mean that it runs.
        Ok(protocol::ContainerState::Unknown) | Err(_) => containers::ContainerState::Unknown,
    }
}

pub(crate) fn container_state(value: i32) -> containers::ContainerState {
    state(value)
}

/// Returns every field in which a container names its image.
fn image_references(image: Option<&protocol::ImageSpec>, image_ref: &str, image_id: &str) -> Vec<Arc<str>> {
    let spec =
        image.map(|spec| [spec.image.as_str(), spec.image_ref.as_str(), spec.user_specified_image.as_str()]);
    let all: BTreeSet<&str> = [image_id, image_ref].into_iter().chain(spec.into_iter().flatten()).collect();
    all.into_iter().filter(|text| !text.is_empty()).map(Arc::from).collect()
}

pub(crate) fn volume_references(mounts: &[protocol::Mount]) -> Vec<Arc<str>> {
    let specs = mounts.iter().filter_map(|mount| mount.image.as_ref());
    specs.flat_map(|spec| image_references(Some(spec), "", "")).collect()
}

pub(crate) fn sandboxes(listed: Vec<protocol::PodSandbox>, managed: Option<&ManagedLabel>) -> Vec<Sandbox> {
    let convert = |sandbox: protocol::PodSandbox| {
        let uid = sandbox.metadata.as_ref().map_or("", |metadata| metadata.uid.as_str());
        let label = |name: &str| sandbox.labels.get(name).map(String::as_str);
        let annotation = |name: &str| sandbox.annotations.get(name).map(String::as_str);
        Some(Sandbox {
            id: SandboxId::new(&sandbox.id)?,
            pod: PodUid::new(uid),
            state: match protocol::PodSandboxState::try_from(sandbox.state) {
                Ok(protocol::PodSandboxState::NotReady) => containers::SandboxState::NotReady,
                Ok(protocol::PodSandboxState::Ready) | Err(_) => containers::SandboxState::Ready,
            },
            created_at: UnixNanoseconds(sandbox.created_at),
            managed: is_managed_sandbox(uid, label, annotation)
                || managed.is_some_and(|m| m.is_on(&sandbox.labels)),
        })
    };
    listed.into_iter().filter_map(convert).collect()
}

/// Converts containers. `sandboxes` must be from the same pass: a container is managed only if its sandbox is, or is gone.
pub(crate) fn containers(
    listed: Vec<protocol::Container>,
    sandboxes: &[Sandbox],
    managed: Option<&ManagedLabel>,
) -> Vec<ListedContainer> {
    let sandbox_managed: BTreeMap<&str, bool> =
        sandboxes.iter().map(|s| (s.id.as_str(), s.managed)).collect();
    let convert = |container: protocol::Container| {
        let label = |name: &str| container.labels.get(name).map(String::as_str);
        let text = |name: &str| -> Arc<str> { label(name).unwrap_or_default().into() };
        let of_kubelet =
            is_managed_container(label, sandbox_managed.get(container.pod_sandbox_id.as_str()).copied());
        let name = container
            .metadata
            .as_ref()
            .map(|metadata| metadata.name.as_str())
            .filter(|name| !name.is_empty());
        // A container without a required part is not understood, and may use any image: by naming none, it blocks the removal of
        // images.
        let references = match (&container.metadata, &container.image) {
            (Some(_), Some(image)) => {
                image_references(Some(image), &container.image_ref, &container.image_id)
            }
            _ => Vec::new(),
        };
        Some(ListedContainer {
            images: ContainerImages {
                container: container.id.as_str().into(),
                references,
                volumes: Vec::new(),
            },
            names: Names {
                namespace: text(containers::POD_NAMESPACE_LABEL),
                pod: text(containers::POD_NAME_LABEL),
                container: text(containers::CONTAINER_NAME_LABEL),
            },
            container: Container {
                id: ContainerId::new(&container.id)?,
                sandbox: SandboxId::new(&container.pod_sandbox_id),
                pod: label(containers::POD_UID_LABEL).and_then(PodUid::new),
                name: name.map(Arc::from),
                state: state(container.state),
                created_at: UnixNanoseconds(container.created_at),
                attempt: container.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
                managed: of_kubelet || managed.is_some_and(|m| m.is_on(&container.labels)),
            },
        })
    };
    listed.into_iter().filter_map(convert).collect()
}

pub(crate) fn event(event: protocol::ContainerEventResponse) -> Option<ContainerEvent> {
    let kind = match event.container_event_type {
        0 => ContainerEventKind::Created,
        1 => ContainerEventKind::Started,
        2 => ContainerEventKind::Stopped,
        3 => ContainerEventKind::Deleted,
        _ => return None,
    };
    let references =
        event.containers_statuses.iter().filter(|status| status.id == event.container_id).flat_map(
            |status| {
                let own = image_references(status.image.as_ref(), &status.image_ref, &status.image_id);
                own.into_iter().chain(volume_references(&status.mounts))
            },
        );
    Some(ContainerEvent {
        kind,
        at: UnixNanoseconds(event.created_at),
        image_references: references.collect(),
        container: event.container_id,
    })
}
