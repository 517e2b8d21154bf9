//! Messages of servers and controllers about deletions that fail.

use crate::object::Object;

/// The message of a condition of a namespace that is true.
pub(crate) fn condition<'a>(namespace: &'a Object, kind: &str) -> Option<&'a str> {
    let condition = namespace.condition(kind)?;
    (condition["status"] == "True").then(|| condition["message"].as_str().unwrap_or_default())
}

/// Reports whether a message about the contents of a namespace names no failure, but only what has not gone yet:
/// ours, or upstream's, in which a resource has a comma.
fn only_says_what_remains(message: &str) -> bool {
    let (_, parts) = message.split_once(" remaining: ").unwrap_or_default();
    let mut parts = parts.split(", ");
    parts.all(|part| part.starts_with("unexpected items still remain") || part.starts_with("Resource="))
}

/// The text between quotes after a phrase.
fn quoted_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(phrase)?;
    after.split('"').nth(1)
}

/// Why the contents of a namespace could not be deleted, as its controller reports it.
pub(crate) fn content_failure(namespace: &Object) -> Option<&str> {
    condition(namespace, "NamespaceDeletionContentFailure").filter(|message| !only_says_what_remains(message))
}

/// The admission webhook that a message about a deletion is about.
#[must_use]
pub fn webhook_in(message: &str) -> Option<&str> {
    let phrases = ["failed calling webhook", "admission webhook"];
    phrases.iter().find_map(|phrase| quoted_after(message, phrase))
}

/// The policy that a message about a refused request is about.
#[must_use]
pub fn refusing_policy(message: &str) -> Option<&str> {
    policy_in(message).map(|(policy, ..)| policy)
}

/// The policy that a message about a refused request is about, its binding, and what it said.
pub(crate) fn policy_in(message: &str) -> Option<(&str, &str, &str)> {
    let (_, after) = message.split_once("ValidatingAdmissionPolicy '")?;
    let (policy, after) = after.split_once("' with binding '")?;
    let (binding, said) = after.split_once("' denied request: ")?;
    Some((policy, binding, said))
}
