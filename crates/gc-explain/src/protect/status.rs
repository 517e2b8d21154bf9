//! Checks whether the rules on a server are as written, and enforced.

use gc_types::Timestamp;
use serde_json::Value;

use super::{COUNTED, COUNTED_AT, Rule, is_ours};
use crate::object::parse_time;
use crate::text;

/// Age in milliseconds above which counts are worth a notice.
const OLD_MILLISECONDS: i64 = 86_400_000;

/// State of one rule on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Name of its policy.
    pub policy: String,
    /// Reasons why it does not work as intended.
    pub faults: Vec<Fault>,
}

/// A reason why a rule does not work as intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// True if deletions pass that should be refused; otherwise it is only a notice.
    pub is_open: bool,
    /// Human-readable message.
    pub message: String,
    /// Command that fixes it.
    pub command: String,
}

/// Returns the state of the rules on a server, from its policies, its bindings, and the ConfigMap with the counts.
#[must_use]
pub fn status(policies: &[Value], bindings: &[Value], counts: Option<&Value>, now: Timestamp) -> Vec<Status> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = policies.iter().map(name).chain(bindings.iter().map(name)).collect();
    names.retain(|name| is_ours(name));
    names.sort();
    names.dedup();
    let named =
        |objects: &[Value], wanted: &str| objects.iter().find(|object| name(object) == wanted).cloned();
    let one = |policy: String| {
        let (found, binding) = (named(policies, &policy), named(bindings, &policy));
        let mut faults = faults_of(&policy, found.as_ref(), binding.as_ref());
        if policy == Rule::Counted.name() {
            faults.extend(age(counts, now));
        }
        Status { policy, faults }
    };
    names.into_iter().map(one).collect()
}

/// Returns all faults of all rules.
pub fn faults(rules: &[Status]) -> impl Iterator<Item = (&str, &Fault)> {
    rules.iter().flat_map(|rule| rule.faults.iter().map(|fault| (rule.policy.as_str(), fault)))
}

fn open(message: &str, command: String) -> Fault {
    Fault { is_open: true, message: message.to_owned(), command }
}

fn faults_of(name: &str, policy: Option<&Value>, binding: Option<&Value>) -> Vec<Fault> {
    let known = [Rule::Marked, Rule::Volumes, Rule::Counted];
    let rule = known.iter().find(|rule| rule.name() == name);
    let command = || match rule {
        Some(Rule::Marked) => "kubegc protect --marked --yes".to_owned(),
        Some(Rule::Volumes) => "kubegc protect --volumes --yes".to_owned(),
        Some(_) => "kubegc protect --definitions --namespaces --yes".to_owned(),
        None => format!("kubectl get validatingadmissionpolicies/{name} -o yaml"),
    };
    let Some(policy) = policy else {
        return vec![open(
            "its binding names a policy that does not exist, so that nothing is refused",
            command(),
        )];
    };
    let Some(binding) = binding else {
        return vec![open("no binding of its name exists, so that nothing is refused", command())];
    };
    let mut faults = Vec::new();
    let mut actions = binding["spec"]["validationActions"].as_array().into_iter().flatten();
    if !actions.any(|action| action == "Deny") {
        faults.push(open("its binding does not deny, so that nothing is refused", command()));
    }
    if policy["spec"]["failurePolicy"] == "Ignore" {
        faults.push(open("its failures are ignored (failurePolicy)", command()));
    }
    if let Some(rule) = rule {
        let is_same = contains(&policy["spec"], &rule.policy()["spec"])
            && contains(&binding["spec"], &rule.binding()["spec"]);
        if !is_same && faults.is_empty() {
            let message = "it was changed, or written by another version".to_owned();
            faults.push(Fault { is_open: false, message, command: command() });
        }
    }
    faults
}

fn age(counts: Option<&Value>, now: Timestamp) -> Option<Fault> {
    let Some(counts) = counts else {
        let command = "kubegc protect --definitions --namespaces --yes".to_owned();
        return Some(open("its ConfigMap does not exist, so that nothing is refused", command));
    };
    let annotation = |name: &str| counts["metadata"]["annotations"][name].as_str().unwrap_or_default();
    let flags = match annotation(COUNTED) {
        "" => "--definitions --namespaces",
        flags => flags,
    };
    let command = format!("kubegc protect {flags} --yes");
    let message = match parse_time(annotation(COUNTED_AT)) {
        Some(at) if now.since(at) <= OLD_MILLISECONDS => return None,
        Some(at) => format!("it was counted {}", text::ago(at, now)),
        None => "when it was counted is not known".to_owned(),
    };
    Some(Fault { is_open: false, message, command })
}

/// Reports whether a value contains all of another; servers add defaults.
fn contains(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected
            .iter()
            .all(|(field, expected)| actual.get(field).is_some_and(|actual| contains(actual, expected))),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual.iter().zip(expected).all(|(actual, expected)| contains(actual, expected))
        }
        _ => actual == expected,
    }
}
