//! Variables of policy and webhook expressions, and the evaluation of their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gc_cel::{Authority, Budget, Check, EvalError, Program, Question, Scope, Val};
use serde_json::Value;

use super::{Attributes, ConditionsReport};
use crate::api::{RequestContext, UserInfo};
use crate::registry::call::Call;

/// Maximum cost of one expression.
const CALL_BUDGET: u64 = 1_000_000;
/// Maximum cost of all expressions of one policy or webhook for one request.
pub(crate) const BUDGET: u64 = 10_000_000;
/// Name under which expressions access the variables of their policy.
const VARIABLES: &str = "variables";
/// The name under which they know the namespace of the request.
const NAMESPACE: &str = "namespaceObject";
const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// Values that expressions may name.
#[derive(Clone, Copy)]
pub(crate) struct Values<'v> {
    pub(crate) object: &'v Value,
    pub(crate) old_object: &'v Value,
    pub(crate) request: &'v Value,
    pub(crate) namespace: &'v Value,
    pub(crate) params: &'v Value,
    pub(crate) asker: &'v Asker<'v>,
}

/// Answers the authorizer checks of expressions.
pub(crate) struct Asker<'c> {
    context: &'c RequestContext<'c>,
    own: Question,
}

impl<'c> Asker<'c> {
    /// Creates an authority for the user of a request.
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
        // The registry does not serve paths, so nothing shows that they may be used.
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
    namespace: &'v Value,
    left: u64,
    /// Expressions of the policy's variables that have no value yet, by index.
    variables: BTreeMap<usize, &'v Value>,
    /// Index of each variable.
    places: BTreeMap<&'v str, usize>,
    failed: BTreeMap<String, String>,
}

