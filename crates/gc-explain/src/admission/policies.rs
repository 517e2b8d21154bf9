//! ValidatingAdmissionPolicies that refuse requests of a deletion, evaluated as the server evaluates them.
//!
//! Some cannot be evaluated here: their parameters may not be readable, the authorizer is not consulted, and the user as which a
//! collector authenticates is not known. Those are reported as policies that may refuse.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gc_cel::{Budget, Program, Scope};
use gc_types::ObjectKey;
use serde_json::{Value, json};

use super::POLICIES;
use super::rules::{GROUP, Operation, Rules, is_everything, selects, takes_operation};
use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::survey::Survey;

/// Maximum cost of one expression.
const CALL_BUDGET: u64 = 1_000_000;
/// Name under which expressions access the variables of their policy.
const VARIABLES: &str = "variables";
/// A value that expressions are not shown.
static NOTHING: Value = Value::Null;
/// Names of request attributes that are not known here.
const UNKNOWN: [&str; 4] = ["authorizer", "userInfo", "options", "dryRun"];

/// Verdict of a policy on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Does not apply to the request, or allows it.
    Allows,
    /// Cannot be evaluated.
    Unknown,
    /// Refuses the request, with this message.
    Refuses(String),
}

/// A policy with one of its bindings that denies.
pub(super) struct BoundPolicy<'a> {
    policy: &'a Object,
    binding: &'a Object,
    compiled: RefCell<BTreeMap<&'a str, Option<Rc<Program>>>>,
}

/// Returns every policy with a binding that denies.
pub(super) fn policies<'a>(survey: &Survey, facts: &'a Facts) -> Vec<BoundPolicy<'a>> {
    let list = |resource: &str| {
        let resource = GroupResource::new(GROUP, resource);
        // Older servers do not serve these policies.
        survey.catalog.named(&resource)?;
        facts.list(&resource, "")?.present()
    };
    let [policies, bindings] = POLICIES;
    let Some(policies) = list(policies).filter(|policies| !policies.is_empty()) else {
        return Vec::new();
    };
    let Some(bindings) = list(bindings) else { return Vec::new() };
    let denies = |binding: &&Object| {
        let mut actions = binding.texts("/spec/validationActions").peekable();
        actions.peek().is_none() || actions.any(|action| action == "Deny")
    };
    let bindings = bindings.iter().filter(denies);
    bindings
        .filter_map(|binding| {
            let policy = policies.iter().find(|policy| policy.name() == binding.text("/spec/policyName"))?;
            Some(BoundPolicy { policy, binding, compiled: RefCell::default() })
        })
        .collect()
}

/// Returns a field as text; empty if it is not a string.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the parameters that a binding refers to; `None` if they cannot be read.
fn selected(facts: &Facts, resource: &Resource, namespace: &str, reference: &Value) -> Option<Vec<Value>> {
    let name = text(reference, "name");
    if name.is_empty() {
        let Some(Knowledge::Present(all)) = facts.list(&resource.name, namespace) else { return None };
        let selector = &reference["selector"];
        let is_selected = |object: &&Object| is_everything(selector) || selects(selector, labels(object));
        return Some(all.iter().filter(is_selected).map(|object| object.value().clone()).collect());
    }
    match facts.object(&resource.name, namespace, name) {
        Some(Knowledge::Present(object)) => Some(vec![object.value().clone()]),
        Some(Knowledge::Absent) => Some(Vec::new()),
        Some(Knowledge::Unreadable(_)) | None => None,
    }
}

/// One request, as policies see it.
pub(super) struct PolicyRequest<'r> {
    pub(super) operation: Operation,
    pub(super) resource: &'r Resource,
    pub(super) key: &'r ObjectKey,
}

