//! Properties of expressions, as the body of a fuzz target (`fuzz/` at the root), which also runs as a test.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use serde_json::Value;

use crate::{Budget, EvalError, Program, Scope, Val, printed};

/// Checks an expression on the first line with a document: evaluation must end within its budget, and give the same result each
/// time, also with a larger budget.
pub fn cel(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (expression, document) = text.split_once('\n').unwrap_or((&text, "null"));
    let Ok(program) = Program::compile(expression) else { return };
    assert!(program.free_names().iter().all(|name| program.mentions(name)));
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let outcome = |steps| {
        let mut scope = Scope::default();
        scope.bind("self", &document, None);
        scope.bind("object", &document, None);
        shown(program.evaluate(&mut scope, &mut Budget::new(steps)))
    };
    let (little, much) = (outcome(500), outcome(20_000));
    if little != Err(EvalError::TooExpensive) {
        assert_eq!(little, much);
    }
    assert_eq!(much, outcome(20_000));
}

fn shown(value: Result<Val<'_>, EvalError>) -> Result<String, EvalError> {
    value.map(|value| format!("{} {}", value.type_name(), printed(&value)))
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(cel);
