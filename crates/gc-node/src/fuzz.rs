//! Invariants of the files that survive restarts, and of manifests, as bodies of fuzz targets (`fuzz/` at the root); they also run
//! as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use gc_types::UnixNanoseconds;
use serde_json::Value;

use crate::pods::manifest_images;
use crate::state::{self, Images, Pods};

/// Checks the files with the ages of images, and with the time since which pods are unknown: reading, saving and reading again
/// gives the same result, and no image is from the future.
pub fn node_state(data: &[u8]) {
    const NOW: UnixNanoseconds = UnixNanoseconds(1_790_000_000_000_000_000);
    if let Ok(saved) = state::decode::<Images>(data) {
        let history = state::history(saved, NOW);
        let again = serde_json::to_vec(&Images::of(&history, None)).unwrap();
        let read = |now| state::history(state::decode(&again).unwrap(), now);
        assert_eq!(read(NOW), history);
        assert_eq!(read(UnixNanoseconds(i64::MAX)), history);
    }
    if let Ok(saved) = state::decode::<Pods>(data) {
        let pods = state::unknown_pods(saved);
        let again = serde_json::to_vec(&Pods::of(&pods, None)).unwrap();
        assert_eq!(state::unknown_pods(state::decode(&again).unwrap()), pods);
    }
}

/// Checks the manifest of a static pod: the images that it names are texts contained in it.
pub fn static_pod(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(images) = manifest_images(text) else { return };
    let Ok(Value::Object(manifest)) = serde_saphyr::from_str::<Value>(text) else { return };
    let manifest = Value::Object(manifest).to_string();
    for image in images {
        // A number may be written in place of its text.
        assert!(manifest.contains(&Value::from(image.as_str()).to_string()) || manifest.contains(&image));
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(node_state, static_pod);
