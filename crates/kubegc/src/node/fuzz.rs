//! Bodies of fuzz targets; see [`crate::fuzz`].
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use gc_types::UnixNanoseconds;
use serde_json::Value;

use super::config::{NodeFlags, resolve};
use super::pods::manifest_images;
use super::state::{Images, Pods};
use super::{parse_file, state};

/// A `KubeletConfiguration`: it is refused with reasons, or means what its thresholds can mean; as JSON it means the same,
/// and a field of another part of the kubelet changes nothing.
pub fn kubelet_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut file) = parse_file(text) else { return };
    let flags = NodeFlags::default();
    let read = resolve(&file, &flags);
    assert_eq!(resolve(&parse_file(&file.to_string()).unwrap_or_default(), &flags).is_ok(), read.is_ok());
    let (config, notices) = match read {
        Ok(read) => read,
        Err(errors) => {
            assert!(!errors.0.is_empty() && errors.0.iter().all(|error| !error.is_empty()));
            return;
        }
    };
    assert!(config.thresholds.low_percent < config.thresholds.high_percent);
    assert!(config.thresholds.high_percent <= 100 && !config.request_timeout.is_zero());
    if let Value::Object(fields) = &mut file {
        fields.insert("zzzNotOfCollection".into(), Value::Null);
        let (again, more) = resolve(&file, &flags).unwrap();
        assert_eq!(again, config);
        assert!(more.len() >= notices.len());
    }
}

/// The files in which ages of images, and since when pods are unknown, survive: what is read is what is read again once it
/// was saved, and no image is of the future.
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
        let pods = state::unknown_pods(saved, 0);
        let again = serde_json::to_vec(&Pods::of(&pods, None, 0)).unwrap();
        assert_eq!(state::unknown_pods(state::decode(&again).unwrap(), 0), pods);
    }
}

/// A manifest of a static pod: the images that it names are texts that stand in it.
pub fn static_pod(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(images) = manifest_images(text) else { return };
    let Ok(Value::Object(manifest)) = serde_saphyr::from_str::<Value>(text) else { return };
    let manifest = Value::Object(manifest).to_string();
    for image in images {
        // A number may stand for its text.
        assert!(manifest.contains(&Value::from(image.as_str()).to_string()) || manifest.contains(&image));
    }
}
