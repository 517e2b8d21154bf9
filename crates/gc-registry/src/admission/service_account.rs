//! ServiceAccount. It is off unless it is asked for: it needs somebody who creates the accounts.

use serde_json::{Value, json};

use super::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, child, flag, items, list, text};
use crate::meta;

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Where containers find their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a token is good for: an hour, and a moment to renew it.
const TOKEN_SECONDS: u32 = 3607;
/// Pods that a kubelet reports, and that no account is meant for.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod runs as an account that exists, and its containers get the account's token.
pub(super) fn mutate(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("", "pods") || at(new, &["metadata", "annotations", MIRROR]).is_some() {
        return Ok(());
    }
    let given = text(new, &["spec", "serviceAccountName"]);
    let name = if given.is_empty() { DEFAULT.to_owned() } else { given.to_owned() };
    let Some(account) = request.read("", "serviceaccounts", request.namespace(), &name)? else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            request.namespace()
        );
        return Err(request.forbidden(new, &why));
    };
    let mounts = flag(new, &["spec", "automountServiceAccountToken"])
        .or_else(|| flag(&account, &["automountServiceAccountToken"]))
        .unwrap_or(true);
    let Some(spec) = new.as_object_mut().and_then(|members| child(members, "spec")) else { return Ok(()) };
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.into(), name.as_str().into());
    }
    let secrets = list(&account, &["imagePullSecrets"]);
    let has_secrets =
        spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !secrets.is_empty() && !has_secrets {
        spec.insert("imagePullSecrets".into(), secrets.into());
    }
    if !mounts {
        return Ok(());
    }
    let volume = meta::generate_name("kube-api-access-", (request.call.context.entropy)());
    let mut used = false;
    for kind in ["initContainers", "containers"] {
        for container in items(spec, kind) {
            let mounts = container.entry("volumeMounts").or_insert(Value::Null);
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().all(|mount| text(mount, &["mountPath"]) != MOUNT_PATH) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
                used = true;
            }
        }
    }
    if used {
        let volumes = spec.entry("volumes").or_insert(Value::Null);
        if volumes.is_null() {
            *volumes = json!([]);
        }
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(token_volume(&volume));
        }
    }
    Ok(())
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}
