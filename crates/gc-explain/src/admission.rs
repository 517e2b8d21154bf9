//! Admission webhooks and policies that the server consults before it deletes or changes an object, and those that are certain to
//! refuse.

mod policies;
mod rules;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gc_types::{ObjectKey, ResourceId};
use serde_json::Value;

use crate::backend::backend;
use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::survey::Survey;
use policies::{BoundPolicy, Judgement, PolicyRequest, policies};
pub(crate) use rules::{GROUP, Operation};
use rules::{Rules, is_everything, selects, takes_operation};

/// Resources that configure webhooks. The server calls no webhook for objects of their group, because those configure admission.
pub(crate) const CONFIGURATIONS: [&str; 2] =
    ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// The resources of policies and their bindings.
pub(crate) const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

/// Answer to a yes-or-no question, which may be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    No,
    /// Cannot be decided from the objects that were read.
    Perhaps,
    Yes,
}

impl From<bool> for Answer {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// A webhook that the server calls for deletions.
pub(crate) struct Webhook<'a> {
    /// Resource of its configuration.
    pub(crate) resource: &'static str,
    /// Configuration of the webhook.
    pub(crate) configuration: &'a Object,
    hook: &'a Value,
    /// Reason why nothing answers for it, if that is certain.
    pub(crate) down: Option<String>,
}

impl Webhook<'_> {
    fn text(&self, field: &str) -> &str {
        self.hook[field].as_str().unwrap_or_default()
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }

    /// Namespace and name of the Service that answers for it, if one does.
    pub(crate) fn service(&self) -> Option<(&str, &str)> {
        let service = &self.hook["clientConfig"]["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        Some((text("namespace"), text("name"))).filter(|(_, name)| !name.is_empty())
    }

    /// Reports whether the server continues if the webhook does not answer.
    pub(crate) fn may_be_ignored(&self) -> bool {
        self.text("failurePolicy") == "Ignore"
    }

    /// Returns the display name.
    pub(crate) fn title(&self) -> String {
        format!("admission webhook {} of {}", self.name(), self.configuration.name())
    }

    /// Explains why the webhook fails every such request that it receives.
    fn failure(&self, operation: Operation) -> Option<String> {
        let down = self.down.as_ref()?;
        Some(format!("{} does not answer and fails the {} → {down}", self.title(), operation.noun()))
    }

    /// Reports whether a rule matches this operation on this resource.
    fn names(&self, operation: Operation, resource: &Resource) -> bool {
        let is_exact = self.text("matchPolicy") == "Exact";
        Rules { rules: &self.hook["rules"], is_exact }.name(operation, resource, None)
    }

    /// Reports whether the server calls the webhook for this object, whose resource its rules match.
    fn is_asked(&self, facts: &Facts, resource: &Resource, key: &ObjectKey) -> Answer {
        let labels = |resource: &GroupResource, namespace: &str, name: &str| match facts
            .object(resource, namespace, name)
        {
            Some(Knowledge::Present(object)) => Some(object.value()["metadata"]["labels"].clone()),
            Some(Knowledge::Absent) => Some(Value::Null),
            Some(Knowledge::Unreadable(_)) | None => None,
        };
        let is_selected = |selector: &Value, read: &dyn Fn() -> Option<Value>| {
            if is_everything(selector) {
                return Answer::Yes;
            }
            read().map_or(Answer::Perhaps, |labels| selects(selector, &labels).into())
        };
        let namespaces = GroupResource::new("", "namespaces");
        let namespace = if resource.name == namespaces { &key.name } else { &key.namespace };
        let by_namespace = if namespace.is_empty() {
            Answer::Yes
        } else {
            is_selected(&self.hook["namespaceSelector"], &|| labels(&namespaces, "", namespace))
        };
        if by_namespace == Answer::No {
            return Answer::No;
        }
        // Worth reading only to learn whether the webhook is certain to fail, not whether it is called.
        let own = || self.down.as_ref().and_then(|_| labels(&resource.name, &key.namespace, &key.name));
        let by_object = is_selected(&self.hook["objectSelector"], &own);
        let conditions = self.hook["matchConditions"].as_array().is_some_and(|all| !all.is_empty());
        let by_conditions = if conditions { Answer::Perhaps } else { Answer::Yes };
        by_namespace.min(by_object).min(by_conditions)
    }
}

