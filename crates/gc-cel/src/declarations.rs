//! The functions and their arguments, parsed from `declarations.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::types::Type;

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: String,
    /// True if the function is a method of its first argument.
    pub(crate) member: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

static FUNCTIONS: LazyLock<BTreeMap<String, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: BTreeMap<String, Vec<Overload>> = BTreeMap::new();
    for line in include_str!("declarations.txt").lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        for line in alternatives(line) {
            if let Some((name, overload)) = overload(&line) {
                functions.entry(name).or_default().push(overload);
            }
        }
    }
    functions
});

/// Returns the overloads of a function.
pub(crate) fn overloads(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

/// Reports whether a function or method with this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    FUNCTIONS.contains_key(name) || matches!(name, "abs" | "math.greatest" | "math.least")
}

/// Reports whether a dotted name belongs to a function.
pub(crate) fn is_namespaced(name: &str) -> bool {
    name.contains('.') && is_known(name)
}

/// Expands a line with alternatives to one line for each. An alternative `id:type` stands for an identifier in the first column and
/// for a type in the others.
fn alternatives(line: &str) -> Vec<String> {
    let Some((before, rest)) = line.split_once('{') else { return vec![line.to_owned()] };
    let Some((all, after)) = rest.split_once('}') else { return vec![line.to_owned()] };
    all.split(' ')
        .map(|one| {
            let (id, name) = one.split_once(':').unwrap_or((one, one));
            format!("{before}{id}{}", after.replace("{}", name))
        })
        .collect()
}

fn overload(line: &str) -> Option<(String, Overload)> {
    let columns: Vec<&str> = line.split(';').map(str::trim).collect();
    let [id, receiver, name, arguments, result] = columns[..] else { return None };
    let member = receiver != "-";
    let receiver = member.then(|| type_of(receiver));
    let arguments = split(arguments).into_iter().map(type_of);
    let overload = Overload {
        id: id.to_owned(),
        member,
        arguments: receiver.into_iter().chain(arguments).collect(),
        result: type_of(result),
    };
    Some((name.to_owned(), overload))
}

/// Splits a list of types at its top-level commas.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (index, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(list[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn type_of(text: &str) -> Type {
    if let Some((kind, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let mut parameters = split(inner).into_iter().map(type_of);
        let mut next = || parameters.next().unwrap_or(Type::Dyn);
        return match kind {
            "list" => Type::list(next()),
            "map" => Type::map(next(), next()),
            "optional" => Type::optional(next()),
            _ => Type::Type(next().into()),
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "A" => Type::Unknown(0),
        "B" => Type::Unknown(1),
        "URL" => Type::Library("kubernetes.URL"),
        "Quantity" => Type::Library("kubernetes.Quantity"),
        "IP" => Type::Library("net.IP"),
        "CIDR" => Type::Library("net.CIDR"),
        "Format" => Type::Library("kubernetes.NamedFormat"),
        "Semver" => Type::Library("kubernetes.Semver"),
        "Authorizer" => Type::Library("kubernetes.authorization.Authorizer"),
        "PathCheck" => Type::Library("kubernetes.authorization.PathCheck"),
        "GroupCheck" => Type::Library("kubernetes.authorization.GroupCheck"),
        "ResourceCheck" => Type::Library("kubernetes.authorization.ResourceCheck"),
        "Decision" => Type::Library("kubernetes.authorization.Decision"),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_declares_functions_with_known_types() {
        let lines = include_str!("declarations.txt").lines();
        let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            for line in alternatives(line) {
                assert!(overload(&line).is_some(), "{line}");
                assert!(!line.contains(['{', '}']), "{line}");
            }
        }
        let printed = |name: &str| -> Vec<String> {
            let overloads = overloads(name).unwrap_or_default().iter();
            overloads
                .map(|overload| {
                    let arguments: Vec<String> = overload.arguments.iter().map(ToString::to_string).collect();
                    format!("{} {} -> {}", overload.id, arguments.join(" "), overload.result)
                })
                .collect()
        };
        assert_eq!(
            printed("double"),
            [
                "double_to_double double -> double",
                "int64_to_double int -> double",
                "uint64_to_double uint -> double",
                "string_to_double string -> double"
            ]
        );
        assert_eq!(printed("url"), ["string_to_url string -> kubernetes.URL"]);
        assert_eq!(printed("getQuery"), ["url_get_query kubernetes.URL -> map(string, list(string))"]);
        assert_eq!(
            printed("sum"),
            [
                "list_int_sum_int list(int) -> int",
                "list_uint_sum_uint list(uint) -> uint",
                "list_double_sum_double list(double) -> double",
                "list_duration_sum_duration list(duration) -> duration"
            ]
        );
    }
}
