//! ServiceAccount. Enabled if a controller creates the accounts.

mod secrets;

use serde_json::{Value, json};

use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{Members, at, child, flag, items, list, text};
use crate::kinds::shared::pod_spec::{ENFORCE, MIRROR};
use crate::metadata::meta;

/// Account of pods that name none.
const DEFAULT: &str = "default";
/// Path at which containers find their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the names of token volumes.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Lifetime of a token in seconds: an hour, and some time to renew it.
const TOKEN_SECONDS: u32 = 3607;

/// Sets the account of a pod, which must exist, and mounts the account's token into its containers.
pub(crate) fn mutate(request: &Request<'_>, new: &mut Value) -> Result<(), ApiError> {
    if !request.creates("", "pods") {
        return Ok(());
    }
    if is_mirror(new) {
        return check_new(request, new);
    }
    let given = text(new, &["spec", "serviceAccountName"]);
    let name = if given.is_empty() { DEFAULT.to_owned() } else { given.to_owned() };
    let account = account(request, new, &name)?;
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
    if mounts {
        mount_token(spec, || meta::generate_name(VOLUME_PREFIX, (request.call.context.entropy)()));
    }
    check_references(request, new, &account)
}

fn is_mirror(pod: &Value) -> bool {
    at(pod, &["metadata", "annotations", MIRROR]).is_some()
}

/// Returns the account of a pod. A namespace's default account is created a moment after the namespace.
fn account(request: &Request<'_>, pod: &Value, name: &str) -> Result<Value, ApiError> {
    let namespace = request.namespace();
    let found = request.read("", "serviceaccounts", namespace, name)?;
    found.ok_or_else(|| {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        ApiError { is_awaited: name == DEFAULT, ..request.forbidden(pod, &why) }
    })
}

/// Mounts the token where nothing else is mounted. A volume whose name has the prefix is taken for the token's.
fn mount_token(spec: &mut Members, generate_name: impl FnOnce() -> String) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let given = volumes.and_then(|volumes| {
        volumes.iter().map(|volume| text(volume, &["name"])).find(|name| name.starts_with(VOLUME_PREFIX))
    });
    let has_volume = given.is_some();
    let volume = given.map_or_else(generate_name, str::to_owned);
    let mut is_needed = false;
    for kind in ["initContainers", "containers"] {
        for container in items(spec, kind) {
            let Some(mounts) = array(container, "volumeMounts") else { continue };
            if mounts.iter().all(|mount| text(mount, &["mountPath"]) != MOUNT_PATH) {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
                is_needed = true;
            }
        }
    }
    if is_needed
        && !has_volume
        && let Some(volumes) = array(spec, "volumes")
    {
        volumes.push(token_volume(&volume));
    }
}

/// Returns the list of this name, and creates it if it is missing.
fn array<'a>(members: &'a mut Members, key: &str) -> Option<&'a mut Vec<Value>> {
    let list = members.entry(key).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// Checks a pod after mutating webhooks, and new ephemeral containers.
pub(crate) fn check(request: &Request<'_>, new: &Value, _: &mut Vec<String>) -> Result<(), ApiError> {
    if request.creates("", "pods") {
        return check_new(request, new);
    }
    let adds_ephemeral = request.call.resource().is("", "pods")
        && request.call.target.subresource == "ephemeralcontainers"
        && request.old.is_some();
    if !adds_ephemeral {
        return Ok(());
    }
    let account = account_of(request, new)?;
    let refusal = if is_enforced(&account) { secrets::ephemeral_refusal(new, &account) } else { None };
    // Upstream returns a plain error here.
    refusal.map_or(Ok(()), |why| Err(ApiError::new(500, "", why)))
}

/// Checks the references of a new pod: a mirror pod may refer to no account and no Secret, others only to what their account
/// permits.
fn check_new(request: &Request<'_>, new: &Value) -> Result<(), ApiError> {
    if is_mirror(new) {
        return mirror_refusal(new).map_or(Ok(()), |why| Err(request.forbidden(new, why)));
    }
    check_references(request, new, &account_of(request, new)?)
}

/// Checks that a pod of an account with [`ENFORCE`] only refers to the account's Secrets.
fn check_references(request: &Request<'_>, new: &Value, account: &Value) -> Result<(), ApiError> {
    let refusal = if is_enforced(account) { secrets::refusal(new, account) } else { None };
    refusal.map_or(Ok(()), |why| Err(request.forbidden(new, &why)))
}

/// Returns the account that a pod names.
fn account_of(request: &Request<'_>, pod: &Value) -> Result<Value, ApiError> {
    let name = text(pod, &["spec", "serviceAccountName"]);
    if name.is_empty() {
        let (namespace, pod_name) = (request.namespace(), meta::name(pod));
        let why = format!("no service account specified for pod {namespace}/{pod_name}");
        return Err(request.forbidden(pod, &why));
    }
    account(request, pod, name)
}

fn is_enforced(account: &Value) -> bool {
    let value = text(account, &["metadata", "annotations", ENFORCE]);
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}

/// Returns the reason to refuse a mirror pod reported by a kubelet.
fn mirror_refusal(pod: &Value) -> Option<&'static str> {
    if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if secrets::has_any(pod) {
        return Some("a mirror pod may not reference secrets");
    }
    let volumes = list(pod, &["spec", "volumes"]);
    let mut sources = volumes.iter().flat_map(|volume| list(volume, &["projected", "sources"]));
    sources
        .any(|source| at(source, &["serviceAccountToken"]).is_some())
        .then_some("a mirror pod may not use ServiceAccountToken volume projections")
}
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}})
}
