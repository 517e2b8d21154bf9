//! Expressions in the Common Expression Language, over JSON documents.
//!
//! Evaluation is dynamic: errors that Kubernetes' type checker would find beforehand occur during evaluation. Every step costs part
//! of a [`Budget`], so no expression runs indefinitely. If documents have a schema, it determines the types of their values
//! ([`Typing`]).
//!
//! ```
//! use gc_cel::{Budget, Program, Scope};
//! let program = Program::compile("object.spec.size > 3").unwrap();
//! let document = serde_json::json!({"spec": {"size": 5}});
//! let mut scope = Scope::default();
//! scope.bind("object", &document, None);
//! assert_eq!(program.holds(&mut scope, &mut Budget::new(1_000)), Ok(true));
//! ```

mod authority;
mod budget;
mod check;
mod cost;
mod declarations;
mod eval;
mod format;
mod formats;
mod functions;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod go_pattern;
mod issue;
mod lex;
mod libraries;
mod network;
mod parse;
mod pattern;
mod pattern_cache;
mod printed;
mod semver;
mod text;
mod time;
mod tree;
mod types;
mod url;
mod value;

use issue::Issue;
use tree::{Expression, Node};

pub use authority::{Authority, Check, Question};
pub use budget::{Budget, EvalError};
pub use check::Environment;
pub use eval::Scope;
pub use formats::{is_cidr, is_uri};
pub use pattern::{MAX_COMPILED_BYTES, MAX_PATTERN_BYTES, PatternBudget, PatternError, check_pattern};
pub use pattern_cache::compile_pattern;
pub use printed::printed;
pub use time::Timestamp;
pub use types::{DeclaredType, ObjectType, Shape, Type};
pub use url::Url;
pub use value::{Typing, Val};

/// A parsed expression whose functions are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    expression: Node,
    text: String,
}

/// A type-checked program, with its type and cost.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedProgram {
    /// The program.
    pub program: Program,
    /// Type of its value.
    pub result: Type,
    /// Maximum cost of evaluating it, in Kubernetes' units.
    pub most_cost: u64,
}

/// Reason why a text is not an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

impl Program {
    /// Parses an expression; the error explains why it cannot be evaluated.
    pub fn compile(text: &str) -> Result<Self, CompileError> {
        let first = |issues: Vec<Issue>| {
            CompileError(issues.into_iter().next().map(|issue| issue.message).unwrap_or_default())
        };
        let expression = parse::parse(text).map_err(first)?.root;
        if let Some(name) = unknown_function(&expression) {
            return Err(CompileError(format!("undeclared reference to '{name}'")));
        }
        Ok(Self { expression, text: text.to_owned() })
    }

    /// Parses an expression and checks its types; the error lists all issues with their positions, as Kubernetes prints them.
    /// `root` is the declaration of the variables, on which the cost estimate is based.
    pub fn check(
        text: &str,
        environment: &Environment,
        root: Option<&DeclaredType>,
    ) -> Result<CheckedProgram, CompileError> {
        let printed = |issues: Vec<Issue>| CompileError(issue::printed(text, &issues));
        let parsed = parse::parse(text).map_err(printed)?;
        let typed = check::check(&parsed.root, parsed.nodes, environment).map_err(printed)?;
        let most_cost = cost::most(&parsed.root, &typed, root);
        let result = typed.types.get(parsed.root.id).cloned().unwrap_or(Type::Dyn);
        let program = Self { expression: parsed.root, text: text.to_owned() };
        Ok(CheckedProgram { program, result, most_cost })
    }

    /// Reports whether the program contains a name.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        parse::mentions(&self.text, name)
    }

    /// Returns the names that the program uses but does not define itself, in order and without duplicates.
    #[must_use]
    pub fn free_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        free_names(&self.expression, &mut Vec::new(), &mut names);
        names.sort();
        names.dedup();
        names
    }

    /// Returns the fields that the program reads of the named object; `None` if it also uses the object in another way.
    #[must_use]
    pub fn fields_of(&self, object: &str) -> Option<Vec<&str>> {
        let mut fields = Vec::new();
        fields_of(&self.expression, object, &mut fields).then_some(fields)
    }

    /// Evaluates the program.
    pub fn evaluate<'v>(&self, scope: &mut Scope<'v>, budget: &mut Budget) -> Result<Val<'v>, EvalError> {
        eval::evaluate(&self.expression, scope, budget)
    }

    /// Evaluates the program as a condition: any value other than a boolean is an error.
    pub fn holds(&self, scope: &mut Scope<'_>, budget: &mut Budget) -> Result<bool, EvalError> {
        match self.evaluate(scope, budget)? {
            Val::Bool(truth) => Ok(truth),
            other => Err(EvalError::Failed(format!("a {} where a bool is expected", other.type_name()))),
        }
    }
}

/// Returns the first unknown function that an expression calls.
fn unknown_function(node: &Node) -> Option<String> {
    if let Expression::Call { name, .. } = &node.expression
        && !declarations::is_known(name)
    {
        return Some(name.clone());
    }
    node.parts().into_iter().find_map(unknown_function)
}

