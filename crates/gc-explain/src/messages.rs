//! Messages of servers and controllers about failed deletions.

use crate::object::Object;

/// Returns the message of a namespace's condition if its status is `True`.
pub(crate) fn condition<'a>(namespace: &'a Object, kind: &str) -> Option<&'a str> {
    let condition = namespace.condition(kind)?;
    (condition["status"] == "True").then(|| condition["message"].as_str().unwrap_or_default())
}

/// Reports whether a message about the contents of a namespace names no failure but only what remains. Recognizes kubegc's message
/// and upstream's, in which resource names are separated by commas.
fn only_says_what_remains(message: &str) -> bool {
    let (_, parts) = message.split_once(" remaining: ").unwrap_or_default();
    let mut parts = parts.split(", ");
    parts.all(|part| part.starts_with("unexpected items still remain") || part.starts_with("Resource="))
}

/// Returns the quoted text after a phrase.
fn quoted_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(phrase)?;
    after.split('"').nth(1)
}

/// Returns the namespace controller's reason for not deleting the contents.
pub(crate) fn content_failure(namespace: &Object) -> Option<&str> {
    condition(namespace, "NamespaceDeletionContentFailure").filter(|message| !only_says_what_remains(message))
}

/// Returns the admission webhook that an error message names.
#[must_use]
pub fn webhook_in(message: &str) -> Option<&str> {
    let phrases = ["failed calling webhook", "admission webhook"];
    phrases.iter().find_map(|phrase| quoted_after(message, phrase))
}

/// Returns the policy that a refusal message names.
#[must_use]
pub fn refusing_policy(message: &str) -> Option<&str> {
    policy_in(message).map(|(policy, ..)| policy)
}

/// Returns the policy that a refusal message names, its binding, and its own message.
pub(crate) fn policy_in(message: &str) -> Option<(&str, &str, &str)> {
    let (_, after) = message.split_once("ValidatingAdmissionPolicy '")?;
    let (policy, after) = after.split_once("' with binding '")?;
    let (binding, said) = after.split_once("' denied request: ")?;
    Some((policy, binding, said))
}
