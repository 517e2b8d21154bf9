//! Reports to the cluster for the page and `kubegc top`: the images that were removed and are due on this node, and the state of
//! its disks and passes.

use anyhow::{Context, Result};
use gc_collectors::node_report::{ANNOTATION, DueImage, LABEL, NodeReport, NodeState, Tally};
use gc_kube::requests::RequestedObject;
use gc_kube::{ApiClient, push_segment};
use gc_types::Timestamp;
use http::Method;
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::requests::{JSON, MERGE_PATCH, ReadTarget, node_target, read, send};

/// Prefix of the name of a node's Lease, which the name of the node follows.
const NAME_PREFIX: &str = "kubegc-node-";

/// Destination of reports.
#[derive(Clone)]
pub struct ReportTarget {
    /// Client of the cluster.
    pub client: ApiClient,
    /// Node that the reports concern.
    pub node: String,
    /// Namespace of the Lease.
    pub namespace: String,
}

/// Writes the report of a node onto a Lease that the Node owns and is deleted with.
pub(crate) struct Reporter {
    target: ReportTarget,
    /// Last known report of the Lease, and the UID of the Node that owns it; `None` before the first read and after a failure.
    known: Option<(NodeReport, String)>,
    /// Removals before the last write of the report.
    reported: Tally,
    has_warned: bool,
}

impl Reporter {
    pub(crate) fn new(target: ReportTarget) -> Self {
        Self { target, known: None, reported: Tally::default(), has_warned: false }
    }

    /// Writes the removals since the start, the images that are due now, and the state of the node, if anything has changed. If the
    /// cluster does not accept the report, the next one tries again.
    pub(crate) async fn report(
        &mut self,
        now: Timestamp,
        removed: Tally,
        due: Vec<DueImage>,
        state: NodeState,
    ) {
        let Err(error) = self.write(now, removed, due, state).await else { return };
        self.known = None;
        if std::mem::replace(&mut self.has_warned, true) {
            debug!("the report of this node was not written: {error:#}");
        } else {
            warn!(
                "what is removed here is not on the page of the cluster (see --report-namespace): {error:#}"
            );
        }
    }

    async fn write(
        &mut self,
        now: Timestamp,
        removed: Tally,
        due: Vec<DueImage>,
        state: NodeState,
    ) -> Result<()> {
        let is_new = self.known.is_none();
        let (before, uid, exists) = match &self.known {
            Some((before, uid)) => (before.clone(), uid.clone(), true),
            None => self.read().await?,
        };
        let mut report = before.clone();
        report.observe(now, removed - self.reported, due);
        report.observe_state(state);
        if !is_new && report.adds_nothing_to(&before, now) {
            return Ok(());
        }
        let text = report.written(now);
        let lease = self.lease(now, &uid, &text);
        let client = &self.target.client;
        if exists {
            send(client, Method::PATCH, &self.path(true), MERGE_PATCH, &lease).await?;
        } else {
            send(client, Method::POST, &self.path(false), JSON, &lease).await?;
        }
        (self.known, self.reported, self.has_warned) = (Some((report, uid)), removed, false);
        Ok(())
    }

    /// Reads an earlier agent's report, the UID of the Node, and whether there is a Lease.
    async fn read(&self) -> Result<(NodeReport, String, bool)> {
        let ReportTarget { client, node, namespace } = &self.target;
        let object = read(client, &node_target(node)).await?;
        let object = object.with_context(|| format!("there is no Node {node:?}"))?;
        let uid = object["metadata"]["uid"].as_str().context("the Node has no UID")?.to_owned();
        let name = format!("{NAME_PREFIX}{node}");
        let object = RequestedObject {
            group: "coordination.k8s.io",
            resource: "leases",
            kind: "Lease",
            namespace,
            name: &name,
        };
        let lease = read(client, &ReadTarget { version: "v1", object }).await?;
        let text = lease.as_ref().and_then(|lease| lease["metadata"]["annotations"][ANNOTATION].as_str());
        let report = text.and_then(NodeReport::read).unwrap_or_default();
        Ok((report, uid, lease.is_some()))
    }

    fn path(&self, of_lease: bool) -> String {
        let ReportTarget { node, namespace, .. } = &self.target;
        let mut path = "/apis/coordination.k8s.io/v1/namespaces/".to_owned();
        push_segment(&mut path, namespace);
        path.push_str("/leases");
        if of_lease {
            path.push('/');
            push_segment(&mut path, &format!("{NAME_PREFIX}{node}"));
        }
        path
    }

    fn lease(&self, now: Timestamp, uid: &str, text: &str) -> Value {
        let ReportTarget { node, namespace, .. } = &self.target;
        let time = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": format!("{NAME_PREFIX}{node}"), "namespace": namespace,
                "labels": {LABEL.0: LABEL.1}, "annotations": {ANNOTATION: text},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            },
            "spec": {"holderIdentity": node, "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()},
        })
    }
}
