//! Names in an object that refer to things outside the cluster.

use serde_json::Value;

use crate::object::Object;

/// Maximum number of values shown for one field.
const SHOWN: usize = 5;

/// Fields in which objects name things outside the cluster: those of Kubernetes, and those that many operators have in common. A
/// `*` stands for each item of a list.
const FIELDS: &[&str] = &[
    "/status/loadBalancer/ingress/*/hostname",
    "/status/loadBalancer/ingress/*/ip",
    "/status/addresses/*/value",
    "/spec/providerID",
    "/spec/csi/volumeHandle",
    "/spec/awsElasticBlockStore/volumeID",
    "/spec/gcePersistentDisk/pdName",
    "/spec/azureDisk/diskURI",
    "/spec/vsphereVolume/volumePath",
    "/spec/nfs/path",
    "/status/snapshotHandle",
    "/status/ackResourceMetadata/arn",
    "/status/atProvider/arn",
    "/status/atProvider/id",
    "/status/externalRef",
    "/spec/dnsName",
];
/// Annotations that name such things, by the software that writes them.
const ANNOTATIONS: &[&str] = &[
    "crossplane.io/external-name",
    "serviceoperator.azure.com/resource-id",
    "external-dns.alpha.kubernetes.io/hostname",
];

/// Returns the names, each as `field: value`.
pub(super) fn named(object: &Object) -> Vec<String> {
    let mut lines = Vec::new();
    for field in FIELDS {
        let (list, rest) = field.split_once("/*").unwrap_or((field, ""));
        let Some(value) = object.value().pointer(list) else { continue };
        let values: Vec<&Value> = match value {
            Value::Array(items) if !rest.is_empty() => {
                items.iter().filter_map(|item| item.pointer(rest)).collect()
            }
            other => vec![other],
        };
        let texts = values.into_iter().filter_map(Value::as_str).filter(|text| !text.is_empty());
        let name = field[1..].replace("/*", "").replace('/', ".");
        lines.extend(texts.take(SHOWN).map(|text| format!("{name}: {text}")));
    }
    let annotations = ANNOTATIONS.iter().map(|name| (name, object.annotation(name)));
    lines.extend(
        annotations.filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("{name}: {text}")),
    );
    lines
}