/// Returns every webhook that is called for deletions or changes and may refuse one. A user who may not read one kind of
/// configuration is not expected to read the other.
pub(crate) fn webhooks(facts: &Facts) -> Vec<Webhook<'_>> {
    let mut all = Vec::new();
    for resource in CONFIGURATIONS {
        let Some(known) = facts.list(&GroupResource::new(GROUP, resource), "") else { return all };
        let Some(configurations) = known.present() else { return all };
        for configuration in configurations {
            for hook in configuration.items("/webhooks") {
                let mut webhook = Webhook { resource, configuration, hook, down: None };
                if ![Operation::Delete, Operation::Update].iter().any(|operation| webhook.takes(*operation)) {
                    continue;
                }
                let backend = webhook.service().map(|(namespace, name)| backend(facts, namespace, name));
                let down = backend.filter(|backend| backend.is_down).map(|backend| backend.chain);
                webhook.down = down.or_else(|| facts.silent_webhook(webhook.name()).map(str::to_owned));
                // A webhook that does not answer and whose failures are ignored decides nothing.
                if webhook.down.is_none() || !webhook.may_be_ignored() {
                    all.push(webhook);
                }
            }
        }
    }
    all
}

impl Webhook<'_> {
    /// Reports whether any rule matches this operation.
    pub(crate) fn takes(&self, operation: Operation) -> bool {
        takes_operation(&self.hook["rules"], operation)
    }
}

/// A policy that fails every deletion it applies to.
pub(crate) struct FailingPolicy<'a> {
    /// The policy.
    pub(crate) policy: &'a Object,
    /// The name of its binding.
    pub(crate) binding: &'a str,
    /// Reason.
    pub(crate) why: String,
}

/// Returns the policies that are certain to fail every deletion they apply to.
pub(crate) fn failing_policies<'a>(survey: &Survey, facts: &'a Facts) -> Vec<FailingPolicy<'a>> {
    let all = policies(survey, facts);
    let failing = all.iter().filter_map(|bound| {
        let why = bound.failure(facts, survey)?;
        Some(FailingPolicy { policy: bound.policy(), binding: bound.binding(), why })
    });
    failing.collect()
}

/// A webhook or policy that decides about a request and is not known to refuse it.
pub(crate) enum Decider<'d, 'a> {
    /// A webhook.
    Webhook(&'d Webhook<'a>),
    /// A policy that cannot be evaluated here.
    Policy(&'a str),
}

impl Decider<'_, '_> {
    /// Returns the display name.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.title(),
            Self::Policy(name) => {
                format!("ValidatingAdmissionPolicy {name}, which cannot be evaluated from here")
            }
        }
    }
}

/// A request that is certain to be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Reason.
    pub(crate) why: String,
    /// The webhook or policy that refuses it.
    pub(crate) by: Refuser,
}

/// A webhook or policy that refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refuser {
    /// A policy, by the name of its binding.
    Policy { name: String, binding: String },
    /// A webhook.
    Webhook(String),
}

/// Webhooks and policies that apply to the requests of a plan.
pub(crate) struct Admission<'a> {
    survey: &'a Survey,
    facts: &'a Facts,
    webhooks: Vec<Webhook<'a>>,
    policies: Vec<BoundPolicy<'a>>,
    /// Webhooks and policies whose rules match, by operation and resource.
    named: RefCell<BTreeMap<(Operation, ResourceId), Rc<NamedConfigurations>>>,
    /// Verdicts of policies that are known so far.
    judged: RefCell<BTreeMap<(Operation, ObjectKey), Rc<Vec<(usize, Judgement)>>>>,
}

/// Indexes of webhooks and policies.
#[derive(Default)]
struct NamedConfigurations {
    webhooks: Vec<usize>,
    policies: Vec<usize>,
}

impl<'a> Admission<'a> {
    pub(crate) fn new(survey: &'a Survey, facts: &'a Facts) -> Self {
        let webhooks = webhooks(facts);
        let policies = policies(survey, facts);
        Self { survey, facts, webhooks, policies, named: RefCell::default(), judged: RefCell::default() }
    }

    /// Returns the webhooks and policies whose rules match a resource.
    fn named(&self, operation: Operation, resource: &Resource) -> Rc<NamedConfigurations> {
        let mut known = self.named.borrow_mut();
        let found = known.entry((operation, resource.id)).or_insert_with(|| {
            // Otherwise a broken configuration of admission could never be changed again.
            if &*resource.name.group == GROUP {
                return Rc::default();
            }
            let webhooks = self.webhooks.iter().enumerate();
            let policies = self.policies.iter().enumerate();
            Rc::new(NamedConfigurations {
                webhooks: webhooks
                    .filter(|(_, webhook)| webhook.names(operation, resource))
                    .map(|(place, _)| place)
                    .collect(),
                policies: policies
                    .filter(|(_, policy)| policy.names(operation, resource))
                    .map(|(place, _)| place)
                    .collect(),
            })
        });
        Rc::clone(found)
    }

    /// Reports whether no webhook or policy applies to objects of this resource.
    pub(crate) fn is_free(&self, operation: Operation, resource: ResourceId) -> bool {
        (self.webhooks.is_empty() && self.policies.is_empty())
            || self.survey.catalog.get(resource).is_none_or(|resource| {
                let named = self.named(operation, resource);
                named.webhooks.is_empty() && named.policies.is_empty()
            })
    }

