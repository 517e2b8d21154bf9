//! What expressions of policies and webhooks see, and how their conditions are evaluated.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_cel::{Authority, Budget, Check, EvalError, Program, Question, Scope, Val};
use serde_json::Value;

use super::{Attributes, ConditionsReport};
use crate::api::{RequestContext, UserInfo};
use crate::call::Call;

/// What one expression may cost.
const CALL_BUDGET: u64 = 1_000_000;
/// What all expressions of one policy or webhook may cost for one request.
const BUDGET: u64 = 10_000_000;

/// The values that expressions may name.
#[derive(Clone, Copy)]
pub(crate) struct Values<'v> {
    pub(crate) object: &'v Value,
    pub(crate) old_object: &'v Value,
    pub(crate) request: &'v Value,
    pub(crate) namespace: &'v Value,
    pub(crate) params: &'v Value,
    pub(crate) asker: &'v Asker<'v>,
}

/// Answers what expressions ask of the authorizer.
pub(crate) struct Asker<'c> {
    context: &'c RequestContext<'c>,
    own: Question,
}

impl<'c> Asker<'c> {
    /// Asks about the user of a request.
    pub(crate) fn new(call: &Call<'c>, attributes: &Attributes) -> Self {
        let own = Question {
            group: attributes.resource.group.to_string(),
            resource: attributes.resource.resource.to_string(),
            subresource: attributes.subresource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            ..Question::default()
        };
        Self { context: call.context, own }
    }
}

impl Authority for Asker<'_> {
    fn allows(&self, question: &Question) -> bool {
        // Paths are not served by the registry: nothing says that they may be used.
        if question.path.is_some() {
            return false;
        }
        let account = question.service_account.as_ref().map(|(namespace, name)| UserInfo {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            ..UserInfo::default()
        });
        let attributes = crate::api::Attributes {
            verb: &question.verb,
            group: &question.group,
            version: "*",
            resource: &question.resource,
            subresource: &question.subresource,
            namespace: &question.namespace,
            name: &question.name,
        };
        self.context.authorizer.allows(account.as_ref().unwrap_or(self.context.user), &attributes)
    }
}

/// Evaluates the expressions of one policy or webhook.
pub(crate) struct Evaluation<'v> {
    scope: Scope<'v>,
    left: u64,
    variables: Vec<(String, Val<'v>)>,
    failed: BTreeMap<String, String>,
}

impl<'v> Evaluation<'v> {
    pub(crate) fn new(values: &Values<'v>) -> Self {
        let mut scope = Scope::default();
        scope.bind("object", values.object, None);
        scope.bind("oldObject", values.old_object, None);
        scope.bind("request", values.request, None);
        scope.bind("namespaceObject", values.namespace, None);
        scope.bind("params", values.params, None);
        scope.set("authorizer", Check::authorizer(values.asker, values.asker.own.clone()));
        scope.set("variables", Val::map(Vec::new()));
        Self { scope, left: BUDGET, variables: Vec::new(), failed: BTreeMap::new() }
    }

    /// Evaluates the variables of a policy in their order. One that fails does so where it is used.
    pub(crate) fn define(&mut self, variables: &Value) {
        for variable in variables.as_array().into_iter().flatten() {
            let text = |key: &str| variable[key].as_str().unwrap_or_default();
            match self.value(text("expression")) {
                Ok(value) => self.variables.push((text("name").to_owned(), value)),
                Err(why) => drop(self.failed.insert(text("name").to_owned(), why)),
            }
            let entries = self.variables.iter().map(|(name, value)| (Val::text(name), value.clone()));
            self.scope.set("variables", Val::map(entries.collect()));
        }
    }