impl<'a> BoundPolicy<'a> {
    /// Returns the name.
    pub(super) fn name(&self) -> &'a str {
        self.policy.name()
    }

    /// Returns the name of its binding.
    pub(super) fn binding(&self) -> &'a str {
        self.binding.name()
    }

    /// Reports whether its rules match this operation on this resource.
    pub(super) fn names(&self, operation: Operation, resource: &Resource) -> bool {
        let named = |constraints: &Value| {
            let rules = Rules {
                rules: &constraints["resourceRules"],
                is_exact: constraints["matchPolicy"] == "Exact",
            };
            rules.are_empty() || rules.name(operation, resource, None)
        };
        named(&self.policy.value()["spec"]["matchConstraints"])
            && named(&self.binding.value()["spec"]["matchResources"])
    }

    /// Evaluates the policy for a request.
    pub(super) fn judge(&self, facts: &Facts, catalog: &Survey, request: &PolicyRequest<'_>) -> Judgement {
        let mut is_uncertain = false;
        let spec = &self.policy.value()["spec"];
        for constraints in [&spec["matchConstraints"], &self.binding.value()["spec"]["matchResources"]] {
            match Self::takes(facts, constraints, request) {
                Some(true) => {}
                Some(false) => return Judgement::Allows,
                None => is_uncertain = true,
            }
        }
        if is_uncertain {
            return Judgement::Unknown;
        }
        let old = if self.needs_object() {
            match object(facts, request) {
                Some(Knowledge::Present(object)) => whole(object, request.resource),
                // An object that is already deleted needs no deletion.
                Some(Knowledge::Absent) => return Judgement::Allows,
                Some(Knowledge::Unreadable(_)) | None => return Judgement::Unknown,
            }
        } else {
            Value::Null
        };
        let Some(namespace) = self.namespace(facts, request) else { return Judgement::Unknown };
        let fails = spec["failurePolicy"] != "Ignore";
        let params = match self.params(facts, catalog, request) {
            Params::Found(params) => params,
            Params::Missing(why) if fails => return Judgement::Refuses(why),
            Params::Missing(_) => return Judgement::Allows,
            Params::Unreadable => return Judgement::Unknown,
        };
        let shown = shown(request);
        let new = match request.operation {
            Operation::Delete => Value::Null,
            Operation::Update => without_owners(&old),
        };
        let mut judged = Judgement::Allows;
        for params in &params {
            let documents =
                Documents { object: &new, old: &old, request: &shown, namespace: &namespace, params };
            match self.evaluate(&documents, fails) {
                Judgement::Allows => {}
                Judgement::Unknown => judged = Judgement::Unknown,
                refusal @ Judgement::Refuses(_) => return refusal,
            }
        }
        judged
    }

    /// Reports whether match constraints select a request; `None` if that cannot be determined.
    fn takes(facts: &Facts, constraints: &Value, request: &PolicyRequest<'_>) -> Option<bool> {
        let PolicyRequest { operation, resource, key } = *request;
        let is_exact = constraints["matchPolicy"] == "Exact";
        let rules = |field: &str| Rules { rules: &constraints[field], is_exact };
        if rules("excludeResourceRules").name(operation, resource, Some(&key.name)) {
            return Some(false);
        }
        let included = rules("resourceRules");
        if !included.are_empty() && !included.name(operation, resource, Some(&key.name)) {
            return Some(false);
        }
        if !is_everything(&constraints["namespaceSelector"])
            && let Some(name) = namespace_of(request)
        {
            let namespaces = GroupResource::new("", "namespaces");
            match facts.object(&namespaces, "", name)? {
                Knowledge::Present(namespace) => {
                    if !selects(&constraints["namespaceSelector"], labels(namespace)) {
                        return Some(false);
                    }
                }
                Knowledge::Absent | Knowledge::Unreadable(_) => return None,
            }
        }
        if !is_everything(&constraints["objectSelector"]) {
            match object(facts, request)? {
                Knowledge::Present(object) => {
                    if !selects(&constraints["objectSelector"], labels(object)) {
                        return Some(false);
                    }
                }
                Knowledge::Absent => return Some(false),
                Knowledge::Unreadable(_) => return None,
            }
        }
        Some(true)
    }

    /// Returns all its expressions.
    fn expressions(&self) -> impl Iterator<Item = &'a str> {
        let policy = self.policy;
        let of = move |list: &'static str, field: &'static str| {
            policy.items(list).filter_map(move |item| item[field].as_str())
        };
        of("/spec/matchConditions", "expression")
            .chain(of("/spec/variables", "expression"))
            .chain(of("/spec/validations", "expression"))
            .chain(of("/spec/validations", "messageExpression"))
    }

    fn needs_object(&self) -> bool {
        self.uses("oldObject") || self.uses("object")
    }

    fn uses(&self, name: &str) -> bool {
        self.expressions().any(|text| {
            self.compiled(text).is_some_and(|program| program.free_names().iter().any(|free| free == name))
        })
    }

    /// Returns the namespace of the request as expressions see it; `None` if it cannot be read.
    fn namespace(&self, facts: &Facts, request: &PolicyRequest<'_>) -> Option<Value> {
        let Some(name) = namespace_of(request).filter(|_| self.uses("namespaceObject")) else {
            return Some(Value::Null);
        };
        let found = facts.object(&GroupResource::new("", "namespaces"), "", name)?.present()?;
        let mut namespace = found.value().clone();
        namespace["apiVersion"] = "v1".into();
        namespace["kind"] = "Namespace".into();
        Some(namespace)
    }

    fn params(&self, facts: &Facts, survey: &Survey, request: &PolicyRequest<'_>) -> Params {
        let kind = &self.policy.value()["spec"]["paramKind"];
        let reference = &self.binding.value()["spec"]["paramRef"];
        if kind.is_null() || reference.is_null() {
            return Params::Found(vec![Value::Null]);
        }
        let (api_version, kind) = (text(kind, "apiVersion"), text(kind, "kind"));
        let Some(resource) = survey.catalog.of_kind(api_version, kind) else {
            if !survey.catalog.failed.is_empty() {
                return Params::Unreadable;
            }
            let why = format!(
                "failed to configure policy: failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"
            );
            return Params::Missing(why);
        };
        let namespace = match (resource.is_namespaced(), text(reference, "namespace")) {
            (false, _) => "",
            (true, "") => &request.key.namespace,
            (true, named) => named,
        };
        if resource.is_namespaced() && namespace.is_empty() {
            let why = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches \
                       cluster-scoped resources";
            return Params::Missing(why.to_owned());
        }
        let Some(found) = selected(facts, resource, namespace, reference) else { return Params::Unreadable };
        if found.is_empty() && reference["parameterNotFoundAction"] != "Allow" {
            let why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
            return Params::Missing(why.to_owned());
        }
        Params::Found(found)
    }

    /// Explains why every deletion the policy applies to fails, if that is certain because its parameters do not exist.
    pub(super) fn failure(&self, facts: &Facts, survey: &Survey) -> Option<String> {
        let spec = &self.policy.value()["spec"];
        let rules = &spec["matchConstraints"]["resourceRules"];
        let (kind, reference) = (&spec["paramKind"], &self.binding.value()["spec"]["paramRef"]);
        if spec["failurePolicy"] == "Ignore"
            || kind.is_null()
            || reference.is_null()
            || !takes_operation(rules, Operation::Delete)
        {
            return None;
        }
        let (api_version, kind) = (text(kind, "apiVersion"), text(kind, "kind"));
        let Some(resource) = survey.catalog.of_kind(api_version, kind) else {
            let is_certain = survey.catalog.failed.is_empty();
            return is_certain
                .then(|| format!("its parameters are {kind}s of {api_version}, which are not served"));
        };
        let namespace = if resource.is_namespaced() { text(reference, "namespace") } else { "" };
        // The parameters of a namespaced resource are otherwise in the namespace of each request.
        if resource.is_namespaced() && namespace.is_empty() {
            return None;
        }
        let is_missing = selected(facts, resource, namespace, reference)?.is_empty();
        let is_needed = reference["parameterNotFoundAction"] != "Allow";
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let what = match text(reference, "name") {
            "" => format!("no {kind}{place} has the labels of its parameters"),
            name => format!("its parameters, {kind}/{name}{place}, do not exist"),
        };
        (is_missing && is_needed).then_some(what)
    }

    /// Returns the policy.
    pub(super) const fn policy(&self) -> &'a Object {
        self.policy
    }

    fn compiled(&self, text: &'a str) -> Option<Rc<Program>> {
        let mut compiled = self.compiled.borrow_mut();
        compiled.entry(text).or_insert_with(|| Program::compile(text).ok().map(Rc::new)).clone()
    }

    fn evaluate(&self, documents: &Documents<'_>, fails: bool) -> Judgement {
        let mut evaluation = PolicyEvaluation::new(self, documents);
        let mut is_uncertain = false;
        let mut failure = None;
        // The server shows no namespace to these.
        evaluation.scope.bind("namespaceObject", &NOTHING, None);
        for condition in self.policy.items("/spec/matchConditions") {
            match evaluation.holds(condition["expression"].as_str().unwrap_or_default()) {
                Truth::Known(true) => {}
                Truth::Known(false) => return Judgement::Allows,
                Truth::Failed(why) => failure = Some(why),
                Truth::Unknown => is_uncertain = true,
            }
        }
        match failure {
            _ if is_uncertain => return Judgement::Unknown,
            Some(why) if fails => return Judgement::Refuses(why),
            Some(_) => return Judgement::Allows,
            None => {}
        }
        evaluation.scope.bind("namespaceObject", documents.namespace, None);
        for validation in self.policy.items("/spec/validations") {
            let text =
                |field: &str| validation[field].as_str().map(str::trim).filter(|text| !text.is_empty());
            let expression = text("expression").unwrap_or_default();
            match evaluation.holds(validation["expression"].as_str().unwrap_or_default()) {
                Truth::Known(false) => {
                    let made =
                        validation["messageExpression"].as_str().and_then(|text| evaluation.message(text));
                    let message = made.or_else(|| text("message").map(str::to_owned));
                    return Judgement::Refuses(
                        message.unwrap_or_else(|| format!("failed expression: {expression}")),
                    );
                }
                Truth::Failed(why) if fails => {
                    return Judgement::Refuses(format!("expression '{expression}' resulted in error: {why}"));
                }
                Truth::Known(true) | Truth::Failed(_) => {}
                Truth::Unknown => is_uncertain = true,
            }
        }
        if is_uncertain { Judgement::Unknown } else { Judgement::Allows }
    }
}

