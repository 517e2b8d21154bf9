//! Validation of a definition's rules when it is written: they must compile, match the schema, and stay within the cost limits.

use std::sync::Arc;

use gc_cel::{DeclaredType, Environment, Program, Shape, Type};
use serde_json::{Map, Value};

use super::declare::{declared, is_embedded};
use crate::crd::field::{forbidden, invalid, invalid_text};
use crate::error::{CauseReason, FieldError};

type Source = Map<String, Value>;

/// Maximum estimated cost of one rule, over all values that it is evaluated for.
const RULE_COST_LIMIT: u64 = 10_000_000;
/// Maximum estimated cost of all rules of one schema.
const SCHEMA_COST_LIMIT: u64 = 100_000_000;
/// Number of the most expensive rules to name if the schema costs too much.
const MOST_EXPENSIVE_NAMED: usize = 4;

/// Checks all rules of a structural schema. Rules below a schema error are not checked.
pub(in crate::crd) fn check_rules(source: &Source, path: &str, known: &[FieldError]) -> Vec<FieldError> {
    let mut checker = Checker { known, problems: Vec::new(), total: 0, expensive: Vec::new() };
    let place = SchemaPosition { declared: None, in_scope: false, most: Some(1), uncorrelatable: None };
    checker.visit(source, path, &place, true);
    if checker.total > SCHEMA_COST_LIMIT {
        for (path, _) in &checker.expensive {
            let why =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            checker.problems.push(forbidden(path.clone(), why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        checker.problems.push(forbidden(path, &too_expensive(what, checker.total, SCHEMA_COST_LIMIT)));
    }
    checker.problems
}

/// Facts about the position of a schema.
#[derive(Clone)]
struct SchemaPosition {
    /// Declaration of the values, once a rule above needs it.
    declared: Option<Arc<DeclaredType>>,
    /// True if there is a rule above this position.
    in_scope: bool,
    /// Maximum number of values; `None` if the schemas above have no limit.
    most: Option<u64>,
    /// Nearest position above whose parts cannot be matched between two states of an object.
    uncorrelatable: Option<String>,
}

struct Checker<'p> {
    known: &'p [FieldError],
    problems: Vec<FieldError>,
    total: u64,
    expensive: Vec<(String, u64)>,
}

impl Checker<'_> {
    fn visit(&mut self, source: &Source, path: &str, place: &SchemaPosition, is_root: bool) {
        let rules = source.get("x-kubernetes-validations").and_then(Value::as_array);
        let has_rules = rules.is_some_and(|rules| !rules.is_empty());
        let mut place = place.clone();
        place.in_scope |= has_rules;
        if place.in_scope && place.declared.is_none() {
            place.declared = declared(source, is_root || is_embedded(source));
        }
        let below = SchemaPosition {
            most: place.most.and_then(|most| times(most, elements(source))),
            ..place.clone()
        };
        let shape = place.declared.as_ref().map(|declared| declared.shape.clone());
        if let Some(values) = source.get("additionalProperties").and_then(Value::as_object) {
            let declared = match &shape {
                Some(Shape::Map(values)) => Some(Arc::clone(values)),
                _ => None,
            };
            let place = SchemaPosition { declared, ..below.clone() };
            self.visit(values, &format!("{path}.additionalProperties"), &place, false);
        }
        for (name, property) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let Some(property) = property.as_object() else { continue };
            let declared = match &shape {
                Some(Shape::Object(fields)) => fields.get(name).cloned(),
                _ => None,
            };
            let place = SchemaPosition { declared, ..below.clone() };
            self.visit(property, &format!("{path}.properties[{name}]"), &place, false);
        }
        if let Some(items) = source.get("items").and_then(Value::as_object) {
            let declared = match &shape {
                Some(Shape::List(items)) => Some(Arc::clone(items)),
                _ => None,
            };
            let mut place = SchemaPosition { declared, ..below };
            if source.get("x-kubernetes-list-type").is_none_or(|list_type| *list_type != "map") {
                place.uncorrelatable.get_or_insert_with(|| path.to_owned());
            }
            self.visit(items, &format!("{path}.items"), &place, false);
        }
        let is_sound = || !self.known.iter().any(|problem| problem.field.starts_with(path));
        if let Some(rules) = rules.filter(|rules| !rules.is_empty())
            && is_sound()
        {
            self.rules(rules, path, &place);
        }
    }

    fn rules(&mut self, rules: &[Value], path: &str, place: &SchemaPosition) {
        let path = format!("{path}.x-kubernetes-validations");
        let Some(declared) = &place.declared else {
            let detail = "Internal error: internal error: failed to construct type information for \
                          x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.problems.push(FieldError {
                field: path,
                reason: CauseReason::Invalid,
                detail: detail.to_owned(),
            });
            return;
        };
        let own = declared.to_type("selfType");
        let environment = |optional: bool| {
            let old = if optional { Type::optional(own.clone()) } else { own.clone() };
            Environment::default().with("self", own.clone()).with("oldSelf", old)
        };
        let environments = [environment(false), environment(true)];
        let most = place.most.unwrap_or_else(|| declared.most_in_request());
        for (index, rule) in rules.iter().enumerate() {
            let environment = &environments[usize::from(rule["optionalOldSelf"] == true)];
            self.rule(rule, &format!("{path}[{index}]"), environment, declared, most, place);
        }
    }

    fn rule(
        &mut self,
        rule: &Value,
        path: &str,
        environment: &Environment,
        declared: &DeclaredType,
        most: u64,
        place: &SchemaPosition,
    ) {
        let text = rule["rule"].as_str().unwrap_or_default();
        let rule_path = format!("{path}.rule");
        if text.trim().is_empty() {
            return;
        }
        let checked = Program::check(text, environment, Some(declared))
            .map_err(|error| format!("compilation failed: {error}"))
            .and_then(|checked| match checked.result {
                Type::Bool => Ok(checked),
                _ => Err("cel expression must evaluate to a bool".to_owned()),
            });
        let uses_old = match checked {
            Ok(checked) => {
                self.spend("estimated rule cost", &rule_path, checked.most_cost.saturating_mul(most));
                self.message(rule, path, environment, declared);
                checked.program.mentions("oldSelf")
            }
            Err(why) => {
                self.problems.push(bad_rule(rule_path.clone(), rule, &why));
                false
            }
        };
        match (&place.uncorrelatable, uses_old) {
            (Some(within), true) => {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                );
                self.problems.push(invalid_text(rule_path, text, &why));
            }
            (_, false) if !rule["optionalOldSelf"].is_null() => {
                let why = "may not be set if oldSelf is not used in rule";
                self.problems.push(invalid(format!("{path}.optionalOldSelf"), &rule["optionalOldSelf"], why));
            }
            _ => {}
        }
    }

    fn message(&mut self, rule: &Value, path: &str, environment: &Environment, declared: &DeclaredType) {
        let path = format!("{path}.messageExpression");
        let Some(text) = rule["messageExpression"].as_str().filter(|text| !text.is_empty()) else { return };
        match Program::check(text, environment, Some(declared)) {
            Err(error) => {
                let why = format!("messageExpression compilation failed: {error}");
                self.problems.push(bad_rule(path, rule, &why));
            }
            Ok(checked) if checked.result != Type::Text => {
                self.problems.push(bad_rule(path, rule, "messageExpression must evaluate to a string"));
            }
            // Upstream compares the cost of a single message with the limit, however many there may be.
            Ok(checked) => self.spend("estimated messageExpression cost", &path, checked.most_cost),
        }
    }

    fn spend(&mut self, what: &str, path: &str, cost: u64) {
        if cost > RULE_COST_LIMIT {
            self.problems.push(forbidden(path, &too_expensive(what, cost, RULE_COST_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_LIMIT / 100 {
            self.expensive.push((path.to_owned(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(MOST_EXPENSIVE_NAMED);
        }
    }
}

/// Returns the maximum number of values in one value of a schema.
fn elements(source: &Source) -> Option<u64> {
    let count = |key: &str| source.get(key).and_then(Value::as_i64).map(|count| count.max(0).unsigned_abs());
    match source.get("type").and_then(Value::as_str) {
        Some("object") if source.get("additionalProperties").is_some_and(|values| !values.is_null()) => {
            count("maxProperties")
        }
        Some("array") => count("maxItems"),
        _ => Some(1),
    }
}

fn times(most: u64, elements: Option<u64>) -> Option<u64> {
    elements.map(|elements| most.saturating_mul(elements))
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit behind the point")]
fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    /// Factor from which the exact value is meaningless.
    const LARGEST_FACTOR: f64 = 100.0;
    /// Factor below which one digit would hide that the limit is exceeded.
    const SMALL_FACTOR: f64 = 1.5;
    let factor = cost as f64 / limit as f64;
    let factor = if factor > LARGEST_FACTOR {
        "more than 100x".to_owned()
    } else if factor < SMALL_FACTOR {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// Returns an error of a rule, in which upstream prints all fields of its type.
fn bad_rule(path: String, rule: &Value, why: &str) -> FieldError {
    let text = |key: &str| go_json(&Value::from(rule[key].as_str().unwrap_or_default()));
    let printed = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        go_json(&rule["reason"]),
        text("fieldPath"),
        rule["optionalOldSelf"],
    );
    FieldError {
        field: path,
        reason: CauseReason::Invalid,
        detail: format!("Invalid value: {printed}: {why}"),
    }
}

/// Formats JSON as Go does, which escapes characters that are special in HTML.
fn go_json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
