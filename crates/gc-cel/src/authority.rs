//! Checks by an authorizer.

use std::fmt;
use std::rc::Rc;

use crate::budget::{Budget, failed};
use crate::value::{Evaluation, Val};

/// Cost of one check: an expression can afford two of them.
const CHECK: usize = 350_000;

/// Decides what a user may do.
pub trait Authority {
    /// Reports whether the action is allowed.
    fn allows(&self, question: &Question) -> bool;
}

/// The subject of a check: a resource, or a path that is not a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account to check; the user of the request if there is none.
    pub service_account: Option<(String, String)>,
    /// The path of a non-resource.
    pub path: Option<String>,
    /// The verb.
    pub verb: String,
    /// The group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
}

/// A check under construction.
#[derive(Clone)]
pub struct Check<'v> {
    authority: &'v dyn Authority,
    stage: Stage,
    question: Question,
    /// Check for the resource of the request.
    own: Question,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
}

impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("stage", &self.stage)
            .field("question", &self.question)
            .finish_non_exhaustive()
    }
}

impl<'v> Check<'v> {
    /// Creates an authorizer, whose `requestResource` is `own`.
    #[must_use]
    pub fn authorizer(authority: &'v dyn Authority, own: Question) -> Val<'v> {
        let question = Question::default();
        Val::Check(Rc::new(Self { authority, stage: Stage::Authorizer, question, own }))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }

    fn with(&self, stage: Stage, change: impl FnOnce(&mut Question)) -> Val<'v> {
        let mut next = Self { stage, ..self.clone() };
        change(&mut next.question);
        Val::Check(Rc::new(next))
    }

    /// Returns `authorizer.requestResource`.
    pub(crate) fn member(&self, name: &str) -> Option<Val<'v>> {
        (self.stage == Stage::Authorizer && name == "requestResource")
            .then(|| self.with(Stage::Resource, |question| question.clone_from(&self.own)))
    }
}

/// Calls a function of an authorizer or of a decision.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluation<'v>> {
    let (check, rest) = match arguments {
        [Val::Decision(allowed)] => {
            return match name {
                "allowed" => Some(Ok(Val::Bool(*allowed))),
                "errored" => Some(Ok(Val::Bool(false))),
                "reason" | "error" => Some(Ok(Val::text(""))),
                _ => None,
            };
        }
        [Val::Check(check), rest @ ..] => (check, rest),
        _ => return None,
    };
    Some(match (name, check.stage, rest) {
        ("serviceAccount", Stage::Authorizer, [Val::Text(namespace), Val::Text(name)]) => {
            let account = (namespace.to_string(), name.to_string());
            Ok(check.with(Stage::Authorizer, |question| question.service_account = Some(account)))
        }
        ("path", Stage::Authorizer, [Val::Text(path)]) => {
            Ok(check.with(Stage::Path, |question| question.path = Some(path.to_string())))
        }
        ("group", Stage::Authorizer, [Val::Text(text)]) => {
            Ok(check.with(Stage::Group, |question| question.group = text.to_string()))
        }
        ("resource", Stage::Group, [Val::Text(text)]) => {
            Ok(check.with(Stage::Resource, |question| question.resource = text.to_string()))
        }
        ("subresource", Stage::Resource, [Val::Text(text)]) => {
            Ok(check.with(Stage::Resource, |question| question.subresource = text.to_string()))
        }
        ("namespace", Stage::Resource, [Val::Text(text)]) => {
            Ok(check.with(Stage::Resource, |question| question.namespace = text.to_string()))
        }
        ("name", Stage::Resource, [Val::Text(text)]) => {
            Ok(check.with(Stage::Resource, |question| question.name = text.to_string()))
        }
        // Permissions are not restricted by selectors here.
        ("fieldSelector" | "labelSelector", Stage::Resource, [Val::Text(_)]) => {
            Ok(Val::Check(Rc::clone(check)))
        }
        ("check", Stage::Path | Stage::Resource, [Val::Text(verb)]) => {
            if let Err(error) = budget.spend(CHECK) {
                return Some(Err(error));
            }
            let question = Question { verb: verb.to_string(), ..check.question.clone() };
            Ok(Val::Decision(check.authority.allows(&question)))
        }
        _ => failed("no such overload"),
    })
}
