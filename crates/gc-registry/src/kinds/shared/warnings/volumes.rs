//! Warnings about volumes of pods, and persistent volumes.

use serde_json::Value;

use super::fractional;
use crate::kinds::access::{at, list, text};
use crate::metadata::names::quoted;

/// Sources of volumes that no longer work: name in a volume, version of deprecation, version of removal.
const GONE_SOURCES: [(&str, &str, &str); 8] = [
    ("photonPersistentDisk", "v1.11", "v1.16+"),
    ("scaleIO", "v1.16", "v1.22+"),
    ("flocker", "v1.22", "v1.25+"),
    ("storageos", "v1.22", "v1.25+"),
    ("quobyte", "v1.22", "v1.25+"),
    ("glusterfs", "v1.25", "v1.26+"),
    ("cephfs", "v1.28", "v1.31+"),
    ("rbd", "v1.28", "v1.31+"),
];

pub(crate) fn gone_source(path: &str, volume: &Value, in_pod: bool, texts: &mut Vec<String>) {
    if in_pod && at(volume, &["gitRepo"]).is_some() {
        texts.push(format!("{path}.gitRepo: deprecated in v1.11, and disabled by default in v1.33+"));
    }
    for (source, deprecated, gone) in GONE_SOURCES {
        // Upstream does not warn about these two in persistent volumes.
        let is_silent = !in_pod && matches!(source, "flocker" | "quobyte");
        if !is_silent && at(volume, &[source]).is_some() {
            let name = if source == "storageos" { "storageOS" } else { source };
            texts.push(format!("{path}.{name}: deprecated in {deprecated}, non-functional in {gone}"));
        }
    }
}

/// Checks the spec of a claim, or of a claim template.
pub(crate) fn claim(path: &str, spec: Option<&Value>, texts: &mut Vec<String>) {
    for kind in ["requests", "limits"] {
        let resources = spec.and_then(|spec| at(spec, &["resources", kind]));
        fractional(&format!("{path}.resources.{kind}"), resources, "storage", texts);
    }
}

pub(crate) fn volumes(path: &str, spec: &Value, texts: &mut Vec<String>) {
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        gone_source(&path, volume, true, texts);
        let template = at(volume, &["ephemeral", "volumeClaimTemplate", "spec"]);
        claim(&format!("{path}.ephemeral.volumeClaimTemplate.spec"), template, texts);
    }
    for volume in list(spec, &["volumes"]) {
        for (source, what) in [
            ("configMap", format!("ConfigMap {}", quoted(text(volume, &["configMap", "name"])))),
            ("secret", format!("Secret {}", quoted(text(volume, &["secret", "secretName"])))),
            ("downwardAPI", "DownwardAPI".to_owned()),
        ] {
            let paths = paths_of(list(volume, &[source, "items"]), "");
            overlaps(volume, &what, paths, texts);
        }
        projected(volume, texts);
    }
}

/// A file of a volume, and its origin if that is worth mentioning.
struct Source {
    path: String,
    from: String,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.path))?;
        if self.from.is_empty() { Ok(()) } else { write!(f, " ({})", self.from) }
    }
}

fn source(path: &str, from: &str) -> Source {
    Source { path: path.trim_end_matches('/').to_owned(), from: from.to_owned() }
}

fn paths_of(items: &[Value], from: &str) -> Vec<Source> {
    items.iter().map(|item| source(text(item, &["path"]), from)).collect()
}

/// Warns about files that conflict: with the same path, or one below the other.
fn overlaps(volume: &Value, what: &str, paths: Vec<Source>, texts: &mut Vec<String>) {
    let mut seen: Vec<Source> = Vec::new();
    for new in paths {
        for old in seen.iter().filter(|old| !new.path.is_empty() && !old.path.is_empty()) {
            let (a, b) = (format!("{}/", old.path), format!("{}/", new.path));
            if a.starts_with(&b) || b.starts_with(&a) {
                let name = quoted(text(volume, &["name"]));
                texts.push(format!("volume {name} ({what}): overlapping paths: {new} with {old}"));
            }
        }
        seen.push(new);
    }
}

fn projected(volume: &Value, texts: &mut Vec<String>) {
    let mut paths = Vec::new();
    for one in list(volume, &["projected", "sources"]) {
        let get = |path: &[&str]| text(one, path);
        if one.as_object().is_none_or(serde_json::Map::is_empty) {
            let name = quoted(text(volume, &["name"]));
            texts.push(format!("volume {name} (Projected) has no sources provided"));
        } else if at(one, &["configMap"]).is_some() {
            let from = format!("ConfigMap {}", quoted(get(&["configMap", "name"])));
            paths.extend(paths_of(list(one, &["configMap", "items"]), &from));
        } else if at(one, &["secret"]).is_some() {
            let from = format!("Secret {}", quoted(get(&["secret", "name"])));
            paths.extend(paths_of(list(one, &["secret", "items"]), &from));
        } else if at(one, &["downwardAPI"]).is_some() {
            paths.extend(paths_of(list(one, &["downwardAPI", "items"]), "DownwardAPI"));
        } else if at(one, &["serviceAccountToken"]).is_some() {
            paths.push(source(get(&["serviceAccountToken", "path"]), "ServiceAccountToken"));
        } else if let Some(bundle) = at(one, &["clusterTrustBundle"]) {
            let name = at(bundle, &["name"]).or_else(|| at(bundle, &["signerName"]));
            let name = quoted(name.and_then(Value::as_str).unwrap_or_default());
            paths.push(source(text(bundle, &["path"]), &format!("ClusterTrustBundle {name}")));
        } else {
            for (key, from) in [
                ("certificateChainPath", "PodCertificate chain"),
                ("keyPath", "PodCertificate key"),
                ("credentialBundlePath", "PodCertificate credential bundle"),
            ] {
                paths.push(source(get(&["podCertificate", key]), from));
            }
        }
    }
    overlaps(volume, "Projected", paths, texts);
}
