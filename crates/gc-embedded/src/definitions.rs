//! kubegc's own CustomResourceDefinitions on a server.

use anyhow::Context as _;
use bytes::Bytes;
use gc_collectors::{node_policies, policies};
use gc_kube::ApiClient;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Maximum number of attempts to update a definition in case of conflicts.
const TRIES: usize = 5;

/// Makes sure that the server has kubegc's kinds as this version defines them.
pub async fn install(client: &ApiClient) -> anyhow::Result<()> {
    for wanted in [policies::definition::definition(), node_policies::definition::definition()] {
        install_one(client, wanted).await?;
    }
    Ok(())
}

async fn install_one(client: &ApiClient, wanted: Value) -> anyhow::Result<()> {
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

/// Sends a request with a JSON body, and returns the code and the body of its response.
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

    /// `deploy/crds` is generated from the code by this test, with `UPDATE_CRDS=1`.
    #[test]
    fn the_manifests_are_what_the_code_defines() {
        for (name, definition) in [
            ("retentionpolicies", policies::definition::definition()),
            ("nodecollectionpolicies", node_policies::definition::definition()),
        ] {
            let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("../../deploy/crds/{name}.yaml"));
            let text = format!(
                "# Written from the code: UPDATE_CRDS=1 cargo test -p kubegc definitions\n{}",
                gc_process::yaml::to_string(&definition).unwrap()
            );
            if std::env::var_os("UPDATE_CRDS").is_some() {
                std::fs::write(&file, &text).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    /// The rules in the definition, on any server, refuse what `kubegc policy check` refuses, except for what only its parsers
    /// know: conditions, and the numbers in a schedule or a duration.
    #[tokio::test]
    async fn a_server_refuses_the_policies_that_the_check_refuses() {
        let options = crate::apiserver::ServerOptions::in_process();
        let server = crate::apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        install(&client).await.unwrap();
        let path = "/apis/kubegc.io/v1alpha1/retentionpolicies?dryRun=All&fieldValidation=Strict";
        for (more, by_definition) in retention_policies() {
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
            let accepted = policies::Policy::compile(&policy["spec"]).is_ok();
            assert_eq!(code < 300, accepted || !by_definition, "{spec}: {}", body["message"]);
            assert!(by_definition || !accepted, "{spec}: the check accepts it");
        }
        server.shutdown().await;
    }

    /// The same for node policies; only parsers know the numbers in a schedule or a duration, and spans with days.
    #[tokio::test]
    async fn a_server_refuses_the_policies_for_nodes_that_agents_refuse() {
        let options = crate::apiserver::ServerOptions::in_process();
        let server = crate::apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        install(&client).await.unwrap();
        let path = "/apis/kubegc.io/v1alpha1/nodecollectionpolicies?dryRun=All&fieldValidation=Strict";
        for (spec, by_definition) in policies_for_nodes() {
            let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "NodeCollectionPolicy",
                "metadata": {"name": "p"}, "spec": spec});
            let (code, body) = call(&client, Method::POST, path, Some(&policy)).await.unwrap();
            let compiled = node_policies::NodePolicy::compile(&policy["spec"]);
            let accepted = compiled.is_ok();
            assert_eq!(
                code < 300,
                accepted || !by_definition,
                "{spec}: {code} {} {compiled:?}",
                body["message"]
            );
            assert!(by_definition || !accepted, "{spec}: agents accept it");
        }
        server.shutdown().await;
    }

    fn policies_for_nodes() -> Vec<(Value, bool)> {
        let thresholds =
            |high: i64, low: i64| json!({"thresholds": {"highPercent": high, "lowPercent": low}});
        let window =
            |start: &str, duration: &str| json!({"windows": [{"start": start, "duration": duration}]});
        let by_definition = [
            json!({}),
            json!({"enforce": true}),
            json!({"protectedImages": []}),
            json!({"ages": {}}),
            thresholds(80, 70),
            thresholds(80, 80),
            thresholds(101, 80),
            thresholds(0, -1),
            json!({"thresholds": {"highPercent": 80}}),
            json!({"thresholds": {"highPercent": 80, "lowPercent": 70}, "priority": 1_000_000}),
            json!({"thresholds": {"highPercent": 80, "lowPercent": 70}, "priority": -1_000_001}),
            json!({"ages": {"minimum": "5m", "maximum": "14d"}}),
            json!({"ages": {"minimum": "2h", "maximum": "90m"}}),
            json!({"ages": {"minimum": "1h", "maximum": "1h"}}),
            json!({"ages": {"maximum": "0s"}}),
            json!({"ages": {"maximum": "soon"}}),
            json!({"protectedImages": ["registry.example/base/*", "nginx"]}),
            json!({"protectedImages": [""]}),
            json!({"protectedImages": ["a b"]}),
            json!({"protectedImages": vec!["a"; 129]}),
            json!({"removeImages": ["sha256:12ab", "*@sha256:12ab", "registry.example/app:1"]}),
            json!({"removeImages": ["*"]}),
            json!({"removeImages": ["*/*:*"]}),
            json!({"removeImages": vec!["a"; 65]}),
            json!({"removeImages": ["a"], "protectedImages": ["b", "a"]}),
            json!({"removeImages": ["a"], "protectedImages": ["b"]}),
            json!({"keepImages": [{"pattern": "registry.example/*", "keep": "Last"}]}),
            json!({"keepImages": [{"pattern": "registry.example/*", "keep": "Often"}]}),
            json!({"keepImages": [{"pattern": "registry.example/*"}]}),
            json!({"ages": {"minimum": "1m"}, "nodeSelector": {"matchLabels": {"pool": "a"}}}),
            json!({"ages": {"minimum": "1m"}, "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            json!({"ages": {"minimum": "1m"}, "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}),
            json!({"ages": {"minimum": "1m"}, "nodeselector": {}}),
            window("30 2 * * *", "3h"),
            window("@daily", "1d"),
            window("every 1h", "1m"),
            window("@never", "1m"),
            window("@daily", "0h"),
            json!({"windows": [{"start": "@daily"}]}),
        ];
        let by_parser = [
            json!({"ages": {"minimum": "25h", "maximum": "1d"}}),
            window("60 * * * *", "1h"),
            window("@daily", "8d"),
            window("@daily", "30s"),
        ];
        let by_definition = by_definition.into_iter().map(|policy| (policy, true));
        by_definition.chain(by_parser.into_iter().map(|policy| (policy, false))).collect()
    }

    /// Returns policies, and whether the definition can validate them.
    fn retention_policies() -> Vec<(Value, bool)> {
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
