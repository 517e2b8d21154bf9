//! Properties of runtimes' answers, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use gc_collectors::containers::ContainerState;
use gc_collectors::images::LayerId;
use prost::Message;

use crate::client::layers_of_info;
use crate::listing;
use crate::protocol;
use crate::{Endpoint, ManagedLabel};

/// Checks that every listed object in a runtime's answer is converted, objects without a name are counted, and an unknown state
/// permits no removal.
pub fn cri_answer(data: &[u8]) {
    let managed = ManagedLabel::parse("managed=true");
    let sandboxes = match protocol::ListPodSandboxResponse::decode(data) {
        Ok(list) => {
            let count = list.items.len();
            let sandboxes = listing::sandboxes(list.items, managed.as_ref());
            assert!(
                sandboxes.len() <= count && sandboxes.iter().all(|sandbox| !sandbox.id.as_str().is_empty())
            );
            sandboxes
        }
        Err(_) => Vec::new(),
    };
    if let Ok(list) = protocol::ListContainersResponse::decode(data) {
        let named: Vec<_> =
            list.containers.iter().filter(|container| !container.id.is_empty()).cloned().collect();
        let listed = listing::containers(list.containers, &sandboxes, managed.as_ref());
        assert_eq!(listed.len(), named.len());
        for (read, raw) in listed.iter().zip(named) {
            assert_eq!(read.container.id.as_str(), raw.id);
            let is_known = (0..=2).contains(&raw.state);
            assert_eq!(read.container.state == ContainerState::Unknown, !is_known);
            // A container that does not name its image completely may use any.
            let is_whole = raw.metadata.is_some() && raw.image.is_some();
            assert!(is_whole || read.images.references.is_empty());
        }
    }
    if let Ok(list) = protocol::ListImagesResponse::decode(data) {
        let count = list.images.len();
        let listed = listing::images(list.images);
        assert_eq!(listed.images.len() + listed.without_identifier, count);
    }
    if let Ok(message) = protocol::ContainerEventResponse::decode(data) {
        let (kind, container) = (message.container_event_type, message.container_id.clone());
        let event = listing::event(message);
        assert_eq!(event.is_some(), (0..=3).contains(&kind));
        assert!(event.is_none_or(|event| event.container == container));
    }
    let _ = protocol::ContainerStatusResponse::decode(data);
    let _ = protocol::ImageFsInfoResponse::decode(data);
}

/// Checks that the layers in the verbose status of an image are returned exactly, or unknown.
pub fn image_info(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let layers = layers_of_info(&text);
    if let Ok(whole) = serde_json::from_str::<serde_json::Value>(&text)
        && let Some(raw) = whole["imageSpec"]["rootfs"]["diff_ids"].as_array()
    {
        let raw = raw.iter().filter_map(serde_json::Value::as_str);
        let mut raw = raw.map(LayerId::new).collect::<Option<Vec<_>>>().unwrap_or_default();
        raw.sort_unstable();
        raw.dedup();
        assert!(layers.is_empty() || layers == raw);
    }
}

/// Checks that an endpoint prints as a text that parses to the same endpoint.
pub fn cri_endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(endpoint) = Endpoint::parse(text) {
        assert_eq!(Endpoint::parse(&endpoint.to_string()).as_ref(), Ok(&endpoint));
        assert!(endpoint.path().is_absolute());
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(cri_answer, image_info, cri_endpoint);