fn free_names(node: &Node, bound: &mut Vec<String>, into: &mut Vec<String>) {
    match &node.expression {
        Expression::Name(name) if !bound.contains(name) && !eval::is_type(name) => into.push(name.clone()),
        Expression::Select { .. } if parse::qualified(node).is_some_and(|name| eval::is_type(&name)) => {}
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
            for part in node.parts() {
                free_names(part, bound, into);
            }
        }
    }
}

/// Collects the fields of an object that are read; returns false if the object is also used in another way.
fn fields_of<'n>(node: &'n Node, object: &str, into: &mut Vec<&'n str>) -> bool {
    match &node.expression {
        Expression::Name(name) => **name != *object,
        Expression::Select { operand, field, .. } | Expression::Has { operand, field } if matches!(&operand.expression, Expression::Name(name) if **name == *object) =>
        {
            into.push(field);
            true
        }
        _ => node.parts().into_iter().all(|part| fields_of(part, object, into)),
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
            ("type(object.a) == google.protobuf.Timestamp", &["object"]),
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
    fn created_values_cost_by_each_occurrence() {
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

    fn checked(text: &str) -> String {
        let text_of = |most| std::sync::Arc::new(DeclaredType::scalar(Type::Text, most, 2));
        let unbounded = text_of(DeclaredType::LONGEST_TEXT);
        let fields = [
            ("s", text_of(200)),
            ("n", std::sync::Arc::new(DeclaredType::scalar(Type::Int, 0, 1))),
            ("free", unbounded.clone()),
            ("list", std::sync::Arc::new(DeclaredType::list(text_of(40), Some(10)))),
            ("wide", std::sync::Arc::new(DeclaredType::list(unbounded, None))),
        ];
        let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        let root = DeclaredType { shape: Shape::Object(fields), most_elements: 0, least_bytes: 2 };
        let environment = Environment::default().with("self", root.to_type("selfType"));
        match Program::check(text, &environment, Some(&root)) {
            Ok(checked) => format!("{} {}", checked.result, checked.most_cost),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn types_and_costs_are_known_beforehand() {
        let table = [
            ("self.s == 'x'", "bool 3"),
            ("self.n > 3", "bool 3"),
            ("self.s.matches('a*')", "bool 23"),
            ("self.free.matches('a*')", "bool 314575"),
            ("self.s.startsWith('ab') && self.n == 1", "bool 5"),
            ("self.list.all(x, x.size() > 1)", "bool 63"),
            ("self.list.map(x, x + 'a').exists(y, y == 'b')", "bool 244"),
            ("self.list.exists_one(x, x == 'a')", "bool 44"),
            ("isURL(self.s) && url(self.s).getHost() == 'x'", "bool 27"),
            ("self.?n.orValue(3) == 3", "bool 4"),
            ("'not ' + string(self.n)", "string 1844674407370955267"),
            ("quantity(self.s).isGreaterThan(quantity('1Gi'))", "bool 24"),
            ("[1, 2].filter(i, i > 1).size() == 1", "bool 53"),
            ("{'a': 1}.transformMap(k, v, v + 1)", "map(string, int) 66"),
            ("optional.of(1).optMap(x, x + 1)", "optional_type(int) 17"),
            ("dyn(self.s) == 1", "bool 4"),
            ("type(self.s) == string", "bool 4"),
        ];
        let found: Vec<(&str, String)> = table.iter().map(|(text, _)| (*text, checked(text))).collect();
        let expected: Vec<(&str, String)> =
            table.iter().map(|(text, cost)| (*text, (*cost).to_owned())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        for (text, expected) in [
            ("self.b == 'x'", "ERROR: <input>:1:5: undefined field 'b'\n | self.b == 'x'\n | ....^"),
            (
                "self.s.foo(1)",
                "ERROR: <input>:1:11: undeclared reference to 'foo' (in container '')\n | self.s.foo(1)\n | ..........^",
            ),
            (
                "self.foo(",
                "ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.foo(\n | .........^",
            ),
            (
                "'",
                "ERROR: <input>:1:1: Syntax error: token recognition error at: '\''\n | '\n | ^\nERROR: <input>:1:2: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | '\n | .^",
            ),
            (
                "Bad Value!",
                "ERROR: <input>:1:5: Syntax error: mismatched input 'Value' expecting <EOF>\n | Bad Value!\n | ....^",
            ),
            (
                "a..b",
                "ERROR: <input>:1:3: Syntax error: no viable alternative at input '..'\n | a..b\n | ..^",
            ),
            (
                "x/y",
                "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x/y\n | ^\nERROR: <input>:1:3: undeclared reference to 'y' (in container '')\n | x/y\n | ..^",
            ),
            (
                "self.n + 'a' == 'b'",
                "ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n | self.n + 'a' == 'b'\n | .......^",
            ),
            (
                "self.n && true",
                "ERROR: <input>:1:5: expected type 'bool' but found 'int'\n | self.n && true\n | ....^",
            ),
            (
                "self.n.all(x, x)",
                "ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.n.all(x, x)\n | ....^",
            ),
            ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
            (
                "self.s.matches('(')",
                "ERROR: <input>:1:16: invalid matches argument\n | self.s.matches('(')\n | ...............^",
            ),
        ] {
            assert_eq!(checked(text), expected, "{text}");
        }
    }
}
