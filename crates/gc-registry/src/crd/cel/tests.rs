#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::crd::compile::compile as compile_schema;

/// Evaluates an expression over a document; returns `true`, text, or its error.
fn value_of(expression: &str, document: &Value) -> String {
    value_within(CALL_BUDGET, expression, document)
}

fn value_within(budget: u64, expression: &str, document: &Value) -> String {
    let schema = compile_schema(
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "when": {"type": "string", "format": "date-time"}, "how-long": {"type": "string", "format": "duration"},
            "ratio": {"type": "number"}, "namespace": {"type": "string"},
        }}),
    );
    let program = match compile(expression) {
        Ok(program) => program,
        Err(error) => return format!("compile: {error}"),
    };
    let mut scope = Scope::default();
    scope.bind("self", document, Some(&schema));
    match program.expression.evaluate(&mut scope, &mut Budget::new(budget)) {
        Ok(value) => gc_cel::printed(&value),
        Err(EvalError::Failed(error)) => format!("error: {error}"),
        Err(EvalError::TooExpensive) => "too expensive".into(),
    }
}

#[test]
fn expressions_have_their_values() {
    let document = json!({
        "a": 5, "b": 2, "text": "Hello", "list": [3, 1, 2], "names": ["x", "y"], "empty": [], "nothing": null,
        "map": {"k": "v", "l": "w"}, "when": "2026-11-21T10:00:00Z", "how-long": "1h30m", "ratio": 1, "namespace": "n",
        "items": [{"name": "a", "size": 1}, {"name": "b", "size": 2}],
    });
    for (expression, value) in [
        ("self.a + self.b * 2 - 1", "8"),
        ("(self.a + self.b) * 2 % 4", "2"),
        ("-self.a / 2", "-2"),
        ("self.a / 0", "error: division by zero"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("9223372036854775808", "compile: invalid int literal"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0x1F + 1", "32"),
        ("3u + 4u", "7"),
        ("self.ratio / 2.0", "0.5"),
        ("1.5e3", "1500"),
        ("self.a > 3 && self.b <= 2 || false", "true"),
        ("!(self.a == 5)", "false"),
        ("self.missing == 1", "error: no such key: missing"),
        ("self.missing == 1 || true", "true"),
        ("false && self.missing == 1", "false"),
        ("self.missing == 1 && false", "false"),
        ("has(self.missing)", "false"),
        ("has(self.nothing)", "false"),
        ("has(self.a) ? 'yes' : 'no'", "yes"),
        ("self.a == 5 ? (self.b == 3 ? 1 : 2) : 3", "2"),
        ("'x' in self.names && !('z' in self.names)", "true"),
        ("'k' in self.map", "true"),
        ("self.map['k'] + self.map.l", "vw"),
        ("self.list[0]", "3"),
        ("self.list[5]", "error: index out of bounds: 5"),
        ("self.list == [3, 1, 2]", "true"),
        ("self.map == {'l': 'w', 'k': 'v'}", "true"),
        ("{'a': 1}.a", "1"),
        ("size(self.list) + self.text.size()", "8"),
        ("self.list.all(x, x > 0)", "true"),
        ("self.list.all(x, x > 1)", "false"),
        ("self.list.exists(x, x == 2)", "true"),
        ("self.list.exists_one(x, x > 1)", "false"),
        ("self.list.filter(x, x > 1).map(x, x * 10)", "[30, 20]"),
        ("self.list.map(x, x > 1, x * 10)", "[30, 20]"),
        ("self.map.all(k, self.map[k] != '')", "true"),
        ("self.list.all(i, v, i < v)", "false"),
        ("self.items.all(x, self.items.exists_one(y, x.name == y.name))", "true"),
        ("self.items.exists(x, x.missing)", "error: no such key: missing"),
        ("self.items.map(x, x.size).sum()", "3"),
        ("self.list.min() + self.list.max()", "4"),
        ("self.empty.min()", "error: min called on empty list"),
        ("self.list.isSorted()", "false"),
        ("self.names.indexOf('y')", "1"),
        ("self.text.startsWith('He') && self.text.endsWith('lo') && self.text.contains('ell')", "true"),
        ("self.text.matches('^[A-Z][a-z]+$')", "true"),
        (
            "self.text.matches('(')",
            "error: error parsing regexp: regex parse error:\n    (\n    ^\nerror: unclosed group",
        ),
        ("self.text.lowerAscii() + self.text.upperAscii()", "helloHELLO"),
        ("self.text.substring(1, 3) + self.text.charAt(0)", "elH"),
        ("self.text.substring(3, 9)", "error: index out of range: 9"),
        ("self.text.substring(3, 2)", "error: invalid substring range. start: 3, end: 2"),
        ("'a,b,c'.split(',').join('-')", "a-b-c"),
        ("'a-b'.replace('-', '+')", "a+b"),
        (" 'abc 123'.find('[0-9]+')", "123"),
        ("self.names + ['z']", "[x, y, z]"),
        ("string(self.a) + '!'", "5!"),
        ("int('7') + 1", "8"),
        ("double('1.5')", "1.5"),
        ("type(self.a) == int && type('') == string", "true"),
        ("dyn(self.a) == 5.0", "true"),
        ("self.when < timestamp('2027-01-01T00:00:00Z')", "true"),
        ("self.when.getFullYear()", "2026"),
        ("self.how__dash__long.getMinutes()", "90"),
        ("self.how__dash__long == duration('90m')", "true"),
        ("self.when + duration('1h')", "2026-11-21T11:00:00Z"),
        ("self.__namespace__", "n"),
        ("quantity('1.5Gi').isGreaterThan(quantity('1500M'))", "true"),
        ("quantity('100m').add(quantity('900m')).asInteger()", "1"),
        ("isQuantity('1x')", "false"),
        ("isURL('https://example.com')", "true"),
        ("self.?missing.hasValue()", "false"),
        ("self.?a.orValue(7) + self.?missing.orValue(7)", "12"),
        ("self.?map.?k.value()", "v"),
        ("self.list[?9].orValue(0)", "0"),
        ("optional.of(1).hasValue()", "true"),
        ("sets.contains(self.names, ['x'])", "true"),
        ("r'\\d' + \"\\n\" + '''it's'''", "\\d\nit's"),
        ("'\\u00e4' == 'ä'", "true"),
        ("b'abc' == bytes('abc')", "true"),
        ("true // a comment\n && true", "true"),
        (
            "self.a ==",
            "compile: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
        ),
        ("self.a self.b", "compile: Syntax error: mismatched input 'self' expecting <EOF>"),
        ("'open", "compile: Syntax error: token recognition error at: ''open'"),
        (
            "isIP('10.0.0.1') && ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "true",
        ),
        ("cidr('10.0.0.0/8').containsCIDR('10.0.0.0/7') || ip.isCanonical('::0')", "false"),
        (
            "url('https://a.b:80/c?d=e&d=f').getQuery().d + [url('https://a.b:80/c').getHost()]",
            "[e, f, a.b:80]",
        ),
        (
            "url('no url')",
            "error: URL parse error during conversion from string: parse \"no url\": invalid URI for request",
        ),
        (
            "semver('1.2.3-rc.1').isLessThan(semver('1.2.3')) && !isSemver('v1.2') && isSemver('v1.2', true)",
            "true",
        ),
        ("format.dns1123Label().validate('Bad').hasValue() && !format.named('odd').hasValue()", "true"),
        ("'%s is %d, %.2f'.format(['a', 1, 2.5])", "a is 1, 2.50"),
        ("self.?a.optMap(x, x + 1).orValue(0) + self.?missing.optMap(x, x + 1).orValue(0)", "6"),
        ("self.map.transformMap(k, v, k + v)", "{k: kv, l: lw}"),
        ("self.map.transformMapEntry(k, v, {v: k})", "{v: k, w: l}"),
        ("self.list.transformList(i, v, v > 1, i)", "[0, 2]"),
        ("self.items.sortBy(x, -x.size).map(x, x.name)", "[b, a]"),
        ("[1, ?optional.of(2), ?optional.none()] + lists.range(2)", "[1, 2, 0, 1]"),
        ("{'a': 1, ?'b': optional.none()}", "{a: 1}"),
        ("[[1, [2]], [3]].flatten(2) == [1, 2, 3] && 'abcabc'.indexOf('c', 3) == 5", "true"),
        ("other.a", "error: undeclared reference to 'other'"),
        ("nobodyKnows(self.a)", "compile: undeclared reference to 'nobodyKnows'"),
        ("self.a.all()", "compile: undeclared reference to 'all'"),
        ("self.a && true", "error: no such overload"),
        ("self.text + 1", "error: no such overload"),
    ] {
        assert_eq!(value_of(expression, &document), value, "{expression}");
    }
}

#[test]
fn expressions_are_bounded() {
    let many = json!({"list": (0..2_000).collect::<Vec<_>>()});
    let expensive = "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))";
    assert_eq!(value_within(20_000, expensive, &many), "too expensive");
    let grows = "[1].map(x, 'aaaaaaaaaa').map(x, x+x+x+x+x+x+x+x+x+x).map(x, x.replace('a', x)).map(x, x.replace('a', x)).map(x, x.replace('a', x)).map(x, x.replace('a', x)).size()";
    assert_eq!(value_of(grows, &json!({})), "too expensive");
    for deep in
        ["(".repeat(100_000), "!".repeat(100_000), format!("self{}", ".a".repeat(100_000)), "[".repeat(5_000)]
    {
        assert!(compile(&deep).is_err());
    }
}

#[test]
fn rules_become_problems() {
    let rules = |rules: Value| {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object", "properties": {"k": {"type": "string"}, "v": {
                    "type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}],
                }},
            }},
        }, "x-kubernetes-validations": rules}}})
    };
    let bounds = json!([{"rule": "self.min <= self.max", "message": " min must not exceed max "}]);
    let table: Vec<(Value, Value, Option<Value>, Vec<&str>)> = vec![
        (bounds.clone(), json!({"min": 1, "max": 2}), None, vec![]),
        (
            bounds.clone(),
            json!({"min": 3, "max": 2}),
            None,
            vec!["spec: Invalid value: min must not exceed max"],
        ),
        (bounds.clone(), json!({"min": 3, "max": 2}), Some(json!({"min": 3, "max": 2})), vec![]),
        (
            bounds.clone(),
            json!({"min": 3}),
            None,
            vec![
                "spec: Invalid value: \"object\": no such key: max evaluating rule: min must not exceed max",
            ],
        ),
        (
            json!([{"rule": "self.min > 5"}]),
            json!({"min": 3}),
            None,
            vec!["spec: Invalid value: failed rule: self.min > 5"],
        ),
        (
            json!([{"rule": "self.min > 5", "messageExpression": "'min is ' + string(self.min)", "fieldPath": ".min", "reason": "FieldValueForbidden"}]),
            json!({"min": 3}),
            None,
            vec!["spec.min: Forbidden: min is 3"],
        ),
        (
            json!([{"rule": "self.min > 5", "messageExpression": "self.missing", "message": "too small"}]),
            json!({"min": 3}),
            None,
            vec!["spec: Invalid value: too small"],
        ),
        (
            json!([{"rule": "!oldSelf.hasValue() || self.max == oldSelf.value().max", "optionalOldSelf": true}]),
            json!({"max": 3}),
            None,
            vec![],
        ),
        (
            json!([{"rule": "!oldSelf.hasValue() || self.max == oldSelf.value().max", "optionalOldSelf": true, "message": "max is fixed"}]),
            json!({"max": 3}),
            Some(json!({"max": 4})),
            vec!["spec: Invalid value: max is fixed"],
        ),
        (json!([]), json!({"name": "a"}), None, vec![]),
        (
            json!([]),
            json!({"name": "a"}),
            Some(json!({"name": "b"})),
            vec!["spec.name: Invalid value: \"a\": is immutable"],
        ),
        (
            json!([]),
            json!({"list": [{"k": "b", "v": 1}, {"k": "a", "v": 1}]}),
            Some(json!({"list": [{"k": "a", "v": 2}, {"k": "b", "v": 1}]})),
            vec!["spec.list[1].v: Invalid value: 1: failed rule: self >= oldSelf"],
        ),
        (
            json!([{"rule": "self.min + 'x' == ''"}]),
            json!({"min": 1}),
            None,
            vec![
                "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.min + 'x' == ''",
            ],
        ),
    ];
    for (own, spec, old, problems) in table {
        let schema = compile_schema(&rules(own.clone()));
        let mut programs = Programs::new();
        super::programs(&schema, &mut programs);
        let old = old.map(|spec| json!({"spec": spec}));
        let spec_only = json!({"spec": spec});
        let found: Vec<String> =
            check(&schema, &programs, "", &spec_only, old.as_ref(), RuleSelection::Changed)
                .iter()
                .map(|problem| format!("{}: {}", problem.field, problem.detail))
                .collect();
        assert_eq!(found, problems, "{own} {spec}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The evaluation of any rule must end without a panic.
    #[test]
    fn arbitrary_rules_do_not_panic(parts in prop::collection::vec(prop::sample::select(vec![
        "self", "self.a", "self.list", "x", "1", "-9223372036854775808", "2u", "1.5", "'ä\\n'", "true", "null", "[", "]", "(", ")", "{", "}",
        ".", ".?", "?", ":", ",", "+", "-", "*", "/", "%", "==", "<", "&&", "||", "!", " in ", ".all(x, ", ".map(x, ", ".filter(x, ",
        "size(", "has(self.a)", ".substring(", ".matches('a+')", ".split('')", "duration('1h')", "timestamp('2026-11-21T10:00:00Z')",
        "quantity('1Ei')", ".replace(", "string(", "int(", "\\", "\"", "r'", "0x", "1e", "b'",
    ]), 0..14)) {
        let document = json!({"a": 1, "list": [1, "b", [], {}]});
        let _ = value_of(&parts.concat(), &document);
    }
}
