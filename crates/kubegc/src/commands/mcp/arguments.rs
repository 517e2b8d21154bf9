//! Arguments of the tools. Their doc comments are the descriptions that clients read.

use rmcp::ErrorData;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Arguments of `stuck`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StuckArguments {
    /// Only this namespace; all without it
    pub(super) namespace: Option<String>,
    /// Only deletions that have been stuck for at least this time, such as `5m`
    pub(super) at_least: Option<String>,
}

/// Arguments of `why`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhyArguments {
    /// The object as TYPE/NAME, such as `pod/web-1` or `deployments.apps/web`
    pub(super) object: String,
    /// Its namespace; that of the kubeconfig's context without it
    pub(super) namespace: Option<String>,
}

/// Arguments of `tree`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TreeArguments {
    /// The object as TYPE/NAME, such as `pod/web-1` or `deployments.apps/web`
    pub(super) object: String,
    /// Its namespace; that of the kubeconfig's context without it
    pub(super) namespace: Option<String>,
    /// True to show its owners up to the roots, in place of its dependents
    #[serde(default)]
    pub(super) owners: bool,
    /// Levels to show; what is below is counted
    pub(super) depth: Option<usize>,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PlanArguments {
    /// The object as TYPE/NAME, such as `pod/web-1` or `deployments.apps/web`
    pub(super) object: String,
    /// Its namespace; that of the kubeconfig's context without it
    pub(super) namespace: Option<String>,
    /// The propagation policy: `background` (the default), `foreground` or `orphan`
    pub(super) cascade: Option<String>,
}

/// Arguments of `garbage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GarbageArguments {
    /// Only this namespace; all but those of Kubernetes without it
    pub(super) namespace: Option<String>,
    /// Only what was created at least this long ago, such as `168h` or `30d`
    pub(super) older_than: Option<String>,
}

/// Arguments of `journal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct JournalArguments {
    /// Only about this object: TYPE/NAME, or a UID
    pub(super) object: Option<String>,
    /// Only in this namespace
    pub(super) namespace: Option<String>,
    /// Only entries newer than this, such as `1h`
    pub(super) since: Option<String>,
    /// The newest entries, at most 200; 50 without it
    pub(super) limit: Option<usize>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolCall {
    Stuck(StuckArguments),
    Why(WhyArguments),
    Tree(TreeArguments),
    Plan(PlanArguments),
    Garbage(GarbageArguments),
    Journal(JournalArguments),
}

impl ToolCall {
    /// Parses a call. The outer error is for the calling program, the inner one for whoever wrote the arguments.
    pub(super) fn read(name: &str, arguments: Option<JsonObject>) -> Result<Result<Self, String>, ErrorData> {
        let given = arguments.unwrap_or_default();
        Ok(match name {
            "stuck" => arguments_of(given).map(Self::Stuck),
            "why" => arguments_of(given).map(Self::Why),
            "tree" => arguments_of(given).map(Self::Tree),
            "plan" => arguments_of(given).map(Self::Plan),
            "garbage" => arguments_of(given).map(Self::Garbage),
            "journal" => arguments_of(given).map(Self::Journal),
            _ => return Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None)),
        })
    }
}

fn arguments_of<T: DeserializeOwned>(given: JsonObject) -> Result<T, String> {
    serde_json::from_value(given.into()).map_err(|error| format!("arguments: {error}"))
}

/// Describes the tools.
pub(super) fn listed() -> Vec<Tool> {
    let tool = |name: &'static str, about: &'static str| {
        let hints =
            ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false);
        Tool::new(name, about, JsonObject::new()).with_annotations(hints)
    };
    vec![
        tool("stuck", "List deletions that are stuck in the cluster, by root cause, with commands that free them")
            .with_input_schema::<StuckArguments>(),
        tool("why", "Explain why an object is, will be or is not deleted, or who deleted it, with evidence")
            .with_input_schema::<WhyArguments>(),
        tool("tree", "Show what depends on an object, or its owners").with_input_schema::<TreeArguments>(),
        tool(
            "plan",
            "Show everything that deleting an object would lead to: what is deleted, lost, recreated, refused or stuck. Deletes nothing",
        )
        .with_input_schema::<PlanArguments>(),
        tool("garbage", "Report objects that nothing uses, with sizes and certainty. Deletes nothing")
            .with_input_schema::<GarbageArguments>(),
        tool("journal", "Show what the collectors deleted or changed, and why")
            .with_input_schema::<JournalArguments>(),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_read_by_name_and_refused_with_a_reason() {
        let read =
            |name: &str, arguments: serde_json::Value| ToolCall::read(name, arguments.as_object().cloned());
        let stuck = StuckArguments { namespace: Some("shop".into()), at_least: Some("5m".into()) };
        let given = json!({"namespace": "shop", "atLeast": "5m"});
        assert_eq!(read("stuck", given).unwrap(), Ok(ToolCall::Stuck(stuck)));
        assert_eq!(read("garbage", json!(null)).unwrap(), Ok(ToolCall::Garbage(GarbageArguments::default())));
        for (name, arguments, why) in [
            ("why", json!({}), "missing field `object`"),
            ("stuck", json!({"at-least": "5m"}), "unknown field `at-least`"),
            ("tree", json!({"object": "cm/a", "depth": -1}), "invalid value"),
        ] {
            let refused = read(name, arguments).unwrap().unwrap_err();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        assert!(
            read("delete", json!({"object": "cm/a"})).unwrap_err().message.contains("no tool \"delete\"")
        );
    }

    /// Clients choose a tool by these descriptions.
    #[test]
    fn tools_are_described_with_their_arguments_as_read_only() {
        for tool in listed() {
            let hints = tool.annotations.unwrap();
            assert_eq!(
                (hints.read_only_hint, hints.destructive_hint),
                (Some(true), Some(false)),
                "{}",
                tool.name
            );
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert!(!properties.is_empty(), "{}", tool.name);
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{} {name}: {property}", tool.name);
            }
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
        }
    }
}
