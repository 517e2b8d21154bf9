//! Our own CustomResourceDefinitions on a server.

use anyhow::Context as _;
use bytes::Bytes;
use gc_kube::ApiClient;
use gc_retention::policies::definition::definition;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Tries to bring a definition up to date over conflicts.
const TRIES: usize = 5;

/// Makes sure that the server knows our kinds as this version has them.
pub(crate) async fn install(client: &ApiClient) -> anyhow::Result<()> {
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
pub(crate) async fn call(
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

    use super::*;

    /// `deploy/crds/retentionpolicies.yaml` is written from the code: with `UPDATE_CRDS=1` by this test.
    #[test]
    fn the_manifest_is_what_the_code_defines() {
        let file =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds/retentionpolicies.yaml");
        let text = format!(
            "# Written from the code: UPDATE_CRDS=1 cargo test -p kubegc definitions\n{}",
            crate::yaml::to_string(&definition()).unwrap()
        );
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