/// Parameters of a policy.
enum Params {
    Found(Vec<Value>),
    /// Do not exist, and their absence refuses the request.
    Missing(String),
    Unreadable,
}

/// Returns the namespace whose labels are matched; for a Namespace, the object itself.
fn namespace_of<'r>(request: &PolicyRequest<'r>) -> Option<&'r str> {
    let name = &request.resource.name;
    let is_namespace = name.group.is_empty() && *name.resource == *"namespaces";
    Some(&**if is_namespace { &request.key.name } else { &request.key.namespace })
        .filter(|name| !name.is_empty())
}

/// Returns the object of a request. One list reads all objects of its namespace.
fn object<'f>(facts: &'f Facts, request: &PolicyRequest<'_>) -> Option<&'f Knowledge<Object>> {
    let PolicyRequest { resource, key, .. } = request;
    if !key.namespace.is_empty() && facts.list(&resource.name, &key.namespace)?.present().is_none() {
        // A user who may not list may still get single objects.
        return facts.object(&resource.name, &key.namespace, &key.name);
    }
    facts.object(&resource.name, &key.namespace, &key.name)
}

/// Returns an object with its kind, which items of lists lack.
fn whole(object: &Object, resource: &Resource) -> Value {
    let mut value = object.value().clone();
    value["apiVersion"] = resource.api_version().into();
    value["kind"] = (&*resource.kind).into();
    value
}

