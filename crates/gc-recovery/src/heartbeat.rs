//! Lease of a recorder, which shows that the recorder runs, and for which kinds it records every deletion. Policies that delete
//! unused objects rely on it.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gc_collectors::policies::unused::{
    HEARTBEAT_MILLISECONDS, NOT_RECORDED, RECORDED, RECORDER_ERROR, kind_name, lease_name,
};
use gc_inspect::gather;
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_types::Timestamp;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::changes::{ChangeError, send};
use super::status::{ErrorCode, RecorderStatus};

/// Interval of renewals.
pub(super) const PERIOD: Duration = Duration::from_millis(HEARTBEAT_MILLISECONDS.unsigned_abs());
/// Timeout of a renewal, during which recording waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Namespace and name of a recorder's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecorderLease {
    namespace: String,
    name: String,
}

impl FromStr for RecorderLease {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = lease_name(text)
            .ok_or_else(|| UsageError::new(format!("{text:?} is not NAMESPACE/NAME of a Lease")))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// Kinds whose deletions are all to be recorded, and whether they are: whether a watch has listed their objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage(Arc<Mutex<BTreeMap<String, bool>>>);

impl Coverage {
    /// Records that the list of a kind began, or is complete.
    pub(super) fn note(&self, api_version: &str, kind: &str, is_listed: bool) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(kind_name(api_version, kind), is_listed);
    }

    /// Forgets a kind that is no longer watched.
    pub(super) fn forget(&self, api_version: &str, kind: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&kind_name(api_version, kind));
    }

    /// Records that nothing is recorded any more.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the kinds that are currently recorded.
    fn recorded(&self) -> String {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listed: Vec<&str> =
            kinds.iter().filter(|(_, listed)| **listed).map(|(kind, _)| kind.as_str()).collect();
        listed.join(",")
    }
}

/// A Lease that is renewed while a recorder runs.
pub(super) struct Heartbeat {
    lease: RecorderLease,
    /// Failure that was reported last.
    reported: Option<String>,
}

impl Heartbeat {
    pub(super) fn of(lease: RecorderLease) -> Self {
        Self { lease, reported: None }
    }

    /// Renews the Lease. A failure is reported once, and stops nothing, because records are valid without it.
    pub(super) async fn renew(&mut self, client: &ApiClient, coverage: &Coverage, status: &RecorderStatus) {
        let document = document(&self.lease, &coverage.recorded(), status, gather::now());
        let failure = match tokio::time::timeout(TIMEOUT, write(client, &self.lease, &document)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        if failure.is_some() && failure != self.reported {
            let RecorderLease { namespace, name } = &self.lease;
            let error = failure.as_deref().unwrap_or_default();
            status.failed(ErrorCode::LeaseFailing, &error);
            tracing::error!(lease = %format!("{namespace}/{name}"), error, "the Lease is not renewed: no policy deletes what is unused");
        }
        self.reported = failure;
    }
}

fn document(lease: &RecorderLease, recorded: &str, status: &RecorderStatus, now: Timestamp) -> Value {
    let now = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
    let annotations = json!({
        RECORDED: recorded, NOT_RECORDED: status.not_recorded(), RECORDER_ERROR: status.last_error(),
    });
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        // `kubegc doctor` finds the Leases of recorders by these labels.
        "metadata": {"name": lease.name, "annotations": annotations, "labels": {
            "app.kubernetes.io/name": "kubegc", "app.kubernetes.io/component": "recorder"}},
        "spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()},
    })
}

async fn write(client: &ApiClient, lease: &RecorderLease, document: &Value) -> Result<(), ChangeError> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", lease.namespace);
    match send(client, Method::PATCH, &format!("{leases}/{}", lease.name), Some(document)).await {
        Err(error) if error.is(StatusCode::NOT_FOUND) => {
            send(client, Method::POST, &leases, Some(document)).await.map(drop)
        }
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_collectors::policies::unused;
    use gc_embedded::definitions::call;
    use gc_embedded::embedded::{Beginning, EmbeddedCluster};

    use super::*;

    #[test]
    fn a_lease_is_named_with_its_namespace() {
        for text in ["kube-system/kubegc-recorder", "a/b.c"] {
            assert!(text.parse::<RecorderLease>().is_ok(), "{text}");
        }
        for text in ["", "kubegc-recorder", "/a", "a/", "a/b/c", "a/B", "a/b?dryRun=All"] {
            assert!(text.parse::<RecorderLease>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_lease_is_made_and_renewed_with_what_is_recorded() {
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let (coverage, status) = (Coverage::default(), RecorderStatus::default());
        coverage.note("v1", "ConfigMap", true);
        coverage.note("v1", "Pod", false);
        coverage.note("apps/v1", "Deployment", true);
        let mut heartbeat = Heartbeat::of("default/recorder".parse().unwrap());
        let read = async || {
            let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/recorder";
            unused::Heartbeat::of(&call(&client, Method::GET, path, None).await.unwrap().1)
        };
        heartbeat.renew(&client, &coverage, &status).await;
        let first = read().await;
        assert_eq!(first.recorded, ["ConfigMap", "Deployment.apps"].map(str::to_owned).into());
        coverage.note("v1", "ConfigMap", false);
        coverage.forget("apps/v1", "Deployment");
        tokio::time::sleep(Duration::from_millis(2)).await;
        heartbeat.renew(&client, &coverage, &status).await;
        let second = read().await;
        assert!(second.recorded.is_empty() && second.renewed > first.renewed, "{first:?} {second:?}");
        cluster.shutdown().await;
    }
}
