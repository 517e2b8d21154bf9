//! Evidence of whether the controller of a finalizer is alive.

use crate::catalog::GroupResource;
use crate::facts::Knowledge;
use crate::finalizers::Controller;
use crate::finalizers::known::{Remover, find};
use crate::object::Object;
use crate::stuck::Diagnosis;
use crate::text;

/// A field manager that wrote to the object after the deletion and within this time is alive.
const RECENT_MILLISECONDS: i64 = 600_000;
/// Prefixes of field managers that are people using a tool.
const TOOLS: [&str; 4] = ["kubectl", "kubegc", "helm", "Mozilla"];
/// Lists that are searched for controllers.
const WORKLOADS: [(&str, &str); 4] = [
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("coordination.k8s.io", "leases"),
];

/// State of the controller of a finalizer, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The controller is alive.
    Lives(String),
    /// The controller was found, but does not work.
    Idle(String),
    /// No controller was found, although the whole cluster was searched.
    Unknown,
    /// No controller was found, but not everything could be read.
    Unseen(String),
}

impl Liveness {
    /// Returns the code for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Lives(_) => "Lives",
            Self::Idle(_) => "Idle",
            Self::Unknown => "NotFound",
            Self::Unseen(_) => "Unseen",
        }
    }

    /// Returns the evidence in human-readable form.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Lives(evidence) => format!("yes: {evidence}"),
            Self::Idle(evidence) => format!("no: {evidence}"),
            Self::Unknown => {
                "no: no workload, Lease or field manager of it was found; it may be uninstalled, or outside of the cluster"
                    .to_owned()
            }
            Self::Unseen(why) => format!("unknown: {why}"),
        }
    }
}

/// Determines whether the controller of this finalizer is alive.
pub(super) fn liveness(
    diagnosis: &Diagnosis<'_>,
    object: &Object,
    finalizer: &str,
    controllers: &[Controller],
    has_collectors: bool,
) -> Liveness {
    match find(finalizer).map(|known| known.remover) {
        Some(Remover::ApiServer) => return Liveness::Lives("the API server answers".to_owned()),
        Some(Remover::ControllerManager) => return built_in(diagnosis, has_collectors),
        Some(Remover::Workloads(_)) | None => {}
    }
    if let Some(working) = controllers.iter().find(|controller| controller.works) {
        return Liveness::Lives(working.message());
    }
    if let Some(evidence) = wrote_lately(diagnosis, object, finalizer) {
        return Liveness::Lives(evidence);
    }
    if let Some(why) = unread(diagnosis, &WORKLOADS) {
        return Liveness::Unseen(why);
    }
    // A webhook that mentions the domain is not a controller.
    let idle = controllers.iter().filter(|controller| !controller.kind.ends_with("webhook"));
    let idle: Vec<String> = idle.map(Controller::message).collect();
    if idle.is_empty() { Liveness::Unknown } else { Liveness::Idle(idle.join(", ")) }
}

/// Determines the liveness of a controller of kube-controller-manager, which is alive while something renews its Lease.
fn built_in(diagnosis: &Diagnosis<'_>, has_collectors: bool) -> Liveness {
    if has_collectors {
        return Liveness::Lives("this server runs it".to_owned());
    }
    match diagnosis.collector() {
        Some(holder) => Liveness::Lives(format!("{holder} renews its Lease")),
        None => match unread(diagnosis, &[]) {
            Some(why) => Liveness::Unseen(why),
            None => Liveness::Idle("nothing renews the Lease of a controller manager".to_owned()),
        },
    }
}

/// Returns a manager that set the finalizer and has written recently, after the deletion.
fn wrote_lately(diagnosis: &Diagnosis<'_>, object: &Object, finalizer: &str) -> Option<String> {
    let (now, deleted) = (diagnosis.facts.now(), object.time("/metadata/deletionTimestamp")?);
    let is_program = |manager: &str| !TOOLS.iter().any(|tool| manager.starts_with(tool));
    object.finalizer_writers(finalizer).filter(|writer| is_program(&writer.manager)).find_map(|writer| {
        let at = writer.at.filter(|at| *at > deleted && now.since(*at) < RECENT_MILLISECONDS)?;
        Some(format!("field manager {} wrote to it {}", writer.manager, text::ago(at, now)))
    })
}

/// Explains why one of these lists, or a Lease of a controller manager, could not be read.
fn unread(diagnosis: &Diagnosis<'_>, lists: &[(&str, &str)]) -> Option<String> {
    if lists.is_empty() {
        let leases = GroupResource::new("coordination.k8s.io", "leases");
        let read = diagnosis.facts.object(&leases, "kube-system", "kube-controller-manager");
        return match read {
            Some(Knowledge::Unreadable(why)) => Some(format!("Leases of kube-system cannot be read: {why}")),
            Some(Knowledge::Present(_) | Knowledge::Absent) | None => None,
        };
    }
    lists.iter().find_map(|(group, resource)| {
        let name = GroupResource::new(group, resource);
        match diagnosis.facts.list(&name, "") {
            Some(Knowledge::Unreadable(why)) => Some(format!("{name} cannot be listed: {why}")),
            Some(Knowledge::Present(_) | Knowledge::Absent) | None => None,
        }
    })
}
