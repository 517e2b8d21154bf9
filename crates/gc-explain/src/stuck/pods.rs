//! Pods that are past their grace period.

use super::{Cause, Code, Diagnosis, Force};
use crate::catalog::GroupResource;
use crate::commands::{self, kubectl};
use crate::facts::Knowledge;
use crate::object::{Object, parse_time};
use crate::survey::Metadata;
use crate::text;

/// Maximum number of containers that one message names.
const NAMED: usize = 3;
/// Reason in the Ready condition of a node whose kubelet has never written its status.
const NEVER_UPDATED: &str = "NodeStatusNeverUpdated";

impl Diagnosis<'_> {
    /// Reports whether a pod is still within its grace period, at whose end its deletion time is.
    pub(super) fn is_in_grace(&self, pod: &Metadata) -> bool {
        pod.deleted.is_some_and(|ends| ends > self.facts.now())
    }

    /// Explains why a pod remains after its grace period. `None` if only finalizers block it.
    pub(super) fn pod(&self, pod: &Object, metadata: &Metadata) -> Option<Cause> {
        let grace = metadata.grace_seconds.unwrap_or(0);
        let has_ended = matches!(pod.text("/status/phase"), "Succeeded" | "Failed");
        // With a grace period of zero the server removes a pod immediately, unless a finalizer blocks it.
        if (grace == 0 || has_ended) && !metadata.finalizers.is_empty() {
            return None;
        }
        let node = pod.text("/spec/nodeName");
        let name = format!("pod/{}", metadata.name);
        let force = |strands: &str| {
            let uid = metadata.uid.to_string();
            let command = commands::delete_pod_now(&metadata.namespace, &metadata.name, &uid);
            Some(Force::new(command, strands.to_owned()))
        };
        if node.is_empty() {
            return Some(Cause {
                code: Code::PodUnscheduled,
                subject: "pods".into(),
                message: "it was never assigned to a node, and no pod garbage collector deletes it".into(),
                help: vec!["kubegc doctor".into()],
                force: force("nothing"),
            });
        }
        let known = self.facts.object(&GroupResource::new("", "nodes"), "", node)?;
        Some(match known {
            Knowledge::Absent => Cause {
                code: Code::NodeGone,
                subject: node.to_owned(),
                message: format!(
                    "node {node} does not exist, so that no kubelet confirms that the containers have stopped"
                ),
                help: vec!["kubegc doctor".into()],
                force: force(
                    "containers that may still run on the machine, and volumes that they may still write to",
                ),
            },
            Knowledge::Present(found) if found.is_true("Ready") => Self::past_grace(
                pod,
                metadata,
                node,
                force("containers that may still run on the node until its kubelet notices"),
            ),
            Knowledge::Present(found) => self.silent(
                found,
                node,
                force(
                    "containers that may still run on the machine, and volumes that they may still write to",
                ),
            ),
            Knowledge::Unreadable(why) => Cause {
                code: Code::PodPastGrace,
                subject: node.to_owned(),
                message: format!("the grace period of {grace} s is over; node {node} cannot be read: {why}"),
                help: vec![kubectl(&metadata.namespace, &["describe", &name])],
                force: force("containers that may still run on the node"),
            },
        })
    }

    fn silent(&self, node: &Object, name: &str, force: Option<Force>) -> Cause {
        let ready = node.condition("Ready");
        let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
        let since = parse_time(text("lastHeartbeatTime")).or_else(|| parse_time(text("lastTransitionTime")));
        let reason = if ready.is_none() { "it has no condition Ready" } else { text("reason") };
        let silent = match since {
            // The node controller uses the creation time of the node as its last heartbeat.
            _ if reason == NEVER_UPDATED => " and has never reported".to_owned(),
            Some(at) => format!(" and reported last {}", text::ago(at, self.facts.now())),
            None => String::new(),
        };
        Cause {
            code: Code::KubeletSilent,
            subject: name.to_owned(),
            message: format!("the kubelet on node {name} is not ready ({reason}){silent}"),
            help: vec![
                kubectl("", &["describe", &format!("node/{name}")]),
                format!(
                    "if the machine is shut down for good: {}",
                    kubectl(
                        "",
                        &["taint", "nodes", name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]
                    )
                ),
            ],
            force,
        }
    }

    fn past_grace(pod: &Object, metadata: &Metadata, node: &str, force: Option<Force>) -> Cause {
        let running: Vec<String> = pod
            .items("/status/containerStatuses")
            .filter(|status| !status["state"]["running"].is_null())
            .filter_map(|status| status["name"].as_str().map(str::to_owned))
            .collect();
        let containers = if running.is_empty() {
            "no container is reported as running".to_owned()
        } else {
            format!("still running: {}", text::some_of(&running, NAMED))
        };
        let grace = metadata.grace_seconds.unwrap_or(0);
        Cause {
            code: Code::PodPastGrace,
            subject: format!("{}/{}", metadata.namespace, metadata.name),
            message: format!(
                "the grace period of {grace} s is over and the kubelet on node {node} is ready; {containers}"
            ),
            help: vec![kubectl(&metadata.namespace, &["describe", &format!("pod/{}", metadata.name)])],
            force,
        }
    }
}