/// Returns an object as it is after its owner references have been removed.
fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    object
}

fn labels(object: &Object) -> &Value {
    &object.value()["metadata"]["labels"]
}

/// Returns the `request` of an AdmissionReview, without the attributes that are not known.
fn shown(request: &PolicyRequest<'_>) -> Value {
    let PolicyRequest { operation, resource, key } = request;
    let (group, version) = (&*resource.name.group, &*resource.version);
    let kind = json!({"group": group, "version": version, "kind": &*resource.kind});
    let name = json!({"group": group, "version": version, "resource": &*resource.name.resource});
    let mut shown = json!({
        "uid": "", "kind": kind, "resource": name, "requestKind": kind, "requestResource": name,
        "operation": operation.name(), "name": &*key.name,
    });
    if !key.namespace.is_empty() {
        shown["namespace"] = (&*key.namespace).into();
    }
    shown
}

/// Documents that expressions can access.
struct Documents<'v> {
    object: &'v Value,
    old: &'v Value,
    request: &'v Value,
    namespace: &'v Value,
    params: &'v Value,
}

/// The value of a condition.
enum Truth {
    Known(bool),
    Failed(String),
    Unknown,
}

/// Evaluation of one policy's expressions for one request.
struct PolicyEvaluation<'p, 'a, 'v> {
    policy: &'p BoundPolicy<'a>,
    scope: Scope<'v>,
    /// Names of variables that depend on unknown attributes.
    unknown: Vec<&'a str>,
    /// Errors of the other variables that have no value.
    failed: BTreeMap<&'a str, String>,
}

