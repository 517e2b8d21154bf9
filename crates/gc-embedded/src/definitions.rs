//! Our own CustomResourceDefinitions on a server.

use anyhow::Context as _;
use bytes::Bytes;
use gc_collectors::policies::definition::definition;
use gc_kube::ApiClient;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Tries to bring a definition up to date over conflicts.
const TRIES: usize = 5;

/// Makes sure that the server knows our kinds as this version has them.
pub async fn install(client: &ApiClient) -> anyhow::Result<()> {
    let wanted = definition();
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for _ in 0..TRIES {
        match call(client, Method::POST, DEFINITIONS, Some(&wanted)).await? {
            (200..=299, _) => return Ok(()),
            (409, _) => {}
            (code, body) => anyhow::bail!("cannot define {name}: {code} {}", body["message"]),
        }
        let path = format!("{DEFINITIONS}/{name}");
        let (code, mut stored) = call(client, Method::GET, &path, None).await?;
        if code == 404 {
            continue;
        }
        anyhow::ensure!(code == 200, "cannot read {name}: {code} {}", stored["message"]);
        if stored["spec"]["versions"] == wanted["spec"]["versions"] {
            return Ok(());
        }
        stored["spec"]["versions"] = wanted["spec"]["versions"].clone();
        match call(client, Method::PUT, &path, Some(&stored)).await? {
            (200..=299, _) => return Ok(()),
            (409 | 404, _) => {}
            (code, body) => anyhow::bail!("cannot bring {name} up to date: {code} {}", body["message"]),
        }
    }
    anyhow::bail!("the definition of {name} keeps changing")
}

