//! The rules that are declared with the types since 1.37, one case each: what is refused, and the causes in both versions.
#![allow(dead_code, unreachable_pub)] // Each test file uses a part of it.

use gc_registry::error::ApiError;
use gc_registry::kubernetes::KubernetesVersion;
use serde_json::Value;

use crate::world::World;

/// `base NAME RESOURCE OBJECT` is a valid object. `case NAME TYPE.FIELD RULE` begins a case with it, `set POINTER VALUE` changes
/// it, and `update SUBRESOURCE` sends it, to be changed further; what is sent last is refused. `36`, `37` and `both` are the
/// causes. In values, `N*VALUE` is a list in which `%` is the index, and `@N@` is a text of that length.
const CASES: &str = include_str!("cases.txt");

/// One object that is refused.
struct Case {
    title: &'static str,
    base: &'static str,
    /// Changes of what is created, then of each update.
    steps: Vec<Step>,
    expected: Vec<String>,
}

#[derive(Default)]
struct Step {
    subresource: &'static str,
    changes: Vec<(&'static str, Value)>,
}

/// Compares all cases with what a version says.
pub fn check(version: KubernetesVersion) {
    version.choose().unwrap();
    let prefix = match version {
        KubernetesVersion::V1_36 => "36",
        KubernetesVersion::V1_37 => "37",
    };
    let (bases, cases) = read(prefix);
    let mut wrong = Vec::new();
    for (name, resource, object) in &bases {
        if let Err(error) = World::default().create(resource, object.clone()) {
            wrong.push(format!("base {name}: {}", error.message));
        }
    }
    for case in &cases {
        let (_, resource, base) = bases.iter().find(|(name, ..)| *name == case.base).unwrap();
        let found = sent(case, resource, base).map_or_else(|error| causes(&error), |()| Vec::new());
        if found != case.expected || found.is_empty() {
            let lines: Vec<String> = found.iter().map(|line| format!("{prefix} {line}")).collect();
            wrong.push(format!("case {} {}\n{}", case.base, case.title, lines.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rules of a table, such as `rules-1.37.txt`, that have no case.
pub fn without_case(rules: &'static str) -> Vec<String> {
    let titles: Vec<&str> =
        CASES.lines().filter_map(|line| Some(line.strip_prefix("case ")?.split_once(' ')?.1)).collect();
    let (mut missing, mut kind) = (Vec::new(), "");
    for line in rules.lines() {
        let Some(field) = line.strip_prefix(' ') else {
            kind = line.rsplit('.').next().unwrap();
            continue;
        };
        let mut words = field.split(' ');
        let field = words.next().unwrap();
        for word in words.filter(|word| !NO_RULES.iter().any(|name| word.starts_with(name))) {
            let (start, name) = match word {
                // Which member it is makes no difference.
                "unionMember" => (format!("{kind}."), word),
                _ => (format!("{kind}.{field} "), word.split(['=', '(']).next().unwrap()),
            };
            let inner = word.rsplit_once(")=").map_or(name, |(_, inner)| inner.split('=').next().unwrap());
            let has_case =
                |title: &&str| title.starts_with(&start) && (title.contains(name) || title.contains(inner));
            if !titles.iter().any(has_case) {
                missing.push(format!("{kind}.{field} {word}"));
            }
        }
    }
    missing
}

/// Words that refuse nothing by themselves.
const NO_RULES: [&str; 5] =
    ["optional", "subfield(name)=optional", "listMapKey", "modeDiscriminator", "customUnique"];

fn sent(case: &Case, resource: &str, base: &Value) -> Result<(), ApiError> {
    let world = World::default();
    let mut object = base.clone();
    for (index, step) in case.steps.iter().enumerate() {
        for (pointer, value) in &step.changes {
            set(&mut object, pointer, value.clone());
        }
        let answer = if index == 0 {
            world.create(resource, object)
        } else {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let target = if step.subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{}", step.subresource)
            };
            world.update(&target, &format!("default/{name}"), object)
        };
        assert!(answer.is_ok() || index + 1 == case.steps.len(), "{}: {answer:?}", case.title);
        object = answer?;
    }
    Ok(())
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer} has no parent"));
    match parent {
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        parent => parent[name] = value,
    }
}

fn causes(error: &ApiError) -> Vec<String> {
    let details = error.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    details.iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect()
}

fn read(prefix: &str) -> (Vec<(&'static str, &'static str, Value)>, Vec<Case>) {
    let (mut bases, mut cases): (Vec<_>, Vec<Case>) = (Vec::new(), Vec::new());
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "base" => {
                let mut parts = rest.splitn(3, ' ');
                let (name, resource) = (parts.next().unwrap(), parts.next().unwrap());
                bases.push((name, resource, value(parts.next().unwrap())));
            }
            "case" => {
                let (base, title) = rest.split_once(' ').unwrap();
                cases.push(Case { title, base, steps: vec![Step::default()], expected: Vec::new() });
            }
            _ => {
                let case = cases.last_mut().unwrap();
                match word {
                    "set" => {
                        let (pointer, text) = rest.split_once(' ').unwrap();
                        case.steps.last_mut().unwrap().changes.push((pointer, value(text)));
                    }
                    "update" => case.steps.push(Step { subresource: rest, changes: Vec::new() }),
                    "both" => case.expected.push(long_texts(rest)),
                    word if word == prefix => case.expected.push(long_texts(rest)),
                    "36" | "37" => {}
                    other => panic!("{other}"),
                }
            }
        }
    }
    (bases, cases)
}

fn value(text: &str) -> Value {
    let text = long_texts(text);
    if let Some((count, item)) = text.split_once('*')
        && let Ok(count) = count.parse::<usize>()
    {
        return (0..count).map(|index| json(&item.replace('%', &index.to_string()))).collect();
    }
    json(&text)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Writes out `@64@`.
fn long_texts(text: &str) -> String {
    let parts = text.split('@').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { "a".repeat(part.parse().unwrap()) })
        .collect()
}