impl<'p, 'a, 'v> PolicyEvaluation<'p, 'a, 'v> {
    fn new(policy: &'p BoundPolicy<'a>, documents: &Documents<'v>) -> Self {
        let mut scope = Scope::default();
        scope.bind("object", documents.object, None);
        scope.bind("oldObject", documents.old, None);
        scope.bind("request", documents.request, None);
        scope.bind("namespaceObject", documents.namespace, None);
        scope.bind("params", documents.params, None);
        scope.set_object(VARIABLES);
        let mut evaluation = Self { policy, scope, unknown: Vec::new(), failed: BTreeMap::new() };
        evaluation.define();
        evaluation
    }

    /// Evaluates the variables in order: each may use those before it.
    fn define(&mut self) {
        for variable in self.policy.policy.items("/spec/variables") {
            let name = variable["name"].as_str().unwrap_or_default();
            let Some(program) = self.policy.compiled(variable["expression"].as_str().unwrap_or_default())
            else {
                self.unknown.push(name);
                continue;
            };
            if self.is_unknown(&program) {
                self.unknown.push(name);
                continue;
            }
            match program.evaluate(&mut self.scope, &mut Budget::new(CALL_BUDGET)) {
                Ok(value) => self.scope.set_field(name, value),
                Err(why) => drop(self.failed.insert(name, why.to_string())),
            }
        }
    }

    fn is_unknown(&self, program: &Program) -> bool {
        UNKNOWN.iter().any(|name| program.mentions(name))
            || (program.mentions(VARIABLES) && self.unknown.iter().any(|name| program.mentions(name)))
    }

    fn holds(&mut self, text: &'a str) -> Truth {
        let Some(program) = self.policy.compiled(text) else { return Truth::Unknown };
        if self.is_unknown(&program) {
            return Truth::Unknown;
        }
        match program.holds(&mut self.scope, &mut Budget::new(CALL_BUDGET)) {
            Ok(truth) => Truth::Known(truth),
            Err(why) => {
                let why = why.to_string();
                let name = why.strip_prefix("no such key: ").unwrap_or_default();
                match self.failed.get(name).filter(|_| program.mentions(VARIABLES)) {
                    Some(cause) => {
                        Truth::Failed(format!("composited variable \"{name}\" fails to evaluate: {cause}"))
                    }
                    None => Truth::Failed(why),
                }
            }
        }
    }

    /// Returns the text that a message expression evaluates to, if it is valid.
    fn message(&mut self, text: &'a str) -> Option<String> {
        let program = self.policy.compiled(text).filter(|program| !self.is_unknown(program))?;
        match program.evaluate(&mut self.scope, &mut Budget::new(CALL_BUDGET)).ok()? {
            gc_cel::Val::Text(text) => {
                let text = text.trim();
                (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
            }
            _ => None,
        }
    }
}
