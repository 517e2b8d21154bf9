#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
use std::fmt::Write as _;

use super::*;
use serde_json::json;

fn value(text: &str) -> Value {
    parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).value
}

#[test]
fn scalars_mean_what_they_mean_upstream() {
    let table = [
        ("", json!(null)),
        ("~", json!(null)),
        ("null", json!(null)),
        ("''", json!("")),
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("y", json!(true)),
        ("'yes'", json!("yes")),
        ("yEs", json!("yEs")),
        ("0", json!(0)),
        ("-7", json!(-7)),
        ("+7", json!(7)),
        ("1_000", json!(1000)),
        ("0x1F", json!(31)),
        ("-0b11", json!(-3)),
        ("0o17", json!(15)),
        ("0644", json!(420)),
        ("08", json!(8)),
        ("0o8", json!("0o8")),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("99999999999999999999", json!(1e20)),
        ("1.5", json!(1.5)),
        ("1.", json!(1)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        (".5", json!(0.5)),
        (".", json!(".")),
        ("-", json!([null])),
        ("--1", json!("--1")),
        ("1e999", json!("1e999")),
        ("infinity", json!("infinity")),
        ("1:30", json!("1:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("2001-01-01T00:00:00Z", json!("2001-01-01T00:00:00Z")),
        ("127.0.0.1", json!("127.0.0.1")),
        ("1.2.3", json!("1.2.3")),
        ("100m", json!("100m")),
        ("<<", json!("<<")),
        ("!!str 1", json!("1")),
        ("! 1", json!("1")),
        ("!custom 1", json!("1")),
        ("!!int '1'", json!(1)),
        ("!!float 1", json!(1)),
        ("!!binary aGk=", json!("hi")),
    ];
    for (text, want) in table {
        assert_eq!(value(text), want, "{text:?}");
    }
}

#[test]
fn documents_become_json() {
    let table = [
        ("a: 1\nb: [x, true, null, 1.5]\n1: one\n", json!({"a": 1, "b": ["x", true, null, 1.5], "1": "one"})),
        ("yes: 1\n1.5: 2\n", json!({"true": 1, "1.5": 2})),
        ("a: 1\n---\nb: ]", json!({"a": 1})),
        ("# nothing\n", json!(null)),
        ("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ("&k a: 1\nb: *k\n", json!({"a": 1, "b": "a"})),
        ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}})),
        (
            "a: &x {b: 1}\nc: &y {b: 2, d: 2}\ne: {<<: [*x, *y]}",
            json!({"a": {"b": 1}, "c": {"b": 2, "d": 2}, "e": {"b": 1, "d": 2}}),
        ),
        ("a: |\n  x\n  y\nb: >\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y\n"})),
        ("{\"a\": \"\\u00e4\\/\", \"b\": []}", json!({"a": "ä/", "b": []})),
    ];
    for (text, want) in table {
        assert_eq!(value(text), want, "{text:?}");
    }
}

#[test]
fn repeated_keys_are_reported_and_the_last_one_counts() {
    let document = parse("a: 1\nb:\n  c: 1\n  c:\n    d: 2\na: 2\n1: x\n1: z\n").unwrap();
    assert_eq!(document.value, json!({"a": 2, "b": {"c": {"d": 2}}, "1": "z"}));
    assert_eq!(
        document.repeated,
        [
            "line 5: key \"c\" already set in map",
            "line 6: key \"a\" already set in map",
            "line 8: key 1 already set in map"
        ]
    );
    let many = parse(&"a: 1\n".repeat(5000)).unwrap();
    assert_eq!(
        (many.repeated.len(), many.repeated[100].as_str()),
        (101, "and 4899 more keys already set in map")
    );
}

#[test]
fn mistakes_are_named_in_a_short_line() {
    let long = format!("!!int {}", "x".repeat(1_000_000));
    let table = [
        ("a: [", "yaml: line 1: did not find expected node content"),
        ("a: [b", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: {b: 1", "yaml: line 1: did not find expected ',' or '}'"),
        ("a: b: c", "yaml: line 1: mapping values are not allowed in this context"),
        ("a: *x", "yaml: line 1: while parsing node, found unknown anchor"),
        ("? [a]\n: b", "yaml: line 1: invalid map key: only scalars can be keys"),
        ("~: b", "yaml: line 1: unsupported map key of type: null"),
        ("a: .inf", "yaml: line 1: json: unsupported value: inf"),
        ("a: !!int b", "yaml: line 1: cannot decode !!str `b` as a !!int"),
        ("a: !!binary '*'", "yaml: line 1: !!binary value contains invalid base64 data"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("&a [*a]", "yaml: line 1: anchor value contains itself"),
        ("a: &a {<<: *a}", "yaml: line 1: anchor value contains itself"),
    ];
    for (text, want) in table {
        assert_eq!(parse(text).unwrap_err().to_string(), want, "{text:?}");
    }
    let error = parse(&long).unwrap_err().to_string();
    assert!(error.len() <= 200, "{} bytes", error.len());
}

#[test]
fn depth_nodes_and_aliases_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(MAXIMUM_DEPTH)).is_ok());
    let bomb = |depth: usize| {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..depth {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            writeln!(text, "a{level}: &a{level} [{alias}]").unwrap();
        }
        text
    };
    let chain: Vec<String> = (1..200).map(|level| format!("a{level}: &a{level} [*a{}]", level - 1)).collect();
    let chain = chain.join("\n");
    let table = [
        ("flow", nested(MAXIMUM_DEPTH + 1), YamlError::Depth),
        ("block", "- ".repeat(MAXIMUM_DEPTH + 1), YamlError::Depth),
        ("complex keys", "? ".repeat(10_000), YamlError::Depth),
        ("half open", "{a: ".repeat(50_000), YamlError::Depth),
        ("a chain of aliases", format!("a0: &a0 []\n{chain}"), YamlError::Depth),
        ("a bomb", bomb(12), YamlError::Aliases),
        (
            "long text",
            format!("a: &a {}\nb: [{}]", "x".repeat(100_000), "*a,".repeat(100)),
            YamlError::Aliases,
        ),
        ("many nodes", format!("[{}]", "1,".repeat(MAXIMUM_NODES)), YamlError::Nodes),
    ];
    for (what, text, want) in table {
        assert_eq!(parse(&text), Err(want), "{what}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let object = json!({
        "a": "yes", "b": "0644", "c": "1e3", "d": "", "e": "x: y", "f": "# no", "g": [], "h": {}, "i": null, "j": true,
        "k": [1, -1.5, "1.5", [2], {"x": 1, "y": [{"z": "null"}]}], "l": "two\nlines\n", "m": " padded ", "n": "ä\u{7}\t",
        "o": "long ".repeat(60), "~": "<<", "2001-01-01": "2001-01-01", "p": "line\r\n", "q": "-", "r": "12:30:45", "s": "a\n\n",
    });
    let text = written(&object);
    assert_eq!(parse(&text).unwrap(), Document { value: object, repeated: Vec::new() }, "{text}");
    assert_eq!(
        written(&json!({"kind": "Pod", "list": [{"name": "c", "on": "on"}], "text": "a\nb"})),
        "kind: Pod\nlist:\n- name: c\n  \"on\": \"on\"\ntext: |-\n  a\n  b\n"
    );
}