/// A request with a JSON body, and the code and the body of its answer.
pub async fn call(
    client: &ApiClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<(u16, Value)> {
    let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(bytes))?;
    let answer = client.call(request).await.with_context(|| format!("no answer to {path}"))?;
    Ok((answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    /// `deploy/crds/retentionpolicies.yaml` is written from the code: with `UPDATE_CRDS=1` by this test.
    #[test]
    fn the_manifest_is_what_the_code_defines() {
        let file =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds/retentionpolicies.yaml");
        let text = format!(
            "# Written from the code: UPDATE_CRDS=1 cargo test -p kubegc definitions\n{}",
            gc_process::yaml::to_string(&definition()).unwrap()
        );
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }

    /// The rules in the definition, on whatever server, refuse what `kubegc policy check` refuses, but for what only its
    /// parsers know: conditions, and the numbers in a schedule or a duration.
    #[tokio::test]
    async fn a_server_refuses_the_policies_that_the_check_refuses() {
        let options = crate::apiserver::ServerOptions::in_process();
        let server = crate::apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        install(&client).await.unwrap();
        let path = "/apis/kubegc.io/v1alpha1/retentionpolicies?dryRun=All&fieldValidation=Strict";
        for (more, by_definition) in policies() {
            let mut spec = json!({"target": {"apiVersion": "batch/v1", "kind": "Job"}, "maxAge": "24h"});
            for (name, value) in more.as_object().unwrap() {
                if value.is_null() {
                    spec.as_object_mut().unwrap().remove(name);
                } else {
                    spec[name] = value.clone();
                }
            }
            let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy",
                "metadata": {"name": "p"}, "spec": spec});
            let (code, body) = call(&client, Method::POST, path, Some(&policy)).await.unwrap();
            let accepted = gc_collectors::policies::Policy::compile(&policy["spec"]).is_ok();
            assert_eq!(code < 300, accepted || !by_definition, "{spec}: {}", body["message"]);
            assert!(by_definition || !accepted, "{spec}: the check accepts it");
        }
        server.shutdown().await;
    }

    /// Policies, and whether the definition can validate them.
    fn policies() -> Vec<(Value, bool)> {
        let by_definition = [
            json!({}),
            json!({"maxAge": "7d"}),
            json!({"maxAge": "1.5h30m"}),
            json!({"maxAge": "+90us"}),
            json!({"maxAge": "1y"}),
            json!({"maxAge": "0h"}),
            json!({"maxAge": "-1h"}),
            json!({"maxAge": "12"}),
            json!({"maxAge": ""}),
            json!({"maxAge": null}),
            json!({"maxAgee": "1h"}),
            json!({"maxAge": null, "any": {"maxAge": "1h"}}),
            json!({"maxAge": null, "all": {"maxAge": "1h", "keepNewest": {"count": 3}}}),
            json!({"maxAge": null, "all": {}}),
            json!({"all": {"maxAge": "1h"}}),
            json!({"maxAge": null, "all": {"maxAge": "1h"}, "any": {"maxAge": "1h"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Node"}}),
            json!({"target": {"apiVersion": "example.com/v1", "kind": "Node"}}),
            json!({"target": {"apiVersion": "v1", "kind": ""}}),
            json!({"target": {"kind": "Pod"}}),
            json!({"target": {"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy"}}),
            json!({"target": {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}),
            json!({"target": {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Secret"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Secret"}, "condition": "true"}),
            json!({"target": {"apiVersion": "v1", "kind": "Secret"},
                "fields": [{"path": ".type", "operator": "Exists"}]}),
            json!({"target": {"apiVersion": "v1", "kind": "Secret"},
                "fields": [{"path": ".metadata.labels['a/b']", "operator": "Exists"}]}),
            json!({"target": {"apiVersion": "v1", "kind": "Secret"},
                "fields": [{"path": "['metadata'].labels", "operator": "Exists"}]}),
            json!({"keepNewest": {"count": -1}}),
            json!({"keepNewest": {"count": 1, "per": "Galaxy"}}),
            json!({"keepNewest": {"count": 1, "per": "Label"}}),
            json!({"keepNewest": {"count": 1, "per": "Label", "label": "app"}}),
            json!({"keepNewest": {"count": 1, "label": "app"}}),
            json!({"keepNewest": {"count": 1, "orderBy": "Finished"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Pod"}, "keepNewest": {"count": 1, "orderBy": "Finished"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Service"}, "keepNewest": {"count": 1, "orderBy": "Finished"}}),
            json!({"target": {"apiVersion": "v1", "kind": "Service"}, "maxAge": null,
                "all": {"keepNewest": {"count": 1, "orderBy": "Finished"}}}),
            json!({"target": {"apiVersion": "v1", "kind": "Service"},
                "ttlAfter": {"condition": "Finished", "duration": "1h"}}),
            json!({"ttlAfter": {"condition": "Finished", "duration": "1h"}}),
            json!({"ttlAfter": {"condition": "Finished", "status": "False", "duration": "1h"}}),
            json!({"ttlAfter": {"condition": "", "duration": "1h"}}),
            json!({"ttlAfter": {"condition": "Ready", "status": "Maybe", "duration": "1h"}}),
            json!({"fields": [{"path": "status.phase", "operator": "Exists"}]}),
            json!({"fields": [{"path": ".a['b", "operator": "Exists"}]}),
            json!({"fields": [{"path": ".a..b", "operator": "Exists"}]}),
            json!({"fields": [{"path": ".a", "operator": "In"}]}),
            json!({"fields": [{"path": ".a", "operator": "In", "values": ["x"]}]}),
            json!({"fields": [{"path": ".a", "operator": "Exists", "values": ["x"]}]}),
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist", "values": ["x"]}]}}),
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}),
            json!({"namespaces": {"include": ["a b"]}}),
            json!({"namespaces": {"exclude": [""]}}),
            json!({"namespaces": {"include": ["team-*"]}}),
            json!({"schedule": "every 1h"}),
            json!({"schedule": "@daily"}),
            json!({"schedule": "30 4 * * mon"}),
            json!({"schedule": "@never"}),
            json!({"schedule": "30 4 *"}),
            json!({"maxDeletionsPerRun": 0}),
            json!({"maxDeletionsPerRun": 10_001}),
            json!({"propagationPolicy": "Slowly"}),
            json!({"notice": {"before": "24h"}}),
            json!({"notice": {"before": "0s"}}),
            json!({"notice": {}}),
            json!({"notice": {"before": "24h"}, "keepNewest": {"count": 1}}),
            json!({"maxAge": null, "unused": {"for": "168h"}}),
            json!({"maxAge": null, "unused": {"for": "168h", "recorder": "kubegc/recorder"}}),
            json!({"maxAge": null, "unused": {"for": "168h", "recorder": "recorder"}}),
            json!({"maxAge": null, "unused": {"for": "0h"}}),
            json!({"maxAge": null, "unused": {}}),
            json!({"unused": {"for": "168h"}}),
            json!({"maxAge": null, "any": {"maxAge": "1h"}, "unused": {"for": "168h"}}),
            json!({"maxAge": null, "unused": {"for": "168h"}, "target": {"apiVersion": "v1", "kind": "Secret"}}),
            json!({"notice": {"before": "24h"}, "maxAge": null, "all": {"maxAge": "1d", "keepNewest": {"count": 1}}}),
        ];
        let by_parser = [
            json!({"condition": "object.a =="}),
            json!({"condition": "self.a == 1"}),
            json!({"schedule": "60 * * * *"}),
            json!({"schedule": "every 1s"}),
            json!({"maxAge": "9999999999999h"}),
        ];
        let by_definition = by_definition.into_iter().map(|policy| (policy, true));
        by_definition.chain(by_parser.into_iter().map(|policy| (policy, false))).collect()
    }
}