    /// Returns the webhooks that are called, or may be, for this object.
    fn asked(&self, operation: Operation, key: &ObjectKey) -> Vec<(&Webhook<'a>, Answer)> {
        if self.webhooks.is_empty() {
            return Vec::new();
        }
        let Some(resource) = self.survey.catalog.get(key.resource) else { return Vec::new() };
        let named = self.named(operation, resource);
        let all = named.webhooks.iter().filter_map(|place| self.webhooks.get(*place));
        let asked = all.map(|webhook| (webhook, webhook.is_asked(self.facts, resource, key)));
        asked.filter(|(_, answer)| *answer != Answer::No).collect()
    }

    /// Returns the verdicts of policies that do not allow a request.
    fn judged(&self, operation: Operation, key: &ObjectKey) -> Rc<Vec<(usize, Judgement)>> {
        let Some(resource) = self.survey.catalog.get(key.resource).filter(|_| !self.policies.is_empty())
        else {
            return Rc::default();
        };
        let place = (operation, key.clone());
        if let Some(known) = self.judged.borrow().get(&place) {
            return Rc::clone(known);
        }
        let request = PolicyRequest { operation, resource, key };
        let named = self.named(operation, resource);
        let policies = named.policies.iter().filter_map(|place| Some((*place, self.policies.get(*place)?)));
        let judged = policies.map(|(place, policy)| (place, policy.judge(self.facts, self.survey, &request)));
        let judged: Rc<Vec<_>> =
            Rc::new(judged.filter(|(_, judgement)| *judgement != Judgement::Allows).collect());
        self.judged.borrow_mut().insert(place, Rc::clone(&judged));
        judged
    }

    /// Explains why the deletion of this object is certain to fail.
    pub(crate) fn refuses(&self, key: &ObjectKey) -> Option<String> {
        self.refusal(Operation::Delete, key).map(|refusal| refusal.why)
    }

    /// Explains why a request about this object is certain to fail.
    pub(crate) fn refusal(&self, operation: Operation, key: &ObjectKey) -> Option<Refusal> {
        let judged = self.judged(operation, key);
        let by_policy = judged.iter().find_map(|(place, judgement)| match judgement {
            Judgement::Refuses(message) => {
                let policy = self.policies.get(*place)?;
                let (name, binding) = (policy.name().to_owned(), policy.binding().to_owned());
                let why = format!("refused by policy {name}: {message}");
                Some(Refusal { why, by: Refuser::Policy { name, binding } })
            }
            Judgement::Allows | Judgement::Unknown => None,
        });
        by_policy.or_else(|| {
            let refused = self.refused_in(&key.namespace).filter(|_| operation == Operation::Delete);
            self.asked(operation, key).into_iter().find_map(|(webhook, answer)| {
                let why = match webhook.failure(operation) {
                    Some(failure) => Some(failure).filter(|_| answer == Answer::Yes),
                    None => refused.as_ref().filter(|name| **name == webhook.name()).map(|_| {
                        format!("{} has refused deletions in namespace {}", webhook.title(), key.namespace)
                    }),
                };
                Some(Refusal { why: why?, by: Refuser::Webhook(webhook.name().to_owned()) })
            })
        })
    }

    /// Returns the names of the webhooks that are certain to be called for this object.
    pub(crate) fn certain_webhooks(&self, operation: Operation, key: &ObjectKey) -> Vec<&str> {
        let asked = self.asked(operation, key).into_iter();
        asked.filter(|(_, answer)| *answer == Answer::Yes).map(|(webhook, _)| webhook.name()).collect()
    }

    /// Returns the webhooks and policies that decide about the deletion of this object and are not known to refuse it.
    pub(crate) fn decides(&self, key: &ObjectKey) -> Vec<Decider<'_, 'a>> {
        let asked = self.asked(Operation::Delete, key).into_iter();
        let open = asked.filter(|(webhook, answer)| webhook.down.is_none() || *answer == Answer::Perhaps);
        let judged = self.judged(Operation::Delete, key);
        let unknown = judged.iter().filter(|(_, judgement)| *judgement == Judgement::Unknown);
        let policies =
            unknown.filter_map(|(place, _)| Some(Decider::Policy(self.policies.get(*place)?.name())));
        open.map(|(webhook, _)| Decider::Webhook(webhook)).chain(policies).collect()
    }

    /// Returns the webhook that, according to the namespace controller, has refused a deletion in this namespace.
    fn refused_in(&self, namespace: &str) -> Option<String> {
        if self.webhooks.is_empty() || namespace.is_empty() {
            return None;
        }
        let namespaces = GroupResource::new("", "namespaces");
        let id = self.survey.catalog.named(&namespaces)?.id;
        let key = ObjectKey { resource: id, namespace: "".into(), name: namespace.into() };
        self.survey.terminating().get(&key)?;
        let object = self.facts.present(&namespaces, "", namespace)?;
        let message = crate::messages::content_failure(object)?;
        crate::messages::webhook_in(message).map(str::to_owned)
    }
}