    /// The value of an expression, or why it has none.
    pub(crate) fn value(&mut self, text: &str) -> Result<Val<'v>, String> {
        let program = Program::compile(text).map_err(|error| format!("compilation failed: {error}"))?;
        let most = self.left.min(CALL_BUDGET);
        let mut budget = Budget::new(most);
        let found = program.evaluate(&mut self.scope, &mut budget);
        self.left -= most - budget.left();
        found.map_err(|error| match error {
            EvalError::TooExpensive => "operation cancelled: actual cost limit exceeded".to_owned(),
            EvalError::Failed(why) => {
                let name = why.strip_prefix("no such key: ").unwrap_or_default();
                match self.failed.get(name).filter(|_| text.contains("variables.")) {
                    Some(cause) => format!("composited variable \"{name}\" fails to evaluate: {cause}"),
                    None => why,
                }
            }
        })
    }

    /// Whether an expression holds.
    pub(crate) fn holds(&mut self, text: &str) -> Result<bool, String> {
        match self.value(text)? {
            Val::Bool(truth) => Ok(truth),
            other => Err(format!("a {} where a bool is expected", other.type_name())),
        }
    }

    /// The text that a message expression makes, if it makes a good one.
    pub(crate) fn message(&mut self, text: &str) -> Option<String> {
        /// Longest message in bytes.
        const LONGEST: usize = 5 * 1024;
        match self.value(text) {
            Ok(Val::Text(text)) => {
                let text = text.trim();
                (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then(|| text.to_owned())
            }
            _ => None,
        }
    }

    /// Evaluates match conditions.
    fn conditions(&mut self, conditions: &[Value]) -> Conditions {
        let mut judged = Conditions::default();
        for condition in conditions {
            match self.holds(condition["expression"].as_str().unwrap_or_default()) {
                Ok(true) => {}
                Ok(false) => {
                    judged.is_one_false = true;
                    break;
                }
                Err(why) => judged.errors.push(why),
            }
        }
        judged
    }
}

/// The result of match conditions.
#[derive(Debug, Default)]
struct Conditions {
    is_one_false: bool,
    /// Why the conditions before that one could not be evaluated.
    errors: Vec<String>,
}

/// The webhook or policy whose match conditions are evaluated.
pub(crate) struct Conditional<'a> {
    pub(crate) name: &'a str,
    /// `webhook` or `policy`.
    pub(crate) kind: &'static str,
    /// When it is asked, as metrics name it.
    pub(crate) step: &'static str,
    /// Its `spec`, or the webhook itself.
    pub(crate) spec: &'a Value,
}

impl<'a> Conditional<'a> {
    /// A policy, which mutating ones are too in upstream's metrics.
    pub(crate) fn policy(policy: &'a Value) -> Self {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        Self { name, kind: "policy", step: "validate", spec: &policy["spec"] }
    }

    /// Whether all match conditions hold. An error counts only where no condition is false, and where the failure policy
    /// does not ignore it.
    pub(crate) fn holds(
        &self,
        call: &Call<'_>,
        attributes: &Attributes,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<bool, String> {
        let conditions = self.spec["matchConditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if conditions.is_empty() {
            return Ok(true);
        }
        let outside = call.registry.outside();
        let mut judged = Conditions::default();
        let mut judge = || judged = evaluation.conditions(conditions);
        let took = match &outside {
            Some(outside) => outside.timed(&mut judge),
            None => {
                judge();
                Duration::ZERO
            }
        };
        let Conditions { is_one_false, errors } = judged;
        let is_ignored = self.spec["failurePolicy"] == "Ignore";
        let holds = !is_one_false && errors.is_empty();
        if let Some(outside) = outside {
            outside.report_conditions(ConditionsReport {
                name: self.name.to_owned(),
                kind: self.kind,
                step: self.step,
                operation: attributes.operation.as_str(),
                errors: errors.len(),
                is_excluded: self.kind == "webhook" && (is_one_false || !errors.is_empty() && is_ignored),
                took: (!holds).then_some(took),
            });
        }
        if holds || is_one_false || is_ignored { Ok(holds) } else { Err(aggregate(&errors)) }
    }
}

/// Several errors in Go's words: each once, in brackets if there are several.
fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    if let [only] = distinct[..] { only.to_owned() } else { format!("[{}]", distinct.join(", ")) }
}
