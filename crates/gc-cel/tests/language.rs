//! Tables of expressions with their values and errors, recorded from an API server with cel-go 0.26.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_cel::{Budget, Environment, EvalError, Program, Scope, printed};

/// Returns the value of a checked expression with its type, or its error.
fn outcome(text: &str) -> String {
    let program = match Program::check(text, &Environment::default(), None) {
        Ok(checked) => checked.program,
        Err(error) => {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            return format!("refused: {}", first.strip_prefix("ERROR: <input>:").unwrap_or(first));
        }
    };
    match program.evaluate(&mut Scope::default(), &mut Budget::new(100_000)) {
        Ok(value) => format!("{} {}", value.type_name(), printed(&value)),
        Err(error) => format!("error: {error}"),
    }
}

fn compare(table: &[(&str, &str)]) {
    let found: Vec<(&str, String)> = table.iter().map(|(text, _)| (*text, outcome(text))).collect();
    let expected: Vec<(&str, String)> =
        table.iter().map(|(text, value)| (*text, (*value).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn literals() {
    compare(&[
        (r"'\x41\102\u00e9\U0001F600'", "string ABé😀"),
        (r"'\377' == 'ÿ'", "bool true"),
        (r"b'\377\xfe'.size()", "int 2"),
        (r"b'ÿ' == b'\303\277'", "bool true"),
        (r"r'\n'.size()", "int 2"),
        ("'''a\r\nb'''.size()", "int 3"),
        (".5 + 1.25e1", "double 13"),
        ("{'a.b': 1}[ ? 'a.b'].value()", "int 1"),
        ("{'a': 1}. ? a.value()", "int 1"),
        (r"b'\u00e9'", r"refused: 1:1: Syntax error: token recognition error at: 'b'\'"),
        ("while", "refused: 1:1: reserved identifier: while"),
        // Of a repeated key, the last one wins.
        ("{1: 'a', 2: 'b', 1: 'c'}", "map {2: b, 1: c}"),
        ("[?optional.of(1), 2, ?optional.none()]", "list [1, 2]"),
        ("[?dyn(1)]", "error: cannot initialize optional list element from non-optional value 1"),
    ]);
}

#[test]
fn literals_have_one_type_except_in_format() {
    compare(&[
        ("[1, 'a', true]", "refused: 1:5: expected type 'int' but found 'string'"),
        ("[1, dyn('a')]", "refused: 1:8: expected type 'int' but found 'dyn'"),
        ("{'a': [1], 'b': ['c']}", "refused: 1:17: expected type 'list(int)' but found 'list(string)'"),
        ("{1: 1, 'b': 2}.size()", "refused: 1:8: expected type 'int' but found 'string'"),
        ("'%d%s'.format([1, 'a'])", "string 1a"),
        ("'%s'.format([{'a': 1, 2: [true, 'b']}])", r#"string {"a":1, 2:[true, "b"]}"#),
        ("duration(1)", "refused: 1:10: invalid duration argument"),
        ("timestamp(253402300800)", "refused: 1:11: invalid timestamp argument"),
        ("matches('(', 'a')", "refused: 1:9: invalid matches argument"),
    ]);
}

#[test]
fn operators() {
    compare(&[
        ("b'a' + b'\\xff' == b'a\\377'", "bool true"),
        ("7 / 0", "error: division by zero"),
        ("7u % 0u", "error: modulus by zero"),
        ("-9223372036854775808 - 1", "error: integer overflow"),
        ("0u - 1u", "error: unsigned integer overflow"),
        ("[4, 5][dyn(1.0)] + [4, 5][dyn(0u)]", "int 9"),
        ("[4, 5][dyn(0.5)]", "error: unsupported index value 0.5 in list"),
        ("[4, 5][dyn('a')]", "error: unsupported index type 'string' in list"),
        ("[4, 5][-1]", "error: index out of bounds: -1"),
        ("{'a': 1}.b", "error: no such key: b"),
        ("dyn(1).a", "error: no such key: a"),
        ("dyn(1).?a.hasValue()", "bool false"),
        ("has({'a': null}.a)", "bool true"),
        ("dyn(1) + 'a'", "error: no such overload"),
        ("dyn(true) + 1", "error: no such overload: _+_"),
        ("dyn([1]) < 1", "error: no such overload: _<_"),
        ("dyn(1) * 2.0", "error: no such overload"),
        (
            "-duration('1s') == duration('-1s')",
            "refused: 1:1: found no matching overload for '-_' applied to '(duration)'",
        ),
        ("-dyn(duration('1s'))", "google.protobuf.Duration -1s"),
        ("size(dyn(1))", "error: no such overload: size"),
        ("int(dyn([1]))", "error: no such overload: int(list)"),
        ("dyn([1]).charAt(2)", "error: no such overload: charAt(list, int)"),
        ("double('NaN') < 1.0", "error: NaN values cannot be ordered"),
        ("type(ip('10.0.0.1')) == net.IP && type(timestamp(0)) == google.protobuf.Timestamp", "bool true"),
        ("type(optional.none()) == optional_type", "bool true"),
    ]);
}

#[test]
fn conversions() {
    compare(&[
        ("string(1000000.0) + string(123456.5) + string(-1e-5)", "string 1e+06123456.5-1e-05"),
        ("string(double('-Infinity'))", "string -Inf"),
        ("string(duration('1h0m0.25s'))", "string 3600.25s"),
        ("string(b'\\303\\277')", "string ÿ"),
        ("string(b'\\377')", "error: invalid UTF-8 in bytes, cannot convert to string"),
        ("string(dyn(null))", "error: no such overload: string(null_type)"),
        ("uint(1.9)", "uint 1"),
        ("uint(-1.0)", "error: unsigned integer overflow"),
        ("uint('+1')", "error: type conversion error from 'string' to 'uint'"),
        ("int(9223372036854775808.0)", "error: integer overflow"),
        ("int(18446744073709551615u)", "error: integer overflow"),
        ("int(duration('2us'))", "int 2000"),
        ("int('a')", "error: type conversion error from 'string' to 'int'"),
        ("double('1e999')", "error: type conversion error from 'string' to 'double'"),
        ("bool('T') && !bool('F')", "bool true"),
        ("bool('tRUE')", "error: type conversion error from 'string' to 'bool'"),
    ]);
}

#[test]
fn times() {
    compare(&[
        (
            "timestamp('9999-12-31T23:59:59.999999999Z')",
            "google.protobuf.Timestamp 9999-12-31T23:59:59.999999999Z",
        ),
        ("timestamp('2024-02-29T7:05:06.5+01:30')", "google.protobuf.Timestamp 2024-02-29T07:05:06.5+01:30"),
        ("timestamp('2024-02-29T07:05:06+01:30').getHours()", "int 5"),
        ("timestamp('2023-02-29T07:05:06Z')", "refused: 1:11: invalid timestamp argument"),
        ("timestamp('0001-01-01T00:00:00Z') - duration('1ns')", "error: timestamp overflow"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "error: timestamp overflow"),
        ("timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')", "error: integer overflow"),
        ("timestamp(int('253402300800'))", "error: timestamp overflow"),
        ("timestamp(timestamp(90))", "google.protobuf.Timestamp 1970-01-01T00:01:30Z"),
        ("dyn(timestamp(0)) == null", "bool false"),
        // New York is four hours behind in summer and five in winter.
        ("timestamp('2024-07-01T02:00:00Z').getHours('America/New_York')", "int 22"),
        ("timestamp('2024-01-01T02:00:00Z').getFullYear('America/New_York')", "int 2023"),
        ("timestamp('9999-12-31T23:00:00Z').getFullYear('Asia/Tokyo')", "int 10000"),
        ("timestamp('9999-12-31T23:00:00Z').getDayOfMonth('Asia/Tokyo')", "int 0"),
        ("timestamp('2024-01-01T00:10:00Z').getMinutes('-02:30')", "int 40"),
        ("timestamp('2024-01-01T00:10:00Z').getDayOfYear('-00:30')", "int 364"),
        ("timestamp('2024-01-07T00:10:00Z').getDayOfWeek('UTC')", "int 0"),
        ("timestamp(0).getHours('america/new_york')", "error: unknown time zone america/new_york"),
        ("timestamp(0).getHours('../etc')", "error: time: invalid location name"),
        ("timestamp(0).getHours('a:00')", r#"error: strconv.Atoi: parsing "a": invalid syntax"#),
        ("timestamp(0).getMilliseconds()", "int 0"),
        ("duration('1.5s').getMilliseconds()", "int 1500"),
        ("duration('2562047h47m16.854775807s') == duration('9223372036854775807ns')", "bool true"),
        ("duration('2562047h47m16.854775808s')", "refused: 1:10: invalid duration argument"),
        ("duration('-2562047h47m16.854775808s') < duration('0')", "bool true"),
        ("duration('1.s') + duration('.5s')", "google.protobuf.Duration 1.5s"),
        ("duration(' 1s')", "refused: 1:10: invalid duration argument"),
        ("duration('9000000000s') + duration('9000000000s')", "error: integer overflow"),
    ]);
}

#[test]
fn strings() {
    compare(&[
        ("'añb'.charAt(1) + 'añb'.charAt(3)", "string ñ"),
        ("'añb'.charAt(4)", "error: index out of range: 4"),
        ("'añañ'.indexOf('ñ', 2)", "int 3"),
        ("'ab'.indexOf('b', 9)", "int -1"),
        ("'ab'.indexOf('b', -1)", "error: index out of range: -1"),
        ("'ab'.indexOf('', 5)", "int 5"),
        ("'ñañañ'.lastIndexOf('ñ', 3)", "int 2"),
        ("'ñañañ'.lastIndexOf('ña', 2)", "int 2"),
        ("'ab'.lastIndexOf('b', 2)", "int -1"),
        ("'ab'.lastIndexOf('', 9)", "int 9"),
        ("'añb'.substring(1, 2) + 'añb'.substring(3)", "string ñ"),
        ("'ab'.substring(2, 1)", "error: invalid substring range. start: 2, end: 1"),
        ("'ab'.substring(1, 3)", "error: index out of range: 3"),
        ("'ab'.substring(-1)", "error: index out of range: -1"),
        ("'a,b,c'.split(',', 2)", "list [a, b,c]"),
        ("'a,b'.split(',', 0)", "list []"),
        ("'ñbc'.split('', 2)", "list [ñ, bc]"),
        ("'abc'.split('')", "list [a, b, c]"),
        (r#"strings.quote('a\a\b\f\n\r\t\v\\"é')"#, r#"string "a\a\b\f\n\r\t\v\\\"é""#),
        ("['a', 'b'].join('-')", "string a-b"),
        ("dyn(['a', 1]).join()", "refused: 1:11: expected type 'string' but found 'int'"),
        ("[1].map(x, dyn(x)).join()", "error: join: invalid input: 1"),
        // Version 3 of the library is not enabled.
        ("'ab'.reverse()", "refused: 1:13: found no matching overload for 'reverse' applied to 'string.()'"),
    ]);
}

#[test]
fn formatted_texts() {
    compare(&[
        ("'%s|%d|%%'.format(['a', 7u])", "string a|7|%"),
        ("'%f|%.2f|%.0f'.format([1234567.5, -0.125, 999.5])", "string 1,234,567.500000|-0.12|1,000"),
        (
            "'%e|%.1e'.format([1234.5, -0.00012])",
            "string 1.234500\u{202f}×\u{202f}10⁰³|-1.2\u{202f}×\u{202f}10⁻⁰⁴",
        ),
        ("'%f %f %f'.format(['NaN', 'Infinity', '-Infinity'])", "string NaN ∞ -∞"),
        ("'%b %b %b'.format([5, -5, true])", "string 101 -101 1"),
        ("'%o %o'.format([-8, 8u])", "string -10 10"),
        ("'%x %X %x %X'.format([-30, 255u, 'hi', b'\\xff'])", "string -1e FF 6869 FF"),
        (
            "'%s'.format([[1.5, b'a', null, timestamp(0), duration('1s'), double('NaN')]])",
            r#"string [1.500000, b"a", null, timestamp("1970-01-01T00:00:00Z"), duration("1s"), "NaN"]"#,
        ),
        ("'%s %s'.format([type(1), 1.0])", "string int 1"),
        ("'%s %s'.format(['a'])", "refused: 1:15: index 1 out of range"),
        (
            "'%s'.format(['a', 2])",
            "refused: 1:12: too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("'%'.format([1])", "refused: 1:11: unexpected end of string"),
        (
            "'%.'.format([1])",
            "refused: 1:12: could not parse formatting clause: error while parsing precision: could not find end of precision specifier",
        ),
        (
            r"'%j'.format([1])",
            r#"refused: 1:12: could not parse formatting clause: unrecognized formatting clause "j""#,
        ),
        (
            "'%d'.format(['a'])",
            "refused: 1:14: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%d'.format([dyn('a')])",
            "error: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%f'.format([dyn(1)])",
            "error: error during formatting: fixed-point clause can only be used on doubles, was given int",
        ),
        (
            "'%e'.format([null])",
            "refused: 1:14: error during formatting: scientific clause can only be used on doubles, was given null_type",
        ),
        (
            "'%b'.format([1.0])",
            "refused: 1:14: error during formatting: only integers and bools can be formatted as binary, was given double",
        ),
        (
            "'%x'.format([1.0])",
            "refused: 1:14: error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given double",
        ),
        (
            "'%o'.format([true])",
            "refused: 1:14: error during formatting: octal clause can only be used on integers, was given bool",
        ),
        (
            "'%s'.format([dyn(ip('::1'))])",
            "error: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given net.IP",
        ),
    ]);
}

#[test]
fn lists() {
    compare(&[
        ("[3, 4].first().value() * [3, 4].last().value()", "int 12"),
        ("[].first().hasValue()", "bool false"),
        ("[1, 2, 3].slice(1, 1)", "list []"),
        (
            "[1, 2, 3].slice(2, 1)",
            "error: cannot slice(2, 1), start index must be less than or equal to end index",
        ),
        ("[1, 2, 3].slice(0, 4)", "error: cannot slice(0, 4), list is length 3"),
        ("[1, 2, 3].slice(-1, 4)", "error: cannot slice(-1, 4), negative indexes not supported"),
        (
            "[[1], [[2]]].map(x, dyn(x)).flatten(2)",
            "refused: 1:7: expected type 'list(int)' but found 'list(list(int))'",
        ),
        ("[[[1]], [[2, 3]]].flatten()", "list [[1], [2, 3]]"),
        ("[[[1]], [[2, 3]]].flatten(2)", "list [1, 2, 3]"),
        ("[[1]].flatten(-1)", "error: level must be non-negative"),
        ("[1u, 2u].sum()", "uint 3"),
        ("[duration('1s'), duration('2s')].sum()", "google.protobuf.Duration 3s"),
        ("[1.5, 2.0].sum()", "double 3.5"),
        ("[9223372036854775807, 1].sum()", "error: integer overflow"),
        ("[b'b', b'a'].sort()[0] == b'a'", "bool true"),
        ("[2, 1, 3].sortBy(x, -x)", "list [3, 2, 1]"),
        ("[1, 2].map(x, x == 1 ? dyn(x) : dyn('a')).sort()", "error: list elements must have the same type"),
        ("[[1]].map(x, dyn(x)).sort()", "error: list elements must be comparable"),
        ("[optional.of(1), optional.none()].unwrapOpt()", "list [1]"),
        ("[dyn(1)].unwrapOpt()", "error: value 1 is not optional"),
        ("[1].map(x, dyn(x)).min() == 1 && [].max() == 1", "error: max called on empty list"),
    ]);
}

#[test]
fn addresses() {
    let ip = |text: &str, why: &str| {
        let why = format!(
            "error: IP Address \"{text}\" parse error during conversion from string: ParseAddr(\"{text}\"): {why}"
        );
        (format!("ip('{text}')"), why)
    };
    let cidr = |text: &str, why: &str| {
        let what = "network address parse error during conversion from string";
        (format!("cidr('{text}')"), format!("error: {what}: {what}: netip.ParsePrefix(\"{text}\"): {why}"))
    };
    let table = [
        ip("1.2.3.4.5", "IPv4 address too long"),
        ip("1.2.3", "IPv4 address too short"),
        ip("1.2.3.256", "IPv4 field has value >255"),
        ip("1.2.03.4", "IPv4 field has octet with leading zero"),
        ip("1..3.4", "IPv4 field must have at least one digit (at \".3.4\")"),
        ip("1.2.x.4", "unexpected character (at \"x.4\")"),
        ip("here", "unable to parse IP"),
        ip("%eth0", "missing IPv6 address"),
        ip("::1%", "zone must be a non-empty string"),
        ip("1::2::3", "multiple :: in address (at \":3\")"),
        ip("1:2:3", "address string too short"),
        ip("12345::", "each group must have 4 or fewer digits (at \"12345::\")"),
        cidr("10.0.0.0", "no '/'"),
        cidr("10.0.0.0/33", "prefix length out of range"),
        cidr("10.0.0.0/08", "bad bits after slash: \"08\""),
        cidr("10.0.0/8", "ParseAddr(\"10.0.0\"): IPv4 address too short"),
        cidr("fe80::1%en0/24", "IPv6 zones cannot be present in a prefix"),
    ];
    let table: Vec<(&str, &str)> = table.iter().map(|(text, why)| (text.as_str(), why.as_str())).collect();
    compare(&table);
    compare(&[
        ("ip('fe80::1%en0')", "error: IP address \"fe80::1%en0\" with zone value is not allowed"),
        ("ip('::ffff:1.2.3.4')", "error: IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"),
        ("isIP('::ffff:1.2.3.4') || isCIDR('10.0.0.0/08')", "bool false"),
        ("string(ip('::0:1')) + ' ' + string(cidr('10.1.0.0/8').masked())", "string ::1 10.0.0.0/8"),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "bool true"),
        (
            "cidr('10.0.0.0/8').containsIP('here')",
            "error: IP Address \"here\" parse error during conversion from string: ParseAddr(\"here\"): unable to parse IP",
        ),
        ("cidr('10.0.0.0/8').containsCIDR('10.0.0.0/7')", "bool false"),
    ]);
}

#[test]
fn urls_versions_and_formats() {
    let url = "error: URL parse error during conversion from string: parse";
    let table = [
        ("url('/a?b=1#c').getEscapedPath()", "string /a".to_owned()),
        ("url('HTTPS://u@h:80/p').getScheme() + url('https://u@h:80/p').getHost()", "string httpsh:80".to_owned()),
        ("url('')", format!("{url} \"\": empty url")),
        ("url('a/b')", format!("{url} \"a/b\": invalid URI for request")),
        ("url(':a')", format!("{url} \":a\": missing protocol scheme")),
        ("url('https://a b')", format!("{url} \"https://a b\": invalid character \" \" in host name")),
        ("url('https://a/%zz')", format!("{url} \"https://a/%zz\": invalid URL escape \"%zz\"")),
        ("url('https://a:b')", format!("{url} \"https://a:b\": invalid port \":b\" after host")),
        ("isURL('https://a b') || isURL('a/b')", "bool false".to_owned()),
        ("semver('')", "error: Version string empty".to_owned()),
        ("semver('1.2')", "error: No Major.Minor.Patch elements found".to_owned()),
        ("semver('1.02.3')", "error: Minor number must not contain leading zeroes \"02\"".to_owned()),
        ("semver('1.2.x')", "error: Invalid character(s) found in patch number \"x\"".to_owned()),
        ("semver('1.2.3-')", "error: Prerelease is empty".to_owned()),
        ("semver('1.2.3-01')", "error: Numeric PreRelease version must not contain leading zeroes \"01\"".to_owned()),
        ("semver('1.2.3+é')", "error: Invalid character(s) found in build meta data \"é\"".to_owned()),
        ("semver('v01.2', true).compareTo(semver('1.2.0'))", "int 0".to_owned()),
        ("semver('1.2-a', true)", "error: short version cannot contain PreRelease/Build meta data".to_owned()),
        ("quantity('1Q')", "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()),
        ("quantity('1iM')", "error: unable to parse quantity's suffix".to_owned()),
        ("quantity('0.1n').compareTo(quantity('1n'))", "int 0".to_owned()),
        ("sign(quantity('-0.0000000001'))", "int -1".to_owned()),
        ("format.dns1123LabelPrefix().validate('a-').hasValue()", "bool false".to_owned()),
        ("format.dns1035Label().validate('1a').value()[0]", "string a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned()),
        ("format.qualifiedName().validate('/a').value()", "list [prefix part must be non-empty]".to_owned()),
        ("format.uri().validate('a/b').value()", "list [parse \"a/b\": invalid URI for request]".to_owned()),
        ("format.datetime().validate('9999-12-31T23:59:59Z').hasValue()", "bool false".to_owned()),
    ];
    let table: Vec<(&str, &str)> = table.iter().map(|(text, value)| (*text, value.as_str())).collect();
    compare(&table);
}

/// Regression test: copies of a list or text that occurs a thousand times used to be made before they were charged.
#[test]
fn what_is_contained_many_times_costs_before_it_is_copied() {
    let document = serde_json::json!({"many": vec![0; 1_000], "long": "x".repeat(100_000)});
    for text in [
        "self.many.map(i, self.many).flatten().size()",
        "self.many.map(i, self.long).size()",
        "self.many.map(i, self.?long).size()",
        "self.many.map(i, 'x').map(x, '%s'.format([[x, x]]) + self.long).size()",
        "self.many.filter(i, i == 0).map(i, [self.long]).flatten().join().size()",
        "[self.long].map(x, self.many.map(i, x)).flatten().join().size()",
        "[self.long].map(x, self.many.map(i, '').join(x)).size()",
        "[self.long].map(x, '%s'.format([self.many.map(i, x)])).size()",
        "[self.long].map(x, '%s'.format([self.many.map(i, {i: x})])).size()",
    ] {
        let mut scope = Scope::default();
        scope.bind("self", &document, None);
        let mut budget = Budget::new(200_000);
        let outcome = Program::compile(text).unwrap().evaluate(&mut scope, &mut budget);
        assert_eq!(outcome.map(|value| printed(&value)), Err(EvalError::TooExpensive), "{text}");
    }
}
