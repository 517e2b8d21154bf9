//! Expressions in the Common Expression Language, over JSON documents.
//!
//! Evaluated dynamically: what Kubernetes' type checker would refuse beforehand fails here when the expression
//! is evaluated. Every step costs of a [`Budget`], so that no expression runs away. Where documents have a
//! schema, it types their values ([`Typing`]).
//!
//! ```
//! use gc_cel::{Budget, Program, Scope};
//! let program = Program::compile("object.spec.size > 3").unwrap();
//! let document = serde_json::json!({"spec": {"size": 5}});
//! let mut scope = Scope::default();
//! scope.bind("object", &document, None);
//! assert_eq!(program.holds(&mut scope, &mut Budget::new(1_000)), Ok(true));
//! ```

mod budget;
mod eval;
mod formats;
mod functions;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod parse;
mod value;

use parse::Expression;

pub use budget::{Budget, EvalError};
pub use eval::Scope;
pub use formats::{is_cidr, is_uri, printed_float};
pub use functions::printed;
pub use value::{Typing, Val};

/// A parsed expression whose functions are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    expression: Expression,
    text: String,
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

impl Program {
    /// Parses an expression; the error says why it cannot be evaluated.
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        let expression = parse::parse(text).map_err(CompileError)?;
        if let Some(name) = unknown_function(&expression) {
            return Err(CompileError(format!("undeclared reference to '{name}'")));
        }
        Ok(Self { expression, text: text.to_owned() })
    }

    /// Whether it mentions a name.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        parse::mentions(&self.text, name)
    }

    /// The names that it uses and does not make itself, in order, each once.
    #[must_use]
    pub fn free_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        free_names(&self.expression, &mut Vec::new(), &mut names);
        names.sort();
        names.dedup();
        names
    }

    /// Its value.
    pub fn evaluate<'v>(&self, scope: &mut Scope<'v>, budget: &mut Budget) -> Result<Val<'v>, EvalError> {
        eval::evaluate(&self.expression, scope, budget)
    }

    /// Its value as a condition: anything but a truth value is an error.
    pub fn holds(&self, scope: &mut Scope<'_>, budget: &mut Budget) -> Result<bool, EvalError> {
        match self.evaluate(scope, budget)? {
            Val::Bool(truth) => Ok(truth),
            other => Err(EvalError::Failed(format!("a {} where a bool is expected", other.type_name()))),
        }
    }
}

/// The first unknown function that an expression calls.
fn unknown_function(expression: &Expression) -> Option<String> {
    if let Expression::Call { target, name, .. } = expression {
        if let Some(Expression::Name(namespace)) = target.as_deref()
            && functions::KNOWN.contains(&format!("{namespace}.{name}").as_str())
        {
            return parts(expression).into_iter().skip(1).find_map(unknown_function);
        }
        if !functions::KNOWN.contains(&name.as_str()) {
            return Some(name.clone());
        }
    }
    parts(expression).into_iter().find_map(unknown_function)
}

/// The expressions directly inside one; of a call, the target comes first.
fn parts(expression: &Expression) -> Vec<&Expression> {
    match expression {
        Expression::Call { target, arguments, .. } => {
            target.as_deref().into_iter().chain(arguments).collect()
        }
        Expression::Select { operand, .. }
        | Expression::Has { operand, .. }
        | Expression::Not(operand)
        | Expression::Negate(operand) => vec![operand],
        Expression::Index { operand, index, .. } => vec![operand, index],
        Expression::Macro { range, bodies, .. } => std::iter::once(&**range).chain(bodies).collect(),
        Expression::List(items) => items.iter().collect(),
        Expression::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
        Expression::Binary(_, left, right) => vec![left, right],
        Expression::Condition(parts) => parts.iter().collect(),
        _ => Vec::new(),
    }
}

