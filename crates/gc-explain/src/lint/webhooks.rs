//! Admission webhooks and policies that fail every request they apply to.

use super::{Code, Linter};
pub(super) use crate::admission::{CONFIGURATIONS, POLICIES};
use crate::admission::{GROUP, Operation, failing_policies, webhooks};
use crate::stuck::Place;

impl Linter<'_> {
    /// Reports webhooks that block deletions in every namespace, as findings about the whole cluster.
    pub(super) fn webhooks(&mut self) {
        if !self.namespace.is_empty() {
            return;
        }
        let facts = self.facts;
        for webhook in webhooks(facts).into_iter().filter(|webhook| webhook.takes(Operation::Delete)) {
            let Some(down) = webhook.down.clone() else { continue };
            let place = self.place(GROUP, webhook.resource, webhook.configuration);
            let (title, subject) =
                (webhook.title(), format!("{}/{}", webhook.configuration.name(), webhook.name()));
            let message = move |_| format!("{title} fails every deletion that it is asked about → {down}");
            let advice = |first: &Place| {
                format!(
                    "start what it calls; `kubectl delete {}` ends the checks as well as the failures",
                    first.reference()
                )
            };
            self.add(Code::FailingWebhook, &subject, place, message, advice);
        }
    }

    /// Reports policies that refuse all deletions because their parameters do not exist.
    pub(super) fn policies(&mut self) {
        if !self.namespace.is_empty() {
            return;
        }
        let (survey, facts) = (self.survey, self.facts);
        for failing in failing_policies(survey, facts) {
            let [policies, bindings] = POLICIES;
            let place = self.place(GROUP, policies, failing.policy);
            let (name, binding) = (failing.policy.name().to_owned(), failing.binding.to_owned());
            let subject = format!("{name}/{binding}");
            let message = move |_| {
                format!("policy {name} fails every deletion that it is asked about → {}", failing.why)
            };
            let advice = move |_: &Place| {
                format!(
                    "create them; `kubectl delete {bindings}.{GROUP}/{binding}` ends the checks as well as the failures"
                )
            };
            self.add(Code::FailingPolicy, &subject, place, message, advice);
        }
    }
}
