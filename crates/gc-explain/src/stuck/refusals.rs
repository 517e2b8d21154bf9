//! Collector requests that admission refuses, found by evaluating policies and by reading the journal.

use std::collections::BTreeSet;

use gc_ownership::NodeView;
use gc_types::ObjectKey;

use super::apis::NO_LONGER_CHECKED;
use super::{Cause, Code, Diagnosis, Force};
use crate::admission::{GROUP, Operation, POLICIES, Refuser};
use crate::catalog::GroupResource;
use crate::commands::kubectl;
use crate::messages::{policy_in, webhook_in};
use crate::{protect, text};

/// Maximum number of objects that one message names.
const NAMED: usize = 3;

impl Diagnosis<'_> {
    /// Returns the causes that these awaited objects are not deleted or released: one for each policy and webhook. Also returns the
    /// objects that nothing is known to refuse.
    pub(super) fn refusals<'v>(
        &self,
        operation: Operation,
        waited_for: impl Iterator<Item = &'v NodeView>,
    ) -> (Vec<Cause>, Vec<&'v NodeView>) {
        let (mut refused, mut others) = (Vec::<(Cause, Vec<String>)>::new(), Vec::new());
        for view in waited_for {
            let Some(cause) = view.key.as_ref().and_then(|key| self.refused(operation, key, view)) else {
                others.push(view);
                continue;
            };
            let title = format!("{}/{}", view.kind, view.name);
            let known = refused.iter_mut().find(|(known, _)| {
                (known.code, &known.subject, &known.message) == (cause.code, &cause.subject, &cause.message)
            });
            match known {
                Some((_, titles)) => titles.push(title),
                None => refused.push((cause, vec![title])),
            }
        }
        let what = match operation {
            Operation::Delete => "cannot be deleted",
            Operation::Update => "cannot be released from it",
        };
        let named = |(cause, titles): (Cause, Vec<String>)| {
            let message = format!("{} {what}: {}", text::some_of(&titles, NAMED), cause.message);
            Cause { message, ..cause }
        };
        (refused.into_iter().map(named).collect(), others)
    }

    fn refused(&self, operation: Operation, key: &ObjectKey, view: &NodeView) -> Option<Cause> {
        if let Some(message) = self.facts.refused(&view.uid)
            && let Some(cause) = self.refusal_in(message)
        {
            return Some(cause);
        }
        if self.admission().is_free(operation, key.resource) {
            return None;
        }
        let refusal = self.admission().refusal(operation, key)?;
        Some(match refusal.by {
            Refuser::Policy { name, binding } => Self::policy(&name, &binding, refusal.why),
            Refuser::Webhook(name) => self.webhook(&name, &refusal.why),
        })
    }

    /// Returns the cause in the server's error for a request that admission refused.
    pub(super) fn refusal_in(&self, message: &str) -> Option<Cause> {
        if let Some((name, binding, said)) = policy_in(message) {
            return Some(Self::policy(name, binding, format!("refused by policy {name}: {said}")));
        }
        webhook_in(message).map(|webhook| self.webhook(webhook, message))
    }

    fn policy(name: &str, binding: &str, message: String) -> Cause {
        if protect::is_ours(name) {
            return Self::protection(name, message);
        }
        let [policy, bound] = POLICIES.map(|resource| GroupResource::new(GROUP, resource).to_string());
        Cause {
            code: Code::AdmissionPolicyRefuses,
            subject: name.to_owned(),
            message,
            help: vec![kubectl("", &["get", &format!("{policy}/{name}"), "-o", "yaml"])],
            force: Some(Force::new(
                kubectl("", &["delete", &format!("{bound}/{binding}")]),
                NO_LONGER_CHECKED.to_owned(),
            )),
        }
    }

    /// Returns a protection is intentional, so no command is offered to remove it by force.
    fn protection(name: &str, message: String) -> Cause {
        Cause {
            code: Code::Protected,
            subject: name.to_owned(),
            message,
            help: vec!["kubegc protect".to_owned()],
            force: None,
        }
    }

    /// Returns the webhooks that are called for these requests, one of which must be refusing them, if a collector that sends them
    /// is running.
    pub(super) fn suspected<'v>(
        &self,
        operation: Operation,
        waited_for: impl Iterator<Item = &'v NodeView>,
    ) -> Option<Cause> {
        self.collector()?;
        let mut suspects = BTreeSet::new();
        for key in waited_for.filter_map(|view| view.key.as_ref()) {
            suspects.extend(self.admission().certain_webhooks(operation, key).into_iter().map(str::to_owned));
        }
        let webhook = suspects.into_iter().next()?;
        Some(self.webhook(&webhook, &format!("admission webhook \"{webhook}\" denied the request")))
    }
}