fn free_names(expression: &Expression, bound: &mut Vec<String>, into: &mut Vec<String>) {
    match expression {
        Expression::Name(name) if !bound.contains(name) && !eval::is_type(name) => into.push(name.clone()),
        Expression::Call { target, name, .. }
            if matches!(target.as_deref(), Some(Expression::Name(namespace))
                if functions::KNOWN.contains(&format!("{namespace}.{name}").as_str())) =>
        {
            for part in parts(expression).into_iter().skip(1) {
                free_names(part, bound, into);
            }
        }
        Expression::Macro { range, names, bodies, .. } => {
            free_names(range, bound, into);
            let before = bound.len();
            bound.extend(names.iter().map(ToString::to_string));
            for body in bodies {
                free_names(body, bound, into);
            }
            bound.truncate(before);
        }
        _ => {
            for part in parts(expression) {
                free_names(part, bound, into);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_cannot_be_evaluated_is_refused_beforehand() {
        for (text, expected) in [
            ("nonsense(1)", "undeclared reference to 'nonsense'"),
            ("[1].all(x, foo(x))", "undeclared reference to 'foo'"),
            ("optional.of(bar(1)).hasValue()", "undeclared reference to 'bar'"),
        ] {
            assert_eq!(Program::compile(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn names_that_an_expression_does_not_make_are_known() {
        for (text, expected) in [
            ("object.a == 1 && has(object.b)", &["object"][..]),
            ("object.items.all(i, i.x > limit)", &["limit", "object"]),
            ("math.greatest(object.a, 2) > 1", &["object"]),
            ("type(object.a) == int", &["object"]),
            ("1 < 2", &[]),
            ("[1].all(x, x > 0) || x", &["x"]),
        ] {
            assert_eq!(Program::compile(text).unwrap().free_names(), expected, "{text}");
        }
    }

    #[test]
    fn a_condition_is_a_truth_value_within_its_budget() {
        let document = serde_json::json!({"n": 3, "list": [1, 2, 3]});
        let failed = |why: &str| Err(EvalError::Failed(why.into()));
        for (text, budget, expected) in [
            ("object.n == 3", 100, Ok(true)),
            ("object.n == 4", 100, Ok(false)),
            ("object.n", 100, failed("a int where a bool is expected")),
            ("object.missing == 1", 100, failed("no such key: missing")),
            ("object.list.all(x, x > 0)", 5, Err(EvalError::TooExpensive)),
        ] {
            let mut scope = Scope::default();
            scope.bind("object", &document, None);
            let program = Program::compile(text).unwrap();
            assert_eq!(program.holds(&mut scope, &mut Budget::new(budget)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_made_is_paid_for_as_often_as_it_is_in_there() {
        let outcome = |text: &str| {
            Program::compile(text).unwrap().holds(&mut Scope::default(), &mut Budget::new(10_000))
        };
        let doubled = |times: usize| format!("[1]{} == [1]", ".map(a, [a, a])".repeat(times));
        let nested = |times: usize| format!("[1]{} == [1]", ".map(a, [a])".repeat(times));
        let deep = Err(EvalError::Failed("nested too deeply".into()));
        for (text, expected) in [
            (doubled(8), Ok(false)),
            (doubled(40), Err(EvalError::TooExpensive)),
            (nested(60), Ok(false)),
            (nested(64), deep.clone()),
            (
                "[1].map(a, [a]) == [[1]] && [1, 2].indexOf(2) == 1 && [2, 1, 2].lastIndexOf(2) == 2".into(),
                Ok(true),
            ),
            ("{[1]: 2} == {}".into(), Err(EvalError::Failed("unsupported key type: list".into()))),
        ] {
            assert_eq!(outcome(&text), expected, "{text}");
        }
    }

    #[test]
    fn chains_of_operators_are_bounded_and_those_of_conditions_balanced() {
        let chain = |sign: &str, times: usize| vec!["1"; times].join(sign);
        let refused = Some("nested deeper than 150".to_owned());
        for (text, expected) in [
            (chain(" + ", 150), None),
            (chain(" + ", 151), refused.clone()),
            (chain(" + ", 16_000), refused.clone()),
            (chain(" == ", 151), refused),
            (chain(" || ", 5_000), None),
            (chain(" && ", 5_000), None),
        ] {
            let found = Program::compile(&text).err().map(|error| error.to_string());
            assert_eq!(found, expected, "{}", &text[..20]);
        }
    }
}
