//! Secrets that a pod refers to.

use serde_json::Value;

use crate::kinds::access::{list, text};

/// Fields of a volume that name its Secret.
const IN_VOLUMES: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["secret", "secretName"],
    &["storageos", "secretRef", "name"],
];

/// Lists of a pod's containers, and the word for one of them in messages.
const CONTAINERS: [(&str, &str); 2] = [("initContainers", "init container"), ("containers", "container")];
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");

/// Reports whether a pod refers to any Secret.
pub(super) fn has_any(pod: &Value) -> bool {
    let pulls = list(pod, &["spec", "imagePullSecrets"]).iter().map(|secret| text(secret, &["name"]));
    let containers = CONTAINERS.iter().chain([&EPHEMERAL]);
    let of_containers = containers
        .flat_map(|(key, _)| list(pod, &["spec", key]))
        .flat_map(|container| of_environment(container).map(|(_, secret)| secret));
    let volumes = list(pod, &["spec", "volumes"]);
    let of_volumes = volumes.iter().flat_map(|volume| IN_VOLUMES.map(|path| text(volume, path)));
    let projected = volumes
        .iter()
        .flat_map(|volume| list(volume, &["projected", "sources"]))
        .map(|source| text(source, &["secret", "name"]));
    pulls.chain(of_containers).chain(of_volumes).chain(projected).any(|name| !name.is_empty())
}

/// Returns the Secrets that a container's environment refers to, each with its variable, or with "" if all of its keys are used.
fn of_environment(container: &Value) -> impl Iterator<Item = (&str, &str)> {
    let single = list(container, &["env"])
        .iter()
        .filter(|variable| !variable["valueFrom"]["secretKeyRef"].is_null())
        .map(|variable| (text(variable, &["name"]), text(variable, &["valueFrom", "secretKeyRef", "name"])));
    let whole = list(container, &["envFrom"])
        .iter()
        .filter(|source| !source["secretRef"].is_null())
        .map(|source| ("", text(source, &["secretRef", "name"])));
    single.chain(whole)
}

/// Returns the reason why a pod may not refer to a Secret that its account does not list.
pub(super) fn refusal(pod: &Value, account: &Value) -> Option<String> {
    let owner = text(account, &["metadata", "name"]);
    let volumes = list(pod, &["spec", "volumes"]).iter().filter(|volume| !volume["secret"].is_null());
    let mut mounted = volumes.map(|volume| text(volume, &["secret", "secretName"]));
    if let Some(secret) = mounted.find(|secret| !is_named(account, "secrets", secret)) {
        return Some(format!(
            "volume with secret.secretName=\"{secret}\" is not allowed because service account {owner} does not \
             reference that secret"
        ));
    }
    if let Some(why) = CONTAINERS.iter().find_map(|kind| refusal_of_containers(pod, account, *kind)) {
        return Some(why);
    }
    let mut pulls = list(pod, &["spec", "imagePullSecrets"]).iter().map(|secret| text(secret, &["name"]));
    let pull = pulls.position(|secret| !is_named(account, "imagePullSecrets", secret))?;
    let secret = text(&list(pod, &["spec", "imagePullSecrets"])[pull], &["name"]);
    Some(format!(
        "imagePullSecrets[{pull}].name=\"{secret}\" is not allowed because service account {owner} does not reference \
         that imagePullSecret"
    ))
}

/// Returns such a reason for the pod's ephemeral containers.
pub(super) fn ephemeral_refusal(pod: &Value, account: &Value) -> Option<String> {
    refusal_of_containers(pod, account, EPHEMERAL)
}

fn refusal_of_containers(pod: &Value, account: &Value, (key, kind): (&str, &str)) -> Option<String> {
    let owner = text(account, &["metadata", "name"]);
    list(pod, &["spec", key]).iter().find_map(|container| {
        let mut secrets = of_environment(container);
        let (variable, secret) = secrets.find(|(_, secret)| !is_named(account, "secrets", secret))?;
        let name = text(container, &["name"]);
        let place = if variable.is_empty() { "envFrom".to_owned() } else { format!("envVar {variable}") };
        Some(format!(
            "{kind} {name} with {place} referencing secret.secretName=\"{secret}\" is not allowed because service \
             account {owner} does not reference that secret"
        ))
    })
}

fn is_named(account: &Value, key: &str, secret: &str) -> bool {
    list(account, &[key]).iter().any(|named| text(named, &["name"]) == secret)
}
