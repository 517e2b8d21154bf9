//! Namespaces, and the APIs and webhooks that make their removal fail.

use gc_types::Timestamp;
use serde_json::Value;

use super::{Cause, Code, Diagnosis, Force, Hold, Removal};
use crate::admission::Operation;
use crate::backend::{Backend, backend};
use crate::catalog::GroupResource;
use crate::commands::{finalize_namespace, kubectl, release};
use crate::messages::{condition, content_failure};
use crate::object::{Object, parse_time};
use crate::text;

/// Time without a report after which a namespace controller that has reported before counts as inactive.
const WORKING_CONTROLLER_PATIENCE_MILLISECONDS: i64 = 600_000;
/// Leases in `kube-system` of the programs that run a namespace controller.
const CONTROLLER_LEASES: [&str; 2] = ["kube-controller-manager", "kubegc-garbage-collector"];

/// Consequence of deleting a check.
pub(super) const NO_LONGER_CHECKED: &str =
    "nothing; what it checks is no longer checked until it is created again";

impl Diagnosis<'_> {
    pub(super) fn namespace(&self, namespace: &Object) -> Vec<Hold> {
        let name = namespace.name();
        let mut holds = Vec::new();
        for finalizer in namespace.texts("/spec/finalizers").filter(|finalizer| *finalizer != "kubernetes") {
            holds.push(Hold::cause(Self::namespace_finalizer(namespace, finalizer)));
        }
        let failing = ["NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"];
        for message in failing.iter().filter_map(|kind| condition(namespace, kind)) {
            holds.extend(self.discovery(name, message).into_iter().map(Hold::cause));
        }
        if let Some(message) = content_failure(namespace) {
            holds.push(Hold::cause(self.content_failure(name, message)));
        }
        let inside = self.survey.terminating().keys().filter(|key| *key.namespace == *name);
        holds.extend(inside.map(|key| Hold::Object(key.clone())));
        // The effect of a broken API or object is not a cause of its own.
        if holds.is_empty() && namespace.texts("/spec/finalizers").any(|finalizer| finalizer == "kubernetes")
        {
            holds.extend(self.unemptied(namespace).map(Hold::cause));
        }
        holds
    }

    fn namespace_finalizer(namespace: &Object, finalizer: &str) -> Cause {
        let removal = Removal {
            namespace: String::new(),
            object: namespace.name().to_owned(),
            is_in_specification: true,
            uid: namespace.uid().to_owned(),
            finalizers: namespace.texts("/spec/finalizers").map(str::to_owned).collect(),
            finalizer: finalizer.to_owned(),
        };
        let writers = crate::finalizers::known_controller(finalizer);
        Cause {
            code: Code::FinalizerHeld,
            subject: finalizer.to_owned(),
            message: format!(
                "finalizer {finalizer} in its specification; {}",
                writers.map_or_else(
                    || "no controller was found that removes it".to_owned(),
                    |by| format!("{by} removes it")
                )
            ),
            help: vec![
                kubectl("", &["get", &format!("ns/{}", namespace.name()), "-o", "yaml"]),
                release("", &format!("namespaces/{}", namespace.name()), finalizer),
            ],
            force: Some(Force::removing(removal, crate::finalizers::strands(finalizer))),
        }
    }

    /// Returns the APIs whose discovery fails, according to the namespace controller's message and to kubegc's own requests.
    fn discovery(&self, namespace: &str, message: &str) -> Vec<Cause> {
        let services = self.facts.all(&GroupResource::new("apiregistration.k8s.io", "apiservices"), "");
        let concerned = services.iter().filter(|service| {
            let version = format!("{}/{}", service.text("/spec/group"), service.text("/spec/version"));
            let is_named = message.contains(&version) || self.survey.catalog.failed.contains(&version);
            is_named && !service.is_true("Available") && !service.text("/spec/service/name").is_empty()
        });
        let causes: Vec<Cause> = concerned.map(|service| self.api_service(service)).collect();
        if !causes.is_empty() {
            return causes;
        }
        vec![Cause {
            code: Code::DiscoveryFails,
            subject: namespace.to_owned(),
            message: format!("the server cannot say what it serves: {message}"),
            help: vec![kubectl("", &["get", "apiservices"]), kubectl("", &["api-resources"])],
            force: None,
        }]
    }

    fn api_service(&self, service: &Object) -> Cause {
        let (namespace, name) = (service.text("/spec/service/namespace"), service.text("/spec/service/name"));
        let Backend { chain, mut help, .. } = backend(self.facts, namespace, name);
        help.push(kubectl("", &["describe", &format!("apiservice/{}", service.name())]));
        Cause {
            code: Code::APIServiceUnavailable,
            subject: service.name().to_owned(),
            message: format!("APIService {} is not available → {chain}", service.name()),
            help,
            force: Some(Force::new(
                kubectl("", &["delete", &format!("apiservice/{}", service.name())]),
                format!(
                    "the objects of {} in the store of their own server; the API is gone for everybody",
                    service.text("/spec/group")
                ),
            )),
        }
    }

    fn content_failure(&self, namespace: &str, message: &str) -> Cause {
        if let Some(cause) = self.refusal_in(message) {
            return cause;
        }
        self.conversion(message).unwrap_or_else(|| Cause {
            code: Code::ContentDeletionFails,
            subject: namespace.to_owned(),
            message: format!("its contents cannot be deleted: {message}"),
            help: vec![kubectl("", &["describe", &format!("ns/{namespace}")])],
            force: None,
        })
    }

    pub(super) fn webhook(&self, webhook: &str, message: &str) -> Cause {
        let kinds = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
        let found = kinds.iter().find_map(|kind| {
            let all = self.facts.all(&GroupResource::new("admissionregistration.k8s.io", kind), "");
            let has = |object: &&Object| object.items("/webhooks").any(|hook| hook["name"] == webhook);
            all.iter().find(has).map(|object| (*kind, object))
        });
        let Some((kind, configuration)) = found else {
            return Cause {
                code: Code::AdmissionWebhookFails,
                subject: webhook.to_owned(),
                message: format!("admission webhook {webhook} fails the deletion: {message}"),
                help: vec![kubectl(
                    "",
                    &["get", "validatingwebhookconfigurations,mutatingwebhookconfigurations"],
                )],
                force: None,
            };
        };
        let hook = configuration.items("/webhooks").find(|hook| hook["name"] == webhook);
        let service = hook.map(|hook| &hook["clientConfig"]["service"]);
        let text = |field: &str| service.and_then(|service| service[field].as_str()).unwrap_or_default();
        let is_refusal = message.contains("denied the request");
        let (chain, help) = if is_refusal || text("name").is_empty() {
            (String::new(), Vec::new())
        } else {
            let Backend { chain, help, .. } = backend(self.facts, text("namespace"), text("name"));
            (format!(" → {chain}"), help)
        };
        let verb = if is_refusal { "refuses" } else { "does not answer and fails" };
        let mut commands = help;
        commands.push(kubectl("", &["get", &format!("{kind}/{}", configuration.name()), "-o", "yaml"]));
        Cause {
            code: Code::AdmissionWebhookFails,
            subject: webhook.to_owned(),
            message: format!(
                "admission webhook {webhook} of {} {verb} the deletion{chain}",
                configuration.name()
            ),
            help: commands,
            force: Some(Force::new(
                kubectl("", &["delete", &format!("{kind}/{}", configuration.name())]),
                NO_LONGER_CHECKED.into(),
            )),
        }
    }

    /// Returns the cause in a message about a failing conversion webhook.
    pub(super) fn conversion(&self, message: &str) -> Option<Cause> {
        let (_, after) = message.split_once("conversion webhook for ")?;
        let kind = after.split(" failed").next().unwrap_or(after).split(',').next().unwrap_or(after);
        let definitions =
            self.facts.all(&GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"), "");
        let name = kind.rsplit("Kind=").next().unwrap_or(kind);
        let is_meant = |definition: &&Object| {
            let group = definition.text("/spec/group");
            let webhook: &Value = &definition.value()["spec"]["conversion"]["webhook"];
            !webhook.is_null() && (definition.text("/spec/names/kind") == name || kind.starts_with(group))
        };
        let definition = definitions.iter().find(is_meant)?;
        let service =
            |field: &str| definition.text(&format!("/spec/conversion/webhook/clientConfig/service/{field}"));
        let url = definition.text("/spec/conversion/webhook/clientConfig/url");
        let (chain, mut help) = if url.is_empty() {
            let Backend { chain, help, .. } = backend(self.facts, service("namespace"), service("name"));
            (chain, help)
        } else {
            (format!("{url} does not answer as it should"), Vec::new())
        };
        help.push(kubectl("", &["get", &format!("crd/{}", definition.name()), "-o", "yaml"]));
        Some(Cause {
            code: Code::ConversionWebhookFails,
            subject: definition.name().to_owned(),
            message: format!(
                "the conversion webhook of CustomResourceDefinition {} fails → {chain}",
                definition.name()
            ),
            help,
            force: None,
        })
    }

    /// Returns the cause if the controller leaves a namespace alone. A controller that has worked on it gets as much time as for a
    /// finalizer, counted from the last change that it reported.
    fn unemptied(&self, namespace: &Object) -> Option<Cause> {
        let name = namespace.name();
        let contents = self.survey.engine.select(|key| *key.namespace == *name);
        let (refused, _) = self.refusals(Operation::Delete, contents.iter());
        if let Some(cause) = refused.into_iter().next() {
            return Some(cause);
        }
        let remaining = contents.len();
        let (reported, now) = (last_report(namespace), self.facts.now());
        let holder = self.collector();
        let begun = namespace.time("/metadata/deletionTimestamp").filter(|_| holder.is_some());
        let is_working = |at: Timestamp| now.since(at) < WORKING_CONTROLLER_PATIENCE_MILLISECONDS;
        if reported.max(begun).is_some_and(is_working) {
            return None;
        }
        let idle = match (reported, holder) {
            (Some(at), _) => Some(format!("its namespace controller reported last {}", text::ago(at, now))),
            (None, Some(holder)) => {
                Some(format!("the namespace controller of {holder} has not begun with it"))
            }
            (None, None) => None,
        };
        let objects = text::count(remaining, "object");
        let (code, message) = match (remaining, idle) {
            (0, None) => (
                Code::CollectorAbsent,
                "nothing remains in it, and no namespace controller removes its finalizer".to_owned(),
            ),
            (0, Some(idle)) => (Code::CollectorAbsent, format!("nothing remains in it, and {idle}")),
            (_, None) => (
                Code::ContentNotDeleted,
                format!("no namespace controller deletes what remains in it: {objects}"),
            ),
            (_, Some(idle)) => (Code::ContentNotDeleted, format!("{objects} remain in it, and {idle}")),
        };
        let strands = match remaining {
            0 => "nothing: it is empty".to_owned(),
            _ => crate::finalizers::strands("kubernetes"),
        };
        Some(Cause {
            code,
            subject: name.to_owned(),
            message,
            help: vec!["kubegc doctor".into(), kubectl("", &["describe", &format!("ns/{name}")])],
            force: Some(Force::new(finalize_namespace(name, namespace.uid(), &[]), strands)),
        })
    }

    /// Returns the holder of a Lease of controllers that collect garbage and empty namespaces.
    pub(crate) fn collector(&self) -> Option<String> {
        let leases = GroupResource::new("coordination.k8s.io", "leases");
        CONTROLLER_LEASES.iter().find_map(|name| {
            let lease = self.facts.present(&leases, "kube-system", name)?;
            let seconds = lease.number("/spec/leaseDurationSeconds").unwrap_or(0);
            let renewed = lease.time("/spec/renewTime")?;
            let is_held = self.facts.now().since(renewed) <= seconds.saturating_mul(1000);
            Some(lease.text("/spec/holderIdentity").to_owned()).filter(|holder| is_held && !holder.is_empty())
        })
    }
}

/// Returns the time of the namespace controller's last reported change of the deletion.
fn last_report(namespace: &Object) -> Option<Timestamp> {
    let conditions = namespace.items("/status/conditions");
    conditions.filter_map(|condition| parse_time(condition["lastTransitionTime"].as_str()?)).max()
}
