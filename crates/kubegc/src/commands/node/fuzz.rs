//! Bodies of fuzz targets; see [`crate::fuzz`].
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use serde_json::Value;

use super::config::{NodeFlags, Settings, resolve};
use super::parse_file;

/// Checks a `KubeletConfiguration`: the agent refuses it with reasons, or accepts it with consistent thresholds. The same document
/// as JSON gives the same result, and a field of another part of the kubelet changes nothing.
pub fn kubelet_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut file) = parse_file(text) else { return };
    let flags = NodeFlags::default();
    let read = resolve(&file, &flags);
    assert_eq!(resolve(&parse_file(&file.to_string()).unwrap_or_default(), &flags).is_ok(), read.is_ok());
    let (settings, notices) = match read {
        Ok(read) => read,
        Err(errors) => {
            assert!(!errors.0.is_empty() && errors.0.iter().all(|error| !error.is_empty()));
            return;
        }
    };
    let Settings { node: config, request_timeout, .. } = &settings;
    assert!(config.thresholds.low_percent < config.thresholds.high_percent);
    assert!(config.thresholds.high_percent <= 100 && !request_timeout.is_zero());
    if let Value::Object(fields) = &mut file {
        fields.insert("zzzNotOfCollection".into(), Value::Null);
        let (again, more) = resolve(&file, &flags).unwrap();
        assert_eq!(again, settings);
        assert!(more.len() >= notices.len());
    }
}