impl<'v> Evaluation<'v> {
    pub(crate) fn new(values: &Values<'v>) -> Self {
        let mut scope = Scope::default();
        scope.bind("object", values.object, None);
        scope.bind("oldObject", values.old_object, None);
        scope.bind("request", values.request, None);
        scope.bind(NAMESPACE, values.namespace, None);
        scope.bind("params", values.params, None);
        scope.set("authorizer", Check::authorizer(values.asker, values.asker.own.clone()));
        scope.set_object(VARIABLES);
        Self {
            scope,
            namespace: values.namespace,
            left: BUDGET,
            variables: BTreeMap::new(),
            places: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Creates an evaluation like [`Self::new`], with the budget left by earlier expressions of the same policy.
    pub(crate) fn with_budget(values: &Values<'v>, left: u64) -> Self {
        Self { left, ..Self::new(values) }
    }

    /// Returns the rest of the policy's budget.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Makes the variables of a policy available to expressions. Each is evaluated when the first expression uses it, and fails
    /// there.
    pub(crate) fn define(&mut self, variables: &'v Value) {
        for (place, variable) in variables.as_array().into_iter().flatten().enumerate() {
            self.variables.insert(place, variable);
            self.places.insert(variable["name"].as_str().unwrap_or_default(), place);
        }
    }

    /// Returns the indexes of the variables that an expression uses. Using all of them costs budget in proportion to time.
    fn used(&mut self, program: &Program) -> Vec<usize> {
        let Some(names) = program.fields_of(VARIABLES) else {
            let all: Vec<usize> = self.variables.keys().copied().collect();
            self.left = self.left.saturating_sub(all.len() as u64);
            return all;
        };
        names.iter().filter_map(|name| self.places.get(name)).copied().collect()
    }

    /// Evaluates the variables that an expression uses, after the variables that these use themselves.
    fn evaluate_variables(&mut self, program: &Program) {
        let mut open: BTreeSet<usize> = self.used(program).into_iter().collect();
        let mut needed = BTreeMap::new();
        while let Some(place) = open.pop_last() {
            let Some(variable) = self.variables.remove(&place) else { continue };
            let program = self.compiled(variable["expression"].as_str().unwrap_or_default());
            if let Ok(program) = &program {
                // A variable may only use earlier ones.
                open.extend(self.used(program).into_iter().filter(|used| *used < place));
            }
            needed.insert(place, (variable["name"].as_str().unwrap_or_default(), program));
        }
        for (name, program) in needed.into_values() {
            match program.and_then(|program| self.evaluated(&program)) {
                Ok(value) => self.scope.set_field(name, value),
                Err(why) => drop(self.failed.insert(name.to_owned(), why)),
            }
        }
    }

    /// Compiles a program, at a cost in proportion to time.
    fn compiled(&mut self, text: &str) -> Result<Program, String> {
        /// Number of bytes compiled per step.
        const COMPILED_BYTES: usize = 8;
        let cost = u64::try_from(text.len() / COMPILED_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        self.left = self.left.checked_sub(cost).ok_or_else(|| EXCEEDED.to_owned())?;
        Program::compile(text).map_err(|error| format!("compilation failed: {error}"))
    }

    /// Returns the value of an expression, or the reason why it has none.
    pub(crate) fn value(&mut self, text: &str) -> Result<Val<'v>, String> {
        let program = self.compiled(text)?;
        self.evaluate_variables(&program);
        self.evaluated(&program)
    }

    fn evaluated(&mut self, program: &Program) -> Result<Val<'v>, String> {
        let most = self.left.min(CALL_BUDGET);
        let mut budget = Budget::new(most);
        let found = program.evaluate(&mut self.scope, &mut budget);
        self.left -= most - budget.left();
        found.map_err(|error| match error {
            EvalError::TooExpensive => EXCEEDED.to_owned(),
            EvalError::Failed(why) => {
                let name = why.strip_prefix("no such key: ").unwrap_or_default();
                match self.failed.get(name).filter(|_| program.mentions(VARIABLES)) {
                    Some(cause) => format!("composited variable \"{name}\" fails to evaluate: {cause}"),
                    None => why,
                }
            }
        })
    }

    /// Reports whether an expression is true.
    pub(crate) fn holds(&mut self, text: &str) -> Result<bool, String> {
        match self.value(text)? {
            Val::Bool(truth) => Ok(truth),
            other => Err(format!("a {} where a bool is expected", other.type_name())),
        }
    }

    /// Returns the text of a message expression, if it is valid.
    pub(crate) fn message(&mut self, text: &str) -> Option<String> {
        /// Maximum length of a message in bytes.
        const LONGEST: usize = 5 * 1024;
        match self.value(text) {
            Ok(Val::Text(text)) => {
                let text = text.trim();
                (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then(|| text.to_owned())
            }
            _ => None,
        }
    }

    /// Evaluates match conditions, which upstream shows no namespace.
    fn conditions(&mut self, conditions: &[Value]) -> Conditions {
        static NOTHING: Value = Value::Null;
        self.scope.bind(NAMESPACE, &NOTHING, None);
        let judged = self.judge(conditions);
        self.scope.bind(NAMESPACE, self.namespace, None);
        judged
    }

    fn judge(&mut self, conditions: &[Value]) -> Conditions {
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

/// Result of match conditions.
#[derive(Debug, Default)]
struct Conditions {
    is_one_false: bool,
    /// Errors of the conditions before that one.
    errors: Vec<String>,
}

/// The webhook or policy to which match conditions belong.
pub(crate) struct Conditional<'a> {
    pub(crate) name: &'a str,
    /// `webhook` or `policy`.
    pub(crate) kind: &'static str,
    /// Admission step, as metrics name it.
    pub(crate) step: &'static str,
    /// The policy's `spec`, or the webhook itself.
    pub(crate) spec: &'a Value,
}

impl<'a> Conditional<'a> {
    /// Describes a policy; upstream's metrics do not distinguish mutating ones.
    pub(crate) fn policy(policy: &'a Value) -> Self {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        Self { name, kind: "policy", step: "validate", spec: &policy["spec"] }
    }

    /// Reports whether all match conditions hold. An error matters only if no condition is false and the failure policy does not
    /// ignore it.
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

/// Formats several errors as Go does: without duplicates, in brackets if there are several.
fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    if let [only] = distinct[..] { only.to_owned() } else { format!("[{}]", distinct.join(", ")) }
}
