//! Lookup document for webhooks and commands, and their answer.

use gc_collectors::engine::MachineState;
use serde::{Deserialize, Serialize};

use crate::cloud::Machine;

/// `apiVersion` of all documents.
pub const API_VERSION: &str = "kubegc.io/v1alpha1";
const KIND: &str = "MachineLookup";

/// Reason why an answer is invalid.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Not a document of this form.
    #[error("the answer is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A document of another kind or version.
    #[error("the answer is a {found:?}, not a {API_VERSION:?} {KIND:?}")]
    OtherKind {
        /// apiVersion and kind of the document.
        found: String,
    },
    /// The answer to another lookup.
    #[error("the answer is about node {found:?}, not about {asked:?}")]
    OtherMachine {
        /// Node that was looked up.
        asked: String,
        /// Node in the answer.
        found: String,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    api_version: &'a str,
    kind: &'a str,
    node: NamedMachine<'a>,
}

#[derive(Serialize)]
struct NamedMachine<'a> {
    name: &'a str,
    #[serde(rename = "providerID")]
    provider_id: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer {
    api_version: String,
    kind: String,
    node: AnsweredNode,
    machine: AnsweredMachine,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnsweredNode {
    name: String,
    #[serde(rename = "providerID")]
    provider_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnsweredMachine {
    state: State,
}

#[derive(Clone, Copy, Deserialize)]
enum State {
    Running,
    Shutdown,
    Absent,
}

/// Returns the lookup of a machine as JSON.
pub(crate) fn question(machine: &Machine) -> String {
    let node = NamedMachine { name: &machine.node, provider_id: &machine.provider_id };
    let question = Question { api_version: API_VERSION, kind: KIND, node };
    // Serializing strings cannot fail.
    serde_json::to_string(&question).unwrap_or_default()
}

/// Parses the answer. It must repeat the node, so that an outdated or mixed-up answer is detected.
pub(crate) fn answer(machine: &Machine, json: &[u8]) -> Result<MachineState, AnswerError> {
    let answer: Answer = serde_json::from_slice(json)?;
    if answer.api_version != API_VERSION || answer.kind != KIND {
        return Err(AnswerError::OtherKind { found: format!("{} {}", answer.api_version, answer.kind) });
    }
    if answer.node.name != machine.node || answer.node.provider_id != machine.provider_id {
        let words = |name: &str, id: &str| format!("{name} ({id})");
        return Err(AnswerError::OtherMachine {
            asked: words(&machine.node, &machine.provider_id),
            found: words(&answer.node.name, &answer.node.provider_id),
        });
    }
    Ok(match answer.machine.state {
        State::Running => MachineState::Running,
        State::Shutdown => MachineState::Shutdown,
        State::Absent => MachineState::Absent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exact_answer_is_one() {
        let machine = Machine { node: "n".into(), provider_id: "rack://7".into() };
        assert_eq!(
            question(&machine),
            r#"{"apiVersion":"kubegc.io/v1alpha1","kind":"MachineLookup","node":{"name":"n","providerID":"rack://7"}}"#
        );
        let whole = |version: &str, name: &str, id: &str, machine: &str| {
            format!(
                r#"{{"apiVersion":"{version}","kind":"MachineLookup","node":{{"name":"{name}","providerID":"{id}"}},"machine":{machine}}}"#
            )
        };
        let good = |machine: &str| whole(API_VERSION, "n", "rack://7", machine);
        for (json, expected) in [
            (good(r#"{"state":"Running"}"#), Ok(MachineState::Running)),
            (good(r#"{"state":"Shutdown"}"#), Ok(MachineState::Shutdown)),
            (good(r#"{"state":"Absent"}"#), Ok(MachineState::Absent)),
            (good(r#"{"state":"absent"}"#), Err("unknown variant")),
            (good(r#"{"state":null}"#), Err("malformed")),
            (good("{}"), Err("missing field `state`")),
            (good(r#"{"state":"Absent","maybe":true}"#), Err("unknown field `maybe`")),
            (format!("{} {{}}", good(r#"{"state":"Absent"}"#)), Err("trailing characters")),
            (
                whole("v2", "n", "rack://7", r#"{"state":"Absent"}"#),
                Err("the answer is a \"v2 MachineLookup\""),
            ),
            (
                whole(API_VERSION, "m", "rack://7", r#"{"state":"Absent"}"#),
                Err("is about node \"m (rack://7)\""),
            ),
            (
                whole(API_VERSION, "n", "rack://8", r#"{"state":"Absent"}"#),
                Err("is about node \"n (rack://8)\""),
            ),
            (r#"{"state":"Absent"}"#.to_owned(), Err("malformed")),
            ("false".to_owned(), Err("malformed")),
            (String::new(), Err("malformed")),
        ] {
            match (answer(&machine, json.as_bytes()), expected) {
                (Ok(state), Ok(expected)) => assert_eq!(state, expected, "{json}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{json}: {error}");
                }
                (found, _) => panic!("{json}: {found:?}"),
            }
        }
    }
}
