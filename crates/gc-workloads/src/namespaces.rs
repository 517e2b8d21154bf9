//! Contents of every namespace: the ServiceAccount `default` and the API server's certificates.

use serde_json::{Value, json};

use crate::kinds::{Key, Kind};
use crate::object::text;
use crate::plan::{Plan, Request, View};
use crate::store::Change;

const DEFAULT_ACCOUNT: &str = "default";
/// ConfigMap by which pods verify the API server.
pub(crate) const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";
const CERTIFICATES_KEY: &str = "ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

/// Reconciles a namespace when it or one of its required objects changes.
pub(crate) fn wakes(change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match (object.key.kind, object.name()) {
        (Kind::Namespace, _) => keys.push(object.key.clone()),
        (Kind::ServiceAccount, DEFAULT_ACCOUNT) | (Kind::ConfigMap, ROOT_CERTIFICATES) => {
            keys.push(Kind::Namespace.key("", object.namespace()));
        }
        _ => {}
    }
}

fn is_active(view: &View<'_>, key: &Key) -> bool {
    let namespace = view.store.get(key);
    namespace
        .is_some_and(|namespace| !namespace.deleting && text(&namespace.status()["phase"]) != "Terminating")
}

pub(crate) fn service_account(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let namespace = &key.name;
    if is_active(view, key) && view.store.find(Kind::ServiceAccount, namespace, DEFAULT_ACCOUNT).is_none() {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": &**namespace}});
        plan.then(Request::create(Kind::ServiceAccount, namespace, account, "namespace"));
    }
    plan
}

pub(crate) fn root_certificates(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let (namespace, certificates) = (&key.name, &view.settings.root_certificates);
    if !is_active(view, key) || certificates.is_empty() {
        return plan;
    }
    let data: Value = json!({CERTIFICATES_KEY: certificates});
    match view.store.find(Kind::ConfigMap, namespace, ROOT_CERTIFICATES) {
        None => {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {
                "name": ROOT_CERTIFICATES, "namespace": &**namespace,
                "annotations": {"kubernetes.io/description": DESCRIPTION},
            }});
            plan.then(Request::create(Kind::ConfigMap, namespace, map, "namespace"));
        }
        Some(known) if known.value["data"] != data => {
            let mut map = known.value.clone();
            map["data"] = data;
            map["metadata"]["annotations"]["kubernetes.io/description"] = DESCRIPTION.into();
            plan.then(Request::update(&known.key, map, "certificates"));
        }
        Some(_) => {}
    }
    plan
}
